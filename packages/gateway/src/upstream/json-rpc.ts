import { type ClientRequest, Agent as HttpAgent, type IncomingMessage, request } from 'node:http';
import { Agent as HttpsAgent, request as requestTls } from 'node:https';
import type { ReplyMemory } from '@sibyl/grpc-client';
import { Backoff, GrpcCode, GrpcError } from '@sibyl/grpc-client';

const IDLE_SOCKETS = 32;

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
  readonly signal?: AbortSignal | undefined;
}

/** Calls the JSON-RPC interface of a CometBFT node over keep-alive connections. */
export class JsonRpc {
  private readonly agent: HttpAgent | HttpsAgent;
  private readonly backoff = new Backoff();

  constructor(private readonly options: JsonRpcOptions) {
    const kept = { keepAlive: true, maxFreeSockets: IDLE_SOCKETS };
    this.agent =
      options.url.protocol === 'https:'
        ? new HttpsAgent({ ...kept, ...(options.ca && { ca: [...options.ca] }) })
        : new HttpAgent(kept);
  }

  /** The `result` of a call. */
  async call(method: string, params: object, call: JsonRpcCall): Promise<unknown> {
    const error = this.backoff.lastError();
    if (error) throw error;
    const limit = AbortSignal.timeout(Math.ceil(call.timeoutMs));
    const signal = call.signal ? AbortSignal.any([limit, call.signal]) : limit;
    const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method, params });
    try {
      const response = await this.send(body, signal);
      const text = await readBody(response, call.maxReplyBytes, this.options.memory);
      this.backoff.succeeded();
      return readResult(text, response.statusCode ?? 0);
    } catch (cause) {
      throw this.toGrpcError(cause, call, limit);
    }
  }

  close(): void {
    this.agent.destroy();
  }

  private send(body: string, signal: AbortSignal): Promise<IncomingMessage> {
    const { url, authorization } = this.options;
    const headers = {
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(body),
      ...(authorization && { authorization }),
    };
    const options = { method: 'POST', agent: this.agent, headers, signal };
    return new Promise((resolve, reject) => {
      const sent: ClientRequest =
        url.protocol === 'https:' ? requestTls(url, options) : request(url, options);
      sent.once('response', resolve).once('error', reject).end(body);
    });
  }

  private toGrpcError(cause: unknown, call: JsonRpcCall, limit: AbortSignal): GrpcError {
    if (cause instanceof GrpcError) return cause;
    if (limit.aborted) {
      const text = `the node did not answer within ${call.timeoutMs} ms`;
      return new GrpcError(GrpcCode.deadlineExceeded, text, 'transport');
    }
    if (call.signal?.aborted)
      return new GrpcError(GrpcCode.cancelled, 'the caller canceled the call');
    const { code, message } = cause as NodeJS.ErrnoException;
    const text = 'the node cannot be reached';
    const detail = `${text}: ${message}`;
    const error = new GrpcError(GrpcCode.unavailable, text, 'transport', detail);
    // The node may have closed an idle connection, so the next attempt can succeed.
    return code === 'ECONNRESET' || code === 'EPIPE' ? error : this.backoff.failed(error);
  }
}

/** A node replies 500 to some errors, with the reason in the body. */
function readResult(text: string, status: number): unknown {
  const answer = parse(text);
  if (answer?.error) throw toRpcError(answer.error);
  if (answer?.result !== undefined && status === 200) return answer.result;
  const code = status === 200 ? GrpcCode.internal : GrpcCode.unavailable;
  throw new GrpcError(code, `not a JSON-RPC response: HTTP ${status}`, 'transport');
}

interface RpcResponse {
  readonly result?: unknown;
  readonly error?: { readonly code?: number; readonly message?: string; readonly data?: string };
}

function parse(text: string): RpcResponse | undefined {
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
