import type { ReplyPart, SessionsChangedEvent } from '@sibyl/protocol';
import { type SseEvent, SseParser } from '@sibyl/protocol/sse-parser';
import { OracleClientError } from '../errors.js';
import type { HttpClient } from '../http/http-client.js';
import { RetryPolicy } from './retry-policy.js';

/** Whether the stream is connected or reconnecting. */
export type StreamState = 'live' | 'rejoining';

export interface StreamOptions {
  /** Stops reading; the turn continues on the server. `abort` cancels the turn itself. */
  readonly signal?: AbortSignal;
  readonly onState?: (state: StreamState) => void;
  /** How long to try to reconnect, in milliseconds; defaults to two minutes. */
  readonly reconnectTimeoutMs?: number;
}

/** How far a run has been read. */
export interface Position {
  /** Undefined until the first frame of a new run. */
  readonly runId: string | undefined;
  /** The number of the last received frame. */
  readonly after: number;
}

/** Opens a run's stream after a position. */
export type OpenStream = (position: Position, signal: AbortSignal) => Promise<Response>;

/** Reads a run up to `done`; reconnects after every drop. */
export async function* followRun(
  open: OpenStream,
  start: Position,
  options: StreamOptions = {},
): AsyncGenerator<ReplyPart, void> {
  const retries = new RetryPolicy(options);
  const setState = onlyChanges(options.onState);
  let position = start;
  // A run that is joined has already started.
  if (start.runId) retries.reset();
  const attempt = async function* (connection: StreamConnection) {
    const response = await open(position, connection.signal);
    setState('live');
    for await (const { seq, part } of readParts(response, connection)) {
      position = { runId: part.event === 'run' ? part.data.runId : position.runId, after: seq };
      retries.reset();
      yield part;
      if (part.event === 'done') return;
    }
    throw new OracleClientError(
      'network_error',
      'The connection closed before the answer was complete',
    );
  };
  for (;;) {
    const connection = new StreamConnection(options.signal);
    try {
      return yield* attempt(connection);
    } catch (error) {
      setState('rejoining');
      await retries.waitOrThrow(error);
    } finally {
      connection.close();
    }
  }
}

/** Reads changes of the user's sessions until the signal is aborted; reconnects after every drop. */
export async function* watchSessions(
  http: Pick<HttpClient, 'request'>,
  { signal }: { readonly signal?: AbortSignal } = {},
): AsyncGenerator<SessionsChangedEvent, void> {
  const retries = new RetryPolicy({ signal, reconnectTimeoutMs: Number.POSITIVE_INFINITY });
  while (!signal?.aborted) {
    const connection = new StreamConnection(signal);
    try {
      const response = await http.request({ path: '/sessions/events', signal: connection.signal });
      retries.reset();
      // What happened before is not sent.
      yield { change: 'reload', timestamp: new Date().toISOString() };
      for await (const { part } of readParts(response, connection))
        yield part.data as unknown as SessionsChangedEvent;
      // The token has expired, or the host is stopping.
      throw new OracleClientError('network_error', 'The connection closed');
    } catch (error) {
      await retries.waitOrThrow(error).catch((reason) => {
        if (!signal?.aborted) throw reason;
      });
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
    throw new OracleClientError('network_error', 'The connection broke', { cause });
  }
}

/** Calls `onState` only when the state changes. */
function onlyChanges(onState: StreamOptions['onState']): (state: StreamState) => void {
  let current: StreamState | undefined;
  return (state) => {
    if (state === current) return;
    current = state;
    onState?.(state);
  };
}

/** Three heartbeats: a stream that is silent for longer is broken. */
const SILENCE_TIMEOUT_MS = 45_000;

/** One attempt to read a stream; aborts with the caller's signal, when offline, or after a silence. */
class StreamConnection {
  private readonly broken = new AbortController();
  readonly signal: AbortSignal;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(signal: AbortSignal | undefined) {
    this.signal = signal ? joinSignals(signal, this.broken.signal) : this.broken.signal;
    // Browsers notice a lost network long before the connection times out.
    globalThis.addEventListener?.('offline', this.goOffline);
    this.resetTimer();
  }

  /** Call whenever data arrives. */
  resetTimer(): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.fail('The connection timed out'), SILENCE_TIMEOUT_MS);
  }

  close(): void {
    clearTimeout(this.timer);
    globalThis.removeEventListener?.('offline', this.goOffline);
    this.broken.abort();
  }

  private readonly goOffline = () => this.fail('This device is offline');

  private fail(message: string): void {
    this.broken.abort(new OracleClientError('network_error', message));
  }
}

/** A part of a reply with its number within the run. */
interface NumberedPart {
  readonly seq: number;
  readonly part: ReplyPart;
}

/** Reads the frames of a stream; calls `onData` whenever data arrives, heartbeats included. */
export async function* readFrames(
  body: ReadableStream<Uint8Array>,
  onData: () => void,
): AsyncGenerator<NumberedPart, void> {
  const decoder = new TextDecoder();
  const parser = new SseParser();
  const reader = body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      onData();
      for (const event of parseEvents(parser, decoder.decode(value, { stream: true }))) {
        yield parseFrame(event);
      }
    }
  } finally {
    // Cancelling a body that has already failed rejects.
    await reader.cancel().catch(() => undefined);
  }
}

/** Not a network error: the oracle would send the same frame again. */
function parseEvents(parser: SseParser, text: string): SseEvent[] {
  try {
    return parser.push(text);
  } catch (cause) {
    throw new OracleClientError('invalid_reply', 'The oracle sent a frame that is too large', {
      cause,
    });
  }
}

function parseFrame({ event, id, data }: SseEvent): NumberedPart {
  const seq = Number(id);
  try {
    const part = { event, data: JSON.parse(data) } as ReplyPart;
    if (seq > 0) return { seq, part };
  } catch {
    // Reported below.
  }
  throw new OracleClientError('invalid_reply', 'The oracle sent an invalid stream frame');
}

/** Aborts with the first of the signals; Safari has `AbortSignal.any` since 17.4. */
export function joinSignals(...signals: AbortSignal[]): AbortSignal {
  if ('any' in AbortSignal) return AbortSignal.any(signals);
  const joined = new AbortController();
  for (const each of signals) {
    const abort = () => joined.abort(each.reason);
    if (each.aborted) abort();
    each.addEventListener('abort', abort, { signal: joined.signal });
  }
  return joined.signal;
}
