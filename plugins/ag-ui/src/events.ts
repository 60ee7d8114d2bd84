import {
  type AGUIEvent,
  EventType,
  type Interrupt,
  PROTOCOL_VERSION,
  type RunFinishedOutcome,
} from '@ag-ui/core';
import {
  type AnswerPart,
  type CallerTurns,
  findClientToolCall,
  type NumberedPart,
  type OpenInterrupt,
  type SurfaceRun,
} from '@sibyl/plugin-kit/surface';
import type { DoneFrame, ErrorFrame } from '@sibyl/protocol';
import { z } from 'zod';

export interface RunView {
  readonly turns: CallerTurns;
  readonly run: SurfaceRun;
  /** As the client calls them. */
  readonly threadId: string;
  readonly runId: string;
  /** Clients before 1.0 refuse outcomes and fields of outcomes that they do not know. */
  readonly isBefore1?: boolean;
  readonly pageUrl: string;
}

/** Events that a client must not receive have a number too, so that it is the same for every reader. */
export interface NumberedEvent {
  readonly number: number;
  readonly event: AGUIEvent;
}

/** The events of a run. They are the same whenever they are read, so that a client can continue after any of them. */
export async function* toEvents(
  view: RunView,
  parts: AsyncIterable<AnswerPart>,
): AsyncGenerator<NumberedEvent> {
  const mapping = new RunMapping(view);
  let number = 0;
  for await (const { part } of parts) {
    // After a crash: its client may have received events that were not stored, whose numbers are not used again.
    if (part.event === 'run') number = Math.max(number, part.seq - 1);
    const events =
      part.event === 'done'
        ? mapping.end(part.data, part.data.pending?.length ? await listAsked(view) : [])
        : mapping.map(part);
    for (const event of events) {
      number += 1;
      yield { number, event };
    }
  }
}

/** What a run waits for; once it has continued, what it waited for. */
export async function listAsked({
  turns,
  run,
}: Pick<RunView, 'turns' | 'run'>): Promise<readonly OpenInterrupt[]> {
  const asked = await turns.asked(run.runId);
  const open = new Set((await turns.pending(run.sessionId)).map(({ id }) => id));
  const left = asked.filter(({ id }) => open.has(id));
  return left.length > 0 ? left : asked;
}

/** A tool or action in a frame. */
interface CallFrame {
  readonly id: string;
  readonly toolName: string;
  readonly args: unknown;
  readonly status: string;
  readonly output?: string | undefined;
  readonly error?: string | undefined;
}

class RunMapping {
  private readonly started = new Set<string>();
  /** What is being streamed, and its id. */
  private open: { readonly type: 'text' | 'reasoning'; readonly id: string } | undefined;
  private attempt = 1;
  private segments = 0;
  private parentId: string | undefined;
  private failure: ErrorFrame | undefined;

  constructor(private readonly view: RunView) {}

  *map(part: NumberedPart): Generator<AGUIEvent> {
    switch (part.event) {
      case 'run':
        return yield* this.start(part.data.attempt);
      case 'message':
        return yield* this.addText(part.data.content);
      case 'reasoning':
        return yield* this.addReasoning(part.data.reasoning);
      case 'tool_call':
        return yield* this.addCall({ ...part.data, id: part.data.eventId });
      case 'action_call':
        return yield* this.addCall({ ...part.data, id: part.data.toolCallId });
      case 'error':
        this.failure = part.data;
        return;
      // The action or tool that it belongs to is an event already.
      case 'browser_tool_call':
        return;
      default:
        yield { type: EventType.CUSTOM, name: part.event, value: part.data };
    }
  }

  *end(done: DoneFrame, asked: readonly OpenInterrupt[]): Generator<AGUIEvent> {
    yield* this.close();
    const { status, usage } = done;
    const isWaiting = (done.pending ?? []).length > 0;
    if (status === 'failed' || (status === 'interrupted' && !isWaiting)) {
      const { error: message = NOT_COMPLETED, code, kind } = this.failure ?? {};
      return yield { type: EventType.RUN_ERROR, message, code: code ?? kind ?? status };
    }
    // Those whose input the user has edited are new.
    for (const question of asked) {
      const call = findClientToolCall(question);
      if (call) yield* this.addCall({ ...call, id: call.toolCallId, status: 'isRunning' });
    }
    const { threadId, runId } = this.view;
    const outcome = this.toOutcome(status, asked);
    const tokens = usage && {
      inputTokens: usage.inputTokens,
      outputTokens: usage.outputTokens,
      totalTokens: usage.inputTokens + usage.outputTokens,
      cachedInputTokens: usage.cachedTokens,
    };
    yield {
      type: EventType.RUN_FINISHED,
      threadId,
      runId,
      ...(outcome && { outcome }),
      ...(tokens && { usage: [tokens] }),
    };
  }

  private *start(attempt = 1): Generator<AGUIEvent> {
    // A run that another host continues announces that with a second frame.
    if (this.segments > 0) return;
    this.attempt = attempt;
    this.segments = 1;
    const { threadId, runId, run } = this.view;
    yield {
      type: EventType.RUN_STARTED,
      threadId,
      runId,
      protocolVersion: PROTOCOL_VERSION,
      metadata: { run: { runId: run.runId, sessionId: run.sessionId } },
    };
  }

  private *addText(text: string): Generator<AGUIEvent> {
    // The host separates the texts of a turn by empty lines; here they are messages.
    const delta = this.open?.type === 'text' ? text : text.replace(/^\n+/, '');
    if (!delta) return;
    if (this.open?.type !== 'text') {
      yield* this.close();
      const id = this.nextMessageId();
      this.open = { type: 'text', id };
      this.parentId = id;
      yield { type: EventType.TEXT_MESSAGE_START, messageId: id, role: 'assistant' };
    }
    yield { type: EventType.TEXT_MESSAGE_CONTENT, messageId: this.open.id, delta };
  }

  private *addReasoning(delta: string): Generator<AGUIEvent> {
    if (!delta) return;
    if (this.open?.type !== 'reasoning') {
      yield* this.close();
      const messageId = `${this.nextMessageId()}-reasoning`;
      this.open = { type: 'reasoning', id: messageId };
      yield { type: EventType.REASONING_START, messageId };
      yield { type: EventType.REASONING_MESSAGE_START, messageId, role: 'reasoning' };
    }
    yield { type: EventType.REASONING_MESSAGE_CONTENT, messageId: this.open.id, delta };
  }

  private *addCall(call: CallFrame): Generator<AGUIEvent> {
    yield* this.close();
    const { id: toolCallId, toolName: toolCallName, args, status } = call;
    if (!this.started.has(toolCallId)) {
      this.started.add(toolCallId);
      this.parentId ??= this.nextMessageId();
      const parentMessageId = this.parentId;
      yield { type: EventType.TOOL_CALL_START, toolCallId, toolCallName, parentMessageId };
      yield { type: EventType.TOOL_CALL_ARGS, toolCallId, delta: JSON.stringify(args) };
      yield { type: EventType.TOOL_CALL_END, toolCallId };
    }
    if (status === 'isRunning') return;
    // The next text is another message, after the result.
    this.parentId = undefined;
    const content = call.output ?? call.error ?? '';
    const messageId = `${toolCallId}-result`;
    yield { type: EventType.TOOL_CALL_RESULT, messageId, toolCallId, content };
  }

  /** The first message of a turn has the id that the host knows it by. */
  private nextMessageId(): string {
    const { messageId } = this.view.run;
    const n = this.segments;
    this.segments += 1;
    return this.attempt === 1 && n === 1 ? messageId : `${messageId}-${this.attempt}-${n}`;
  }

  private *close(): Generator<AGUIEvent> {
    if (!this.open) return;
    const { type, id: messageId } = this.open;
    this.open = undefined;
    if (type === 'text') return yield { type: EventType.TEXT_MESSAGE_END, messageId };
    yield { type: EventType.REASONING_MESSAGE_END, messageId };
    yield { type: EventType.REASONING_END, messageId };
  }

  /** Calls of the client's own tools end a run with success; questions interrupt it. */
  private toOutcome(
    status: DoneFrame['status'],
    asked: readonly OpenInterrupt[],
  ): RunFinishedOutcome | undefined {
    const { isBefore1 } = this.view;
    if (status === 'aborted') return isBefore1 ? undefined : { type: 'cancelled' };
    const interrupts = asked.flatMap((question) => this.toInterrupt(question));
    if (interrupts.length > 0) return { type: 'interrupt', interrupts };
    const pendingToolCallIds = asked.flatMap(
      (question) => findClientToolCall(question)?.toolCallId ?? [],
    );
    if (pendingToolCallIds.length === 0) return { type: 'success' };
    // To clients before 1.0, success means that nothing is left to do.
    return isBefore1 ? undefined : { type: 'success', pendingToolCallIds };
  }

  private toInterrupt(question: OpenInterrupt): Interrupt[] {
    const { id, kind, schema, data, expiresAt, isApproval } = question;
    if (kind === 'tool_call') return [];
    const { pageUrl } = this.view;
    const interrupt = {
      id,
      reason: isApproval ? 'approval' : kind,
      responseSchema: schema,
      expiresAt: new Date(expiresAt).toISOString(),
      metadata: { data, ...(isApproval && { url: pageUrl }) },
    };
    return [{ ...interrupt, message: isApproval ? describeApproval(pageUrl) : readMessage(data) }];
  }
}

const NOT_COMPLETED = 'The answer was not completed';

const describeApproval = (url: string) =>
  `This call needs your approval: open ${url} to approve it, or deny it here.`;

const Question = z.object({ message: z.string(), question: z.string() }).partial();

function readMessage(data: unknown): string {
  if (typeof data === 'string') return data;
  const { message, question } = Question.safeParse(data).data ?? {};
  return message ?? question ?? 'The oracle needs your answer.';
}
