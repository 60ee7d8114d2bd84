import type { ReplyPart } from '@sibyl/protocol';
import { OracleClientError } from '../errors.js';
import { RetryPolicy } from './retry-policy.js';
import { type SseEvent, SseParser } from './sse-parser.js';

/** Whether frames arrive, or the client is joining the run again. */
export type StreamState = 'live' | 'rejoining';

export interface StreamOptions {
  /** Stops reading; the turn goes on at the host. `abort` ends the turn itself. */
  readonly signal?: AbortSignal;
  readonly onState?: (state: StreamState) => void;
  /** How long to try to join again without success, in milliseconds; two minutes unless given. */
  readonly reconnectTimeoutMs?: number;
}

/** How far a run has been read. */
export interface Position {
  /** Undefined until the first frame of a new run has named it. */
  readonly runId: string | undefined;
  /** The number of the last frame seen. */
  readonly after: number;
}

/** Opens a run's stream after a position. */
export type OpenStream = (position: Position, signal: AbortSignal) => Promise<Response>;

/** Reads a run up to `done`, opening it again after every drop (contract B4). */
export async function* followRun(
  open: OpenStream,
  start: Position,
  options: StreamOptions = {},
): AsyncGenerator<ReplyPart, void> {
  const retries = new RetryPolicy(options);
  const tell = onlyChanges(options.onState);
  let position = start;
  // A run that is joined has begun, whatever happens to the first attempt.
  if (start.runId) retries.reset();
  const attempt = async function* (connection: StreamConnection) {
    const response = await open(position, connection.signal);
    tell('live');
    for await (const { seq, part } of readParts(response, connection)) {
      position = { runId: runIdOf(part) ?? position.runId, after: seq };
      retries.reset();
      yield part;
      if (part.event === 'done') return;
    }
    throw new OracleClientError('network_error', 'The stream ended before the turn did');
  };
  for (;;) {
    const connection = new StreamConnection(options.signal);
    try {
      return yield* attempt(connection);
    } catch (error) {
      tell('rejoining');
      await retries.waitOrThrow(error);
    } finally {
      connection.close();
    }
  }
}

async function* readParts(
  { body }: Response,
  connection: StreamConnection,
): AsyncGenerator<NumberedPart, void> {
  if (!body) return;
  try {
    yield* readFrames(body, () => connection.resetTimer());
  } catch (cause) {
    if (cause instanceof OracleClientError) throw cause;
    throw new OracleClientError('network_error', 'The stream broke', { cause });
  }
}

const runIdOf = ({ event, data }: ReplyPart): string | undefined =>
  event === 'run' ? data.runId : undefined;

/** Tells a state only when it is another than before. */
function onlyChanges(onState: StreamOptions['onState']): (state: StreamState) => void {
  let told: StreamState | undefined;
  return (state) => {
    if (state === told) return;
    told = state;
    onState?.(state);
  };
}

/** Three heartbeats (contract B4): a stream that is silent for longer has broken without saying so. */
const SILENCE_TIMEOUT_MS = 45_000;

/** One attempt to read a stream: ends with the caller's signal, or when nothing can come any more. */
class StreamConnection {
  private readonly broken = new AbortController();
  readonly signal: AbortSignal;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(signal: AbortSignal | undefined) {
    this.signal = signal ? AbortSignal.any([signal, this.broken.signal]) : this.broken.signal;
    // Browsers know of a lost network long before the connection does.
    globalThis.addEventListener?.('offline', this.goOffline);
    this.resetTimer();
  }

  /** To be called on every sign of life. */
  resetTimer(): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.break('The stream fell silent'), SILENCE_TIMEOUT_MS);
  }

  close(): void {
    clearTimeout(this.timer);
    globalThis.removeEventListener?.('offline', this.goOffline);
    this.broken.abort();
  }

  private readonly goOffline = () => this.break('The network is gone');

  private break(why: string): void {
    this.broken.abort(new OracleClientError('network_error', why));
  }
}

/** A part of a reply and its number within the run. */
interface NumberedPart {
  readonly seq: number;
  readonly part: ReplyPart;
}

/** Reads the frames of a stream as they come; `onSign` is called on every sign of life. */
export async function* readFrames(
  body: ReadableStream<Uint8Array>,
  onSign: () => void,
): AsyncGenerator<NumberedPart, void> {
  const decoder = new TextDecoder();
  const parser = new SseParser();
  const reader = body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      onSign();
      for (const event of parser.push(decoder.decode(value, { stream: true }))) {
        yield parseFrame(event);
      }
    }
  } finally {
    // A body that has failed already cannot be cancelled, and need not be.
    await reader.cancel().catch(() => undefined);
  }
}

function parseFrame({ event, id, data }: SseEvent): NumberedPart {
  const seq = Number(id);
  try {
    const part = { event, data: JSON.parse(data) } as ReplyPart;
    if (seq > 0) return { seq, part };
  } catch {
    // Told below.
  }
  throw new OracleClientError('invalid_reply', 'The stream holds something that is no frame');
}
