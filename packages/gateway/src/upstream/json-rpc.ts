import { type ClientRequest, Agent as HttpAgent, type IncomingMessage, request } from 'node:http';
import { Agent as HttpsAgent, request as requestTls } from 'node:https';
import type { CancelSignal, ReplyMemory } from '@sibyl/grpc-client';
import { Backoff, GrpcCode, GrpcError } from '@sibyl/grpc-client';

const IDLE_SOCKETS = 32;
/** The most calls that a node accepts in one request by default. */
const MAX_BATCH = 10;
/** Longer replies are parsed one at a time: together they would hold all other queries. */
const MAX_BATCH_REPLY_BYTES = 8 * 1024 * 1024;

export interface JsonRpcOptions {
  /** An `http:` or `https:` address. */
  readonly url: URL;
  readonly authorization: string | undefined;
  readonly ca?: readonly string[] | undefined;
  readonly memory: ReplyMemory;
}

export interface JsonRpcCall {
  readonly timeoutMs: number;
  readonly maxReplyBytes: number;
  readonly signal?: CancelSignal | undefined;
}

/** Calls the JSON-RPC interface of a CometBFT node over keep-alive connections; calls of one event loop turn share a request. */
export class JsonRpc {
  private readonly agent: HttpAgent | HttpsAgent;
  private readonly backoff = new Backoff();
  private queue: PendingCall[] = [];
  private maxBatch = MAX_BATCH;

  constructor(private readonly options: JsonRpcOptions) {
    const kept = { keepAlive: true, maxFreeSockets: IDLE_SOCKETS };
    this.agent =
      options.url.protocol === 'https:'
        ? new HttpsAgent({ ...kept, ...(options.ca && { ca: [...options.ca] }) })
        : new HttpAgent(kept);
  }

  /** The `result` of a call. */
  call(method: string, params: object, call: JsonRpcCall): Promise<unknown> {
    const error = this.backoff.lastError();
    if (error) return Promise.reject(error);
    return new Promise((resolve, reject) => {
      if (this.queue.length === 0) setImmediate(() => this.flush());
      this.queue.push(new PendingCall({ method, params }, call, { resolve, reject }));
    });
  }

  close(): void {
    this.agent.destroy();
  }

  private flush(): void {
    const calls = this.queue.filter(({ isSettled }) => !isSettled);
    this.queue = [];
    for (let at = 0; at < calls.length; at += this.maxBatch) {
      void this.send(calls.slice(at, at + this.maxBatch));
    }
  }

  private async send(calls: readonly PendingCall[]): Promise<void> {
    const posted = this.post(formatBody(calls));
    let waiting = calls.length;
    for (const call of calls) {
      call.onSettled = () => {
        waiting -= 1;
        if (waiting === 0) posted.sent.destroy();
      };
    }
    try {
      const response = await posted.response;
      const sum = calls.reduce((sum, { limits }) => sum + limits.maxReplyBytes, 0);
      const maxBytes = calls.length === 1 ? sum : Math.min(sum, MAX_BATCH_REPLY_BYTES);
      const text = await readBody(response, maxBytes, this.options.memory);
      this.backoff.succeeded();
      this.deliver(calls, text, response.statusCode ?? 0);
    } catch (cause) {
      const error = this.toGrpcError(cause);
      // Together they may exceed a limit that each of them keeps.
      if (error.code === GrpcCode.resourceExhausted && calls.length > 1) this.sendEach(calls);
      else for (const call of calls) call.fail(error);
    }
  }

  private deliver(calls: readonly PendingCall[], text: string, status: number): void {
    const answer = parse(text);
    const [only, ...others] = calls;
    if (only && others.length === 0) only.settle(answer as RpcResponse, status);
    else if (Array.isArray(answer)) {
      const byId = new Map((answer as RpcResponse[]).map((one) => [one?.id, one]));
      for (const [id, call] of calls.entries()) call.settle(byId.get(id), status);
    } else if (!answer && isPassing(status)) {
      for (const call of calls) call.settle(undefined, status);
    } else {
      // Some nodes and proxies do not accept several calls in one request.
      this.maxBatch = 1;
      this.sendEach(calls);
    }
  }

  private sendEach(calls: readonly PendingCall[]): void {
    for (const call of calls) if (!call.isSettled) void this.send([call]);
  }

  private post(body: string): { sent: ClientRequest; response: Promise<IncomingMessage> } {
    const { url, authorization } = this.options;
    const headers = {
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(body),
      ...(authorization && { authorization }),
    };
    const options = { method: 'POST', agent: this.agent, headers };
    const sent: ClientRequest =
      url.protocol === 'https:' ? requestTls(url, options) : request(url, options);
    const response = new Promise<IncomingMessage>((resolve, reject) => {
      sent.once('response', resolve).on('error', reject).end(body);
    });
    return { sent, response };
  }

  private toGrpcError(cause: unknown): GrpcError {
    if (cause instanceof GrpcError) return cause;
    const { code, message } = cause as NodeJS.ErrnoException;
    const text = 'the node cannot be reached';
    const detail = `${text}: ${message}`;
    const error = new GrpcError(GrpcCode.unavailable, text, 'transport', detail);
    // The node may have closed an idle connection, so the next attempt can succeed.
    return code === 'ECONNRESET' || code === 'EPIPE' ? error : this.backoff.failed(error);
  }
}

/** Whether a proxy cannot reach the node right now, or is busy. */
const isPassing = (status: number) => status === 429 || status > 500;

function formatBody(calls: readonly PendingCall[]): string {
  const bodies = calls.map(({ request: { method, params } }, id) => {
    return { jsonrpc: '2.0', id, method, params };
  });
  return JSON.stringify(bodies.length === 1 ? bodies[0] : bodies);
}

interface Outcome {
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: GrpcError) => void;
}

/** One call, with its own time limit, in a request that may carry others. */
class PendingCall {
  isSettled = false;
  /** Called once, when no caller waits for the outcome any longer. */
  onSettled: () => void = () => {};
  private readonly timer: NodeJS.Timeout;
  private readonly cancel = () =>
    this.fail(new GrpcError(GrpcCode.cancelled, 'the caller canceled the call'));

  constructor(
    readonly request: { readonly method: string; readonly params: object },
    readonly limits: JsonRpcCall,
    private readonly outcome: Outcome,
  ) {
    const { timeoutMs, signal } = limits;
    this.timer = setTimeout(() => this.fail(deadlineExceeded(timeoutMs)), timeoutMs);
    signal?.addEventListener('abort', this.cancel);
  }

  /** A node replies 500 to some errors, with the reason in the body. */
  settle(answer: RpcResponse | undefined, status: number): void {
    if (this.isSettled) return;
    if (answer?.result !== undefined && !answer.error && status === 200) {
      this.finish();
      this.outcome.resolve(answer.result);
      return;
    }
    const code = status === 200 ? GrpcCode.internal : GrpcCode.unavailable;
    const other = new GrpcError(code, `not a JSON-RPC response: HTTP ${status}`, 'transport');
    this.fail(answer?.error ? toRpcError(answer.error) : other);
  }

  fail(error: GrpcError): void {
    if (this.isSettled) return;
    this.finish();
    this.outcome.reject(error);
    this.onSettled();
  }

  private finish(): void {
    this.isSettled = true;
    clearTimeout(this.timer);
    this.limits.signal?.removeEventListener('abort', this.cancel);
  }
}

function deadlineExceeded(timeoutMs: number): GrpcError {
  const text = `the node did not answer within ${timeoutMs} ms`;
  return new GrpcError(GrpcCode.deadlineExceeded, text, 'transport');
}

interface RpcResponse {
  readonly id?: unknown;
  readonly result?: unknown;
  readonly error?: { readonly code?: number; readonly message?: string; readonly data?: string };
}

function parse(text: string): object | undefined {
  try {
    const answer: unknown = JSON.parse(text);
    return typeof answer === 'object' && answer !== null ? answer : undefined;
  } catch {
    return undefined;
  }
}

const METHOD_NOT_FOUND = -32601;
const INVALID_PARAMS = -32602;

function toRpcError({ code, message = '', data }: NonNullable<RpcResponse['error']>): GrpcError {
  const text = [message, data].filter((part) => typeof part === 'string' && part).join(': ');
  if (code === METHOD_NOT_FOUND) return new GrpcError(GrpcCode.unimplemented, text);
  if (code === INVALID_PARAMS) return new GrpcError(GrpcCode.invalidArgument, text);
  return new GrpcError(GrpcCode.internal, text);
}

/** Reads a body as text, up to a limit. */
export async function readBody(
  response: IncomingMessage,
  maxBytes: number,
  memory: ReplyMemory,
): Promise<string> {
  const pieces: Buffer[] = [];
  const reserved = memory.reserve();
  let size = 0;
  try {
    for await (const piece of response as AsyncIterable<Buffer>) {
      if (size + piece.length > maxBytes) {
        const text = `the reply exceeds the limit of ${maxBytes} bytes`;
        throw new GrpcError(GrpcCode.resourceExhausted, text);
      }
      reserved.grow(piece.length);
      size += piece.length;
      pieces.push(piece);
    }
    return Buffer.concat(pieces, size).toString();
  } finally {
    reserved.release();
  }
}
