import { OracleError, type Reply } from '@sibyl/protocol';
import { abortableIterable } from '@sibyl/server-kit';
import type { Response } from 'express';
import type { Logger } from 'pino';
import type { Caller } from '../auth/caller.js';
import { startTurnSpan } from '../observability/spans.js';
import type { AnswerDetailsStore } from '../store/answer-details.js';
import type { Message, MessageStore } from '../store/message-store.js';
import type { Session } from '../store/session-store.js';
import { toMessageViews } from '../turns/message-parts.js';
import type { RunReader } from '../turns/run-reader.js';
import { toUsageField } from '../turns/run-recorder.js';
import type { TurnAccess } from '../turns/turn-access.js';
import { type BytesAnswer, createCloseSignal, sendBytes, sendList, sendSse } from './responses.js';

interface ReplySenderDeps {
  readonly reader: RunReader;
  readonly access: Pick<TurnAccess, 'limit'>;
  readonly messages: MessageStore;
  readonly details: AnswerDetailsStore;
  readonly slots: StreamSlots;
  readonly streamStallMs: number;
  readonly logger: Logger;
}

/** Errors with a code are expected, such as that another host continues the run. */
function logStreamError(logger: Logger, err: unknown, details: object): void {
  if (err instanceof OracleError)
    logger.info({ ...details, code: err.code }, 'a stream ended early; its client can reconnect');
  else logger.error({ ...details, err }, 'stream failed');
}

/** Sends the answer of a run as a stream or as a whole. */
export class ReplySender {
  constructor(private readonly deps: ReplySenderDeps) {}

  /** Requests that wait for or stream an answer. */
  get streamCount(): number {
    return this.deps.slots.size;
  }

  /** Runs a task in one of the user's slots; throws before it begins if all are taken. */
  async withSlot(owner: string, work: () => Promise<void>): Promise<void> {
    const release = this.deps.slots.take(owner);
    try {
      await work();
    } finally {
      release();
    }
  }

  /** Sends the frames of a run of the caller after a number; ends early if the caller loses access. */
  async sendStream(
    caller: Caller,
    { runId, after }: { readonly runId: string; readonly after: number },
    response: Response,
  ): Promise<void> {
    const { reader, access, streamStallMs, logger } = this.deps;
    const run = await reader.find({ owner: caller.did, runId });
    // So that the trace of the turn shows who read it and where.
    const span = startTurnSpan(run, { kind: 'read', name: run.runId });
    await sendSse(response, {
      runId: run.runId,
      stallMs: streamStallMs,
      frames: (gone) => reader.read(run, after, access.limit(caller, gone)),
      onError: (err) => logStreamError(logger, err, { runId: run.runId, did: run.owner }),
    });
    span?.end();
  }

  /** Sends events that are not those of a run; an event that is lost is not sent again. */
  async sendEvents(
    event: string,
    response: Response,
    read: (gone: AbortSignal) => AsyncIterable<readonly object[]>,
  ): Promise<void> {
    const { streamStallMs: stallMs, logger } = this.deps;
    const onError = (err: unknown) => logStreamError(logger, err, { event });
    await sendSse(response, { stallMs, onError, frames: (gone) => toFrames(event, read(gone)) });
  }

  /**
   * Waits for the end of the run; the answer of a canceled run is partial. Throws if there is no answer, unless the
   * user canceled the run, and if the caller loses access. Undefined as soon as the client has disconnected.
   */
  async waitForReply(
    caller: Caller,
    runId: string,
    response: Response,
  ): Promise<Reply | undefined> {
    const { reader, access } = this.deps;
    const run = await reader.find({ owner: caller.did, runId });
    const limit = access.limit(caller, createCloseSignal(response));
    const ended = await reader.outcome(run, limit);
    if (!ended && limit.reason instanceof OracleError) throw limit.reason;
    if (!ended) return undefined;
    const { status, messageId, text, usage, error, pending, ...outcome } = ended;
    if (error && text === '') throw error;
    const failure =
      status === 'failed' && error ? [{ code: error.code, message: error.message }] : [];
    const warnings = [...outcome.warnings, ...failure];
    const { sessionId, requestId } = run;
    return {
      message: { type: 'ai', content: text, id: messageId ?? '' },
      sessionId,
      requestId,
      status,
      ...(warnings.length > 0 && { warnings }),
      ...(pending && { pending: [...pending] }),
      ...toUsageField(usage),
    };
  }

  /** The body of a request that takes long; ends with an error if the caller loses access. */
  limitBody<T>(caller: Caller, response: Response, body: AsyncIterable<T>): AsyncIterable<T> {
    const limit = this.deps.access.limit(caller, createCloseSignal(response));
    const lost = new AbortController();
    // The body itself reports that the client has disconnected.
    const onEnd = () => limit.reason instanceof OracleError && lost.abort(limit.reason);
    limit.addEventListener('abort', onEnd, { once: true });
    return abortableIterable(body, lost.signal);
  }

  /** Sends bytes; disconnects if the caller loses access. */
  async sendBytes(
    caller: Caller,
    response: Response,
    answer: Omit<BytesAnswer, 'stallMs' | 'onError'>,
  ): Promise<void> {
    const { access, streamStallMs: stallMs, logger } = this.deps;
    const onError = (err: unknown) => logStreamError(logger, err, {});
    const ended = access.limit(caller, createCloseSignal(response));
    ended.addEventListener('abort', () => response.destroy(), { once: true });
    await sendBytes(response, { ...answer, stallMs, onError });
  }

  /** Sends the messages of the active path, oldest first, together with other fields. */
  async sendTranscript(
    { owner, sessionId, branch, isBranched }: Session,
    response: Response,
    fields: object = {},
  ): Promise<void> {
    const { messages, details, streamStallMs: stallMs, logger } = this.deps;
    const path = { owner, sessionId, branch, isBranched };
    const pages = toViews(messages.pages(path), details);
    const onError = (err: unknown) =>
      logger.error({ err, sessionId, did: owner }, 'list of messages failed');
    await sendList(response, { fields, name: 'messages', pages, stallMs, onError });
  }
}

async function* toFrames(event: string, batches: AsyncIterable<readonly object[]>) {
  let seq = 0;
  for await (const batch of batches)
    yield batch.map((data) => {
      seq += 1;
      return { seq, event, data: JSON.stringify(data) };
    });
}

async function* toViews(pages: AsyncIterable<readonly Message[]>, details: AnswerDetailsStore) {
  for await (const page of pages) yield toMessageViews(page, details);
}

/** Seconds after which an answer has probably ended. */
const RETRY_SECONDS = 5;

/** Limits the requests of each user that wait for or stream an answer, in all sessions. */
export class StreamSlots {
  private readonly maxPerUser: number;
  private readonly perUser = new Map<string, number>();
  private total = 0;

  constructor(maxPerUser: number) {
    this.maxPerUser = maxPerUser;
  }

  /** Of all users. */
  get size(): number {
    return this.total;
  }

  /** Takes a slot at once and returns the function that releases it; throws if the user has none left. */
  take(owner: string): () => void {
    const taken = this.perUser.get(owner) ?? 0;
    if (taken >= this.maxPerUser)
      throw new OracleError('too_many_streams', { retryAfterSeconds: RETRY_SECONDS });
    this.perUser.set(owner, taken + 1);
    this.total += 1;
    return () => this.release(owner);
  }

  private release(owner: string): void {
    this.total -= 1;
    const left = (this.perUser.get(owner) ?? 1) - 1;
    if (left > 0) this.perUser.set(owner, left);
    else this.perUser.delete(owner);
  }
}
