import {
  ActionCallEvent,
  type Citation,
  CitationFrame,
  type MessagePart,
  type Message as MessageView,
  ReasoningEvent,
  RenderComponentEvent,
  TextFrame,
  type ToolCall,
  ToolCallEvent,
} from '@sibyl/protocol';
import type { AnswerDetails, AnswerDetailsStore } from '../../store/answer-details.js';
import {
  joinReasoning,
  listAttachments,
  listToolCalls,
  type Message,
} from '../../store/message-store.js';
import type { MessageError } from '../../store/schema/messages.js';
import { toUsageField } from './run-log.js';

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

/** Converts messages of one session to their wire form, with what belongs to answers besides their parts. */
export async function toMessageViews(
  messages: readonly Message[],
  store: AnswerDetailsStore,
): Promise<MessageView[]> {
  const details = await store.read(messages);
  return messages.map((message) => toMessageView(message, details.get(message.id)));
}

/** The wire form of a message. */
export function toMessageView(message: Message, details: AnswerDetails = {}): MessageView {
  const { parts, parent, error, siblings } = message;
  const toolCalls = listToolCalls(message);
  const reasoning = joinReasoning(message);
  const attachments = listAttachments(message);
  return {
    id: message.id,
    type: message.type,
    content: message.content,
    createdAt: new Date(message.createdAt).toISOString(),
    ...(toolCalls.length > 0 && { toolCalls }),
    ...(reasoning && { reasoning }),
    ...(attachments.length > 0 && { attachments }),
    requestId: message.requestId,
    isComplete: message.isComplete,
    ...(parts && { parts: [...parts] }),
    ...(parent !== undefined && { parentId: parent }),
    ...(error && { status: error.status, error: toErrorView(error) }),
    ...(siblings && { siblings: [...siblings] }),
    ...(details.model !== undefined && { model: details.model }),
    ...toUsageField(details.usage),
    ...(details.feedback && { feedback: details.feedback }),
  };
}

const toErrorView = ({ code, message, kind }: MessageError) => ({
  code,
  message,
  ...(kind && { kind }),
});
