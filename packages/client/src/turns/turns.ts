import type { CurrentRun, Reply, ReplyPart, Run, TurnAborted } from '@sibyl/protocol';
import { type CallHandler, handleCalls } from '../browser-tools/tool-calls.js';
import type { ToolRegistry } from '../browser-tools/tool-registry.js';
import type { SessionSockets } from '../events/session-sockets.js';
import type { HttpClient, HttpRequest } from '../http/http-client.js';
import type { MessageToSend, RequestOptions } from '../oracle-client.js';
import { RetryPolicy } from './retry-policy.js';
import { followRun, type OpenStream, type StreamOptions } from './run-stream.js';

interface TurnsDeps {
  readonly http: HttpClient;
  readonly functions: ToolRegistry;
  readonly sockets: SessionSockets;
}

interface TurnIds {
  readonly sessionId: string;
  readonly requestId: string;
}

/** Sends messages and reads runs; answers what they call in the page. */
export class Turns {
  private readonly parts: TurnsDeps;

  constructor(parts: TurnsDeps) {
    this.parts = parts;
  }

  async *stream(
    sessionId: string,
    message: MessageToSend,
    options?: StreamOptions,
  ): AsyncGenerator<ReplyPart, void> {
    const { place, request } = this.prepare(sessionId, message, { stream: true });
    const open: OpenStream = ({ runId, after }, signal) =>
      this.parts.http.request(
        runId ? buildJoinRequest(runId, after, signal) : { ...request, signal },
      );
    const attendance = this.attend(place);
    try {
      await attendance?.ready();
      for await (const part of followRun(open, { runId: undefined, after: 0 }, options)) {
        attendance?.observe(part);
        yield part;
      }
    } finally {
      attendance?.close();
    }
  }

  async send(sessionId: string, message: MessageToSend, options: RequestOptions): Promise<Reply> {
    const { place, request } = this.prepare(sessionId, message, {});
    const attendance = this.attend(place);
    const retries = new RetryPolicy(options);
    try {
      await attendance?.ready();
      for (;;) {
        try {
          return await this.parts.http.requestJson<Reply>({ ...request, ...options });
        } catch (error) {
          // Sent again, it finds the turn it started by its key.
          await retries.waitOrThrow(error);
        }
      }
    } finally {
      attendance?.close();
    }
  }

  async *join(runId: string, after: number, options?: StreamOptions) {
    const open: OpenStream = (position, signal) =>
      this.parts.http.request(buildJoinRequest(runId, position.after, signal));
    let attendance: CallHandler | undefined;
    try {
      for await (const part of followRun(open, { runId, after }, options)) {
        attendance ??= this.attend(readTurnIds(part));
        attendance?.observe(part);
        yield part;
      }
    } finally {
      attendance?.close();
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
    return (await this.parts.http.requestJson<CurrentRun>({ path, signal })).run;
  }

  async abort(sessionId: string): Promise<boolean> {
    const request = { method: 'POST', path: '/messages/abort', body: { sessionId } } as const;
    return (await this.parts.http.requestJson<TurnAborted>(request)).success;
  }

  private prepare(sessionId: string, message: MessageToSend, more: object) {
    const given = typeof message === 'string' ? { message } : message;
    const { requestId = crypto.randomUUID() } = given;
    const request: HttpRequest = {
      method: 'POST',
      path: `/messages/${encodeURIComponent(sessionId)}`,
      body: { ...this.parts.functions.declare(), ...given, ...more, requestId },
      headers: { 'idempotency-key': requestId },
    };
    return { place: { sessionId, requestId }, request };
  }

  /** Only pages that offer something load and open a socket for it. */
  private attend(place: TurnIds | undefined): CallHandler | undefined {
    const { functions, sockets } = this.parts;
    if (!place || !functions.isInUse) return undefined;
    const { sessionId, requestId } = place;
    return handleCalls(requestId, { ...sockets.openWithCalls(sessionId), functions });
  }
}

const buildJoinRequest = (runId: string, after: number, signal: AbortSignal): HttpRequest => ({
  path: `/runs/${encodeURIComponent(runId)}`,
  query: { after },
  signal,
});

/** Where a part belongs, for those parts that say so. */
function readTurnIds({ data }: ReplyPart): TurnIds | undefined {
  return 'sessionId' in data && 'requestId' in data ? data : undefined;
}
