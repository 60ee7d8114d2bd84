import {
  ActionCallEvent,
  type Citation,
  CitationFrame,
  type MessagePart,
  ReasoningEvent,
  RenderComponentEvent,
  TextFrame,
  type ToolCall,
  ToolCallEvent,
} from '@sibyl/protocol';

/** The output of a call that had no result when its turn ended. */
const UNKNOWN_OUTCOME = '"interrupted: the outcome is unknown"';

type StartedCall = Pick<ToolCall, 'id' | 'name' | 'args'>;

/** Collects the parts of an answer in the order they happen. */
export class MessageParts {
  private readonly parts: MessagePart[] = [];
  /** Where each call and component is among the parts: it stays where it began. */
  private readonly places = new Map<string, number>();
  private text = '';

  /** The text of all parts. */
  get content(): string {
    return this.text;
  }

  get isEmpty(): boolean {
    return this.parts.length === 0;
  }

  addText(text: string): void {
    this.text += text;
    this.extend('text', text);
  }

  addReasoning(text: string): void {
    this.extend('reasoning', text);
  }

  /** Until the call ends, its outcome is unknown. */
  startCall({ id, name, args }: StartedCall): void {
    if (this.places.has(toCallKey(id))) return;
    this.endCall({ id, name, args, status: 'error', output: UNKNOWN_OUTCOME });
  }

  /** Replaces the unknown outcome of calls that did not end. */
  leaveCalls(ids: ReadonlySet<string>, output: string): void {
    for (const part of this.parts)
      if (part.type === 'tool-call' && ids.has(part.call.id)) part.call = { ...part.call, output };
  }

  endCall(call: ToolCall): void {
    this.put(toCallKey(call.id), { type: 'tool-call', call });
  }

  /** Adds what a stored frame shows of the answer; ignores frames of other versions that cannot be parsed. */
  addFrame(event: string, data: unknown): void {
    switch (event) {
      case 'message':
        this.addText(TextFrame.safeParse(data).data?.content ?? '');
        break;
      case 'reasoning':
        this.addReasoning(ReasoningEvent.safeParse(data).data?.reasoning ?? '');
        break;
      case 'tool_call': {
        const call = ToolCallEvent.safeParse(data).data;
        if (call) this.addCallFrame(call.eventId, call);
        break;
      }
      case 'action_call': {
        const call = ActionCallEvent.safeParse(data).data;
        if (call) this.addCallFrame(call.toolCallId, call);
        break;
      }
      case 'render_component': {
        const component = RenderComponentEvent.safeParse(data).data;
        if (component) this.addComponent(component);
        break;
      }
      case 'citation': {
        const { citation } = CitationFrame.safeParse(data).data ?? {};
        if (citation) this.addCitation(citation);
        break;
      }
    }
  }

  /** The last event of a component is the one that counts. */
  private addComponent({ eventId: id, componentName: name, args }: RenderComponentEvent): void {
    this.put(`component ${id}`, {
      type: 'component',
      component: { id, name, ...(args && { args }) },
    });
  }

  /** A source counts once. */
  private addCitation(citation: Citation): void {
    const { fileId, url, position, marker } = citation;
    this.put(`citation ${JSON.stringify([fileId, url, position, marker])}`, {
      type: 'citation',
      citation,
    });
  }

  /** For a message; without `parts` if it is only its text. */
  toMessage(): { readonly content: string; readonly parts?: readonly MessagePart[] } {
    const isText = this.parts.every(({ type }) => type === 'text');
    return { content: this.text, ...(!isText && { parts: this.parts }) };
  }

  private addCallFrame(id: string, frame: Omit<ActionCallEvent, 'toolCallId'>): void {
    const { toolName: name, args, status, output = '""' } = frame;
    if (status === 'isRunning') this.startCall({ id, name, args });
    else this.endCall({ id, name, args, status, output });
  }

  private put(key: string, part: MessagePart): void {
    const index = this.places.get(key) ?? this.parts.length;
    this.places.set(key, index);
    this.parts[index] = part;
  }

  private extend(type: 'text' | 'reasoning', text: string): void {
    if (text === '') return;
    const last = this.parts.at(-1);
    if (last?.type === type) last.text += text;
    else this.parts.push({ type, text });
  }
}

const toCallKey = (id: string) => `call ${id}`;
