import type { CurrentRun, Reply, ReplyPart, Run, TurnAborted } from '@sibyl/protocol';
import { type Attendance, attendTurn } from '../browser-tools/tool-calls.js';
import type { PageFunctions } from '../browser-tools/tool-registry.js';
import type { SocketHub } from '../events/session-sockets.js';
import type { Http, HttpRequest } from '../http/http-client.js';
import type { MessageToSend, RequestOptions } from '../oracle-client.js';
import { Retries } from './retry-policy.js';
import { followRun, type OpenStream, type StreamOptions } from './run-stream.js';

interface TurnsParts {
  readonly http: Http;
  readonly functions: PageFunctions;
  readonly sockets: SocketHub;
}

interface Place {
  readonly sessionId: string;
  readonly requestId: string;
}

/** Sends messages and reads runs; answers what they call in the page. */
export class Turns {
  readonly #parts: TurnsParts;

  constructor(parts: TurnsParts) {
    this.#parts = parts;
  }

  async *stream(
    sessionId: string,
    message: MessageToSend,
    options?: StreamOptions,
  ): AsyncGenerator<ReplyPart, void> {
    const { place, request } = this.#prepare(sessionId, message, { stream: true });
    const open: OpenStream = ({ runId, after }, signal) =>
      this.#parts.http.open(runId ? joining(runId, after, signal) : { ...request, signal });
    const attendance = this.#attend(place);
    try {
      await attendance?.ready();
      for await (const part of followRun(open, { runId: undefined, after: 0 }, options)) {
        attendance?.see(part);
        yield part;
      }
    } finally {
      attendance?.end();
    }
  }

  async send(sessionId: string, message: MessageToSend, options: RequestOptions): Promise<Reply> {
    const { place, request } = this.#prepare(sessionId, message, {});
    const attendance = this.#attend(place);
    const retries = new Retries(options);
    try {
      await attendance?.ready();
      for (;;) {
        try {
          return await this.#parts.http.json<Reply>({ ...request, ...options });
        } catch (error) {
          // Sent again, it finds the turn it started by its key.
          await retries.afterFailure(error);
        }
      }
    } finally {
      attendance?.end();
    }
  }

  async *join(runId: string, after: number, options?: StreamOptions) {
    const open: OpenStream = (position, signal) =>
      this.#parts.http.open(joining(runId, position.after, signal));
    let attendance: Attendance | undefined;
    try {
      for await (const part of followRun(open, { runId, after }, options)) {
        attendance ??= this.#attend(placeOf(part));
        attendance?.see(part);
        yield part;
      }
    } finally {
      attendance?.end();
    }
  }

  async *resume(sessionId: string, options: StreamOptions = {}): AsyncGenerator<ReplyPart, void> {
    const { signal } = options;
    const run = await this.current(sessionId, { ...(signal && { signal }) });
    const isAtWork = run?.status === 'queued' || run?.status === 'running';
    if (isAtWork) yield* this.join(run.runId, 0, options);
  }

  async current(sessionId: string, { signal }: RequestOptions): Promise<Run | null> {
    const path = `/sessions/${encodeURIComponent(sessionId)}/run`;
    return (await this.#parts.http.json<CurrentRun>({ path, signal })).run;
  }

  async abort(sessionId: string): Promise<boolean> {
    const request = { method: 'POST', path: '/messages/abort', body: { sessionId } } as const;
    return (await this.#parts.http.json<TurnAborted>(request)).success;
  }

  #prepare(sessionId: string, message: MessageToSend, more: object) {
    const given = typeof message === 'string' ? { message } : message;
    const { requestId = crypto.randomUUID() } = given;
    const request: HttpRequest = {
      method: 'POST',
      path: `/messages/${encodeURIComponent(sessionId)}`,
      body: { ...this.#parts.functions.entries(), ...given, ...more, requestId },
      headers: { 'idempotency-key': requestId },
    };
    return { place: { sessionId, requestId }, request };
  }

  /** Only pages that offer something load and open a socket for it. */
  #attend(place: Place | undefined): Attendance | undefined {
    const { functions, sockets } = this.#parts;
    if (!place || !functions.isInUse) return undefined;
    const { sessionId, requestId } = place;
    return attendTurn(requestId, { ...sockets.openWithCalls(sessionId), functions });
  }
}

const joining = (runId: string, after: number, signal: AbortSignal): HttpRequest => ({
  path: `/runs/${encodeURIComponent(runId)}`,
  query: { after },
  signal,
});

/** Where a part belongs, for those parts that say so. */
function placeOf({ data }: ReplyPart): Place | undefined {
  return 'sessionId' in data && 'requestId' in data ? data : undefined;
}
