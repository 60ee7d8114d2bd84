import { basicOf } from '../basic-credentials.js';
import { GrpcCode, type GrpcError } from '../grpc-error.js';
import { HEIGHT_METADATA } from '../height.js';
import type {
  MessageExchange,
  NodeStatus,
  Upstream,
  UpstreamCall,
  UpstreamReply,
} from '../upstream.js';
import { Connection } from './connection.js';
import { Exchange } from './exchange.js';
import { readNodeStatus } from './node-status.js';
import { callUnary } from './unary-call.js';

export interface GrpcUpstreamOptions {
  /** `grpc://host:port` or `grpcs://host:port`; a user and password go along as Basic. */
  readonly url: URL;
  readonly ca?: readonly string[] | undefined;
  readonly maxReplyBytes: number;
}

/** A node spoken to by gRPC over HTTP/2. */
export class GrpcUpstream implements Upstream {
  readonly kind = 'grpc';
  private readonly connection: Connection;
  private readonly common: readonly string[];
  private readonly fixed: readonly string[];

  constructor(private readonly options: GrpcUpstreamOptions) {
    const { url, ca } = options;
    const scheme = url.protocol === 'grpcs:' ? 'https' : 'http';
    this.connection = new Connection({ origin: `${scheme}://${url.host}`, ca });
    const authorization = basicOf(url);
    this.common = [':method', 'POST', ':scheme', scheme, ':authority', url.host];
    this.fixed = authorization ? [...FIXED, 'authorization', authorization] : FIXED;
  }

  async call(method: string, message: Uint8Array, call: UpstreamCall): Promise<UpstreamReply> {
    const { timeoutMs, signal, maxReplyBytes = this.options.maxReplyBytes } = call;
    const session = this.connection.session ?? (await this.connection.open());
    const headers = this.headersOf(method, call);
    try {
      return await callUnary(session, { headers, message, timeoutMs, maxReplyBytes, signal });
    } catch (fault) {
      if ((fault as GrpcError).code === GrpcCode.deadlineExceeded) this.connection.probe();
      throw fault;
    }
  }

  status(timeoutMs: number): Promise<NodeStatus> {
    return readNodeStatus(this, timeoutMs);
  }

  async open(method: string, timeoutMs: number): Promise<MessageExchange> {
    const session = await this.connection.open();
    const { maxReplyBytes } = this.options;
    const headers = this.headersOf(method, { timeoutMs });
    return new Exchange(session, { headers, timeoutMs, maxReplyBytes });
  }

  close(): void {
    this.connection.close();
  }

  /** Names and values by turns: node:http2 takes them as they are that way. */
  private headersOf(method: string, { timeoutMs, height, metadata }: UpstreamCall): string[] {
    const wait = Math.min(Math.max(1, Math.ceil(timeoutMs)), MAX_TIMEOUT_MS);
    const headers = [...this.common, ':path', method, 'grpc-timeout', `${wait}m`, ...this.fixed];
    if (height !== undefined) headers.push(HEIGHT_METADATA, String(height));
    for (const name in metadata) headers.push(name, metadata[name] ?? '');
    return headers;
  }
}

/** gRPC allows eight digits. */
const MAX_TIMEOUT_MS = 99_999_999;

const FIXED = ['content-type', 'application/grpc', 'te', 'trailers', 'user-agent', 'sibyl-gateway'];
