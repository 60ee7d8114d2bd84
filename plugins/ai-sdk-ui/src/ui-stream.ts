import {
  type AnswerPart,
  type ClientToolCall,
  findClientToolCall,
  type NumberedPart,
  type OpenInterrupt,
} from '@sibyl/plugin-kit/surface';
import type { ApprovalRequestEvent, Citation, DoneFrame, ToolCallEvent } from '@sibyl/protocol';
import type { OpenedChat } from './chat.js';

type Chunk = { readonly type: string } & Readonly<Record<string, unknown>>;

interface StreamDeps extends OpenedChat {
  /** What the turn waits for once its run has paused. */
  readonly pending: () => Promise<readonly OpenInterrupt[]>;
  readonly pageUrl: string;
}

/** Translates the frames of an answer to chunks of a UI message stream. */
export async function* toChunks(
  frames: AsyncIterable<AnswerPart>,
  deps: StreamDeps,
): AsyncGenerator<Chunk> {
  const { runId, sessionId, messageId } = deps.run;
  const writer = new ChunkWriter(deps);
  let hasBegun = false;
  for await (const { part: frame } of frames) {
    // Not before: until then, an error is a response with its own status.
    if (!hasBegun) {
      yield { type: 'start', messageId, messageMetadata: { sessionId, runId } };
      yield { type: 'start-step' };
    }
    hasBegun = true;
    if (frame.event !== 'done') yield* writer.translate(frame);
    else yield* writer.end(frame.data, frame.data.pending ? await deps.pending() : []);
  }
}

type CallFacts = Pick<ToolCallEvent, 'eventId' | 'toolName' | 'args'>;

class ChunkWriter {
  private open: { readonly kind: 'text' | 'reasoning'; readonly id: string } | undefined;
  private parts = 0;
  private hasFailed = false;
  /** Why the model has ended its answer early. */
  private truncatedBy: string | undefined;
  private readonly shown: Set<string>;
  /** Calls of which it is not known yet whether the client runs them. */
  private readonly held = new Map<string, CallFacts>();

  constructor(private readonly deps: StreamDeps) {
    this.shown = new Set(deps.shownCalls);
  }

  *translate(frame: NumberedPart): Generator<Chunk> {
    switch (frame.event) {
      case 'message':
        return yield* this.write('text', frame.data.content);
      case 'reasoning':
        if (frame.data.reasoning) yield* this.write('reasoning', frame.data.reasoning);
        if (frame.data.isComplete) yield* this.close();
        return;
      case 'tool_call':
        return yield* this.writeCall(frame.data);
      case 'approval_request':
        return yield* this.writeApproval(frame.data);
      case 'citation':
        return yield this.toSource(frame.data.citation);
      case 'render_component': {
        const { eventId: id, componentName: name, args, status } = frame.data;
        return yield { type: 'data-component', id, data: { name, args, status } };
      }
      case 'warning': {
        const { code, message } = frame.data;
        this.truncatedBy = TRUNCATIONS.get(code) ?? this.truncatedBy;
        return yield { type: 'data-warning', data: { code, message }, transient: true };
      }
      case 'error':
        this.hasFailed = true;
        yield* this.close();
        return yield { type: 'error', errorText: frame.data.error };
      default:
        // Frames for pages with a socket, which these clients do not have.
        return;
    }
  }

  *end({ status, usage }: DoneFrame, pending: readonly OpenInterrupt[]): Generator<Chunk> {
    const asked = pending.filter(({ kind, isApproval }) => kind === 'tool_call' && !isApproval);
    for (const question of asked) {
      const call = findClientToolCall(question);
      if (call) yield* this.writeClientCall(call);
    }
    yield* this.showHeld();
    if (pending.some(({ kind, isApproval }) => kind !== 'tool_call' && !isApproval))
      yield* this.write('text', `This needs your decision. Open ${this.deps.pageUrl} to continue.`);
    yield* this.close();
    yield { type: 'finish-step' };
    if (status === 'aborted') yield { type: 'abort' };
    else if (!this.hasFailed)
      yield {
        type: 'finish',
        finishReason: toFinishReason(status, pending) ?? this.truncatedBy ?? 'stop',
        ...(usage && { messageMetadata: { usage } }),
      };
  }

  private *write(kind: 'text' | 'reasoning', text: string): Generator<Chunk> {
    yield* this.showHeld();
    // The host separates the texts of a turn by empty lines; here they are parts.
    const delta = this.open?.kind === kind ? text : text.replace(/^\n+/, '');
    if (!delta) return;
    if (this.open?.kind !== kind) {
      yield* this.close();
      this.parts += 1;
      this.open = { kind, id: `${kind}-${this.parts}` };
      yield { type: `${kind}-start`, id: this.open.id };
    }
    yield { type: `${kind}-delta`, id: this.open.id, delta };
  }

  private *close(): Generator<Chunk> {
    if (this.open) yield { type: `${this.open.kind}-end`, id: this.open.id };
    this.open = undefined;
  }

  private *writeCall(call: ToolCallEvent): Generator<Chunk> {
    const { eventId: toolCallId, status } = call;
    // The client itself has sent the result.
    if (this.deps.settledCalls?.has(toolCallId) && status === 'done') return;
    yield* this.close();
    if (!this.shown.has(toolCallId)) {
      if (status === 'isRunning' && this.mayRun(call)) this.held.set(toolCallId, call);
      else yield* this.show(call);
    }
    yield* this.writeOutcome(call);
  }

  /** Whether the client may have to run the call: it does so as soon as it is shown, also a call that is refused or needs an approval. */
  private mayRun({ toolName }: CallFacts): boolean {
    return this.deps.clientTools?.has(toolName) ?? true;
  }

  private *writeOutcome({
    eventId: toolCallId,
    status,
    output,
    error,
  }: ToolCallEvent): Generator<Chunk> {
    if (status === 'done')
      yield { type: 'tool-output-available', toolCallId, output: parse(output ?? 'null') };
    else if (status === 'error')
      yield { type: 'tool-output-error', toolCallId, errorText: error ?? output ?? 'It failed' };
    else if (output !== undefined && this.shown.has(toolCallId))
      yield { type: 'tool-output-available', toolCallId, output: parse(output), preliminary: true };
  }

  private *writeClientCall({
    toolCallId: eventId,
    toolName,
    args,
  }: ClientToolCall): Generator<Chunk> {
    this.held.delete(eventId);
    yield* this.close();
    if (!this.shown.has(eventId)) yield* this.show({ eventId, toolName, args }, 'client');
  }

  private *writeApproval(request: ApprovalRequestEvent): Generator<Chunk> {
    const { approvalId, toolCallId, toolName, args, expiresAt } = request;
    yield* this.close();
    this.held.delete(toolCallId);
    if (!this.shown.has(toolCallId)) yield* this.show({ eventId: toolCallId, toolName, args });
    yield { type: 'tool-approval-request', approvalId, toolCallId };
    const data = { approvalId, expiresAt, url: this.deps.pageUrl };
    yield { type: 'data-approval', id: approvalId, data };
  }

  private *showHeld(): Generator<Chunk> {
    for (const call of this.held.values()) yield* this.show(call);
    this.held.clear();
  }

  /** A client runs only calls that are not executed by the provider. */
  private *show(
    { eventId: toolCallId, toolName, args }: CallFacts,
    runner?: 'client',
  ): Generator<Chunk> {
    this.shown.add(toolCallId);
    this.held.delete(toolCallId);
    const marks = runner === 'client' ? {} : { providerExecuted: true, dynamic: true };
    yield { type: 'tool-input-available', toolCallId, toolName, input: args, ...marks };
  }

  private toSource({ title, url, fileId, position }: Citation): Chunk {
    this.parts += 1;
    const sourceId = fileId ?? `source-${this.parts}`;
    if (url !== undefined) return { type: 'source-url', sourceId, url, title };
    const place = position === undefined ? title : `${title}, ${position}`;
    return { type: 'source-document', sourceId, mediaType: 'text/plain', title: place };
  }
}

/** By the codes of the host's warnings. */
const TRUNCATIONS: ReadonlyMap<string, string> = new Map([
  ['answer_cut', 'length'],
  ['answer_filtered', 'content-filter'],
]);

/** Undefined if the answer has ended by itself. */
function toFinishReason(
  status: DoneFrame['status'],
  pending: readonly OpenInterrupt[],
): string | undefined {
  if (pending.length > 0) return 'tool-calls';
  return status === 'finished' ? undefined : 'other';
}

/** Results are JSON. */
function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
