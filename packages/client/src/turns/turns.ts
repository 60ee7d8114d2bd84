import type { CurrentRun, Reply, ReplyPart, Run, SendMessage, TurnAborted } from '@sibyl/protocol';
import { type CallHandler, handleCalls } from '../browser-tools/tool-calls.js';
import type { ToolRegistry } from '../browser-tools/tool-registry.js';
import type { SessionSockets } from '../events/session-sockets.js';
import type { HttpClient, HttpRequest, RequestOptions } from '../http/http-client.js';
import { RetryPolicy } from './retry-policy.js';
import { followRun, type OpenStream, type StreamOptions } from './run-stream.js';

type MessageOptions = Partial<Omit<SendMessage, 'message' | 'regenerate' | 'stream'>>;

/**
 * A message to send: its text, or an object with attachments, model and other fields. With the `parentId` of an earlier
 * message it replaces that one on a new path; `regenerate` asks for another answer instead.
 */
export type MessageToSend =
  | string
  | ({ readonly message: string } & MessageOptions)
  | ({ readonly regenerate: string; readonly message?: never } & MessageOptions);

interface TurnsDeps {
  readonly http: HttpClient;
  readonly tools: ToolRegistry;
  readonly sockets: SessionSockets;
}

interface TurnIds {
  readonly sessionId: string;
  readonly requestId: string;
}

/** Sends messages, reads runs, and runs the page's tools that they call. */
export class Turns {
  private readonly deps: TurnsDeps;

  constructor(deps: TurnsDeps) {
    this.deps = deps;
  }

  async *stream(
    sessionId: string,
    message: MessageToSend,
    options?: StreamOptions,
  ): AsyncGenerator<ReplyPart, void> {
    const { ids, request } = this.prepare(sessionId, message, { stream: true });
    const open: OpenStream = ({ runId, after }, signal) =>
      this.deps.http.request(
        runId ? buildJoinRequest(runId, after, signal) : { ...request, signal },
      );
    const calls = this.handleCalls(ids);
    try {
      await calls?.ready(options?.signal);
      for await (const part of followRun(open, { runId: undefined, after: 0 }, options)) {
        calls?.observe(part);
        yield part;
      }
    } finally {
      calls?.close();
    }
  }

  async send(sessionId: string, message: MessageToSend, options: RequestOptions): Promise<Reply> {
    const { ids, request } = this.prepare(sessionId, message, {});
    const calls = this.handleCalls(ids);
    const retries = new RetryPolicy(options);
    try {
      await calls?.ready(options.signal);
      for (;;) {
        try {
          return await this.deps.http.requestJson<Reply>({ ...request, ...options });
        } catch (error) {
          // The idempotency key makes a repeated request find the turn of the first.
          await retries.waitOrThrow(error);
        }
      }
    } finally {
      calls?.close();
    }
  }

  async *join(runId: string, after: number, options?: StreamOptions) {
    const open: OpenStream = (position, signal) =>
      this.deps.http.request(buildJoinRequest(runId, position.after, signal));
    let calls: CallHandler | undefined;
    try {
      for await (const part of followRun(open, { runId, after }, options)) {
        calls ??= this.handleCalls(readTurnIds(part));
        calls?.observe(part);
        yield part;
      }
    } finally {
      calls?.close();
    }
  }

  async *resume(sessionId: string, options: StreamOptions = {}): AsyncGenerator<ReplyPart, void> {
    const { signal } = options;
    const run = await this.current(sessionId, { ...(signal && { signal }) });
    const isActive = run?.status === 'queued' || run?.status === 'running';
    if (isActive) yield* this.join(run.runId, 0, options);
  }

  async current(sessionId: string, { signal }: RequestOptions): Promise<Run | null> {
    const path = `/sessions/${encodeURIComponent(sessionId)}/run`;
    return (await this.deps.http.requestJson<CurrentRun>({ path, signal })).run;
  }

  async abort(sessionId: string): Promise<boolean> {
    const request = { method: 'POST', path: '/messages/abort', body: { sessionId } } as const;
    return (await this.deps.http.requestJson<TurnAborted>(request)).success;
  }

  private prepare(sessionId: string, message: MessageToSend, more: object) {
    const given = typeof message === 'string' ? { message } : message;
    const { requestId = crypto.randomUUID() } = given;
    const request: HttpRequest = {
      method: 'POST',
      path: `/messages/${encodeURIComponent(sessionId)}`,
      body: { ...this.deps.tools.toDeclarations(), ...given, ...more, requestId },
      headers: { 'idempotency-key': requestId },
    };
    return { ids: { sessionId, requestId }, request };
  }

  /** Only pages with tools load and open a socket. */
  private handleCalls(ids: TurnIds | undefined): CallHandler | undefined {
    const { tools, sockets } = this.deps;
    if (!ids || !tools.isInUse) return undefined;
    const { sessionId, requestId } = ids;
    return handleCalls(requestId, { ...sockets.openWithCalls(sessionId), tools });
  }
}

const buildJoinRequest = (runId: string, after: number, signal: AbortSignal): HttpRequest => ({
  path: `/runs/${encodeURIComponent(runId)}`,
  query: { after },
  signal,
});

function readTurnIds({ data }: ReplyPart): TurnIds | undefined {
  return 'sessionId' in data && 'requestId' in data ? data : undefined;
}
