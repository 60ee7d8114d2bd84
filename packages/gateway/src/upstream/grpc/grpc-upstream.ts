import type { OutgoingHttpHeaders } from 'node:http2';
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
  private readonly authorization: string | undefined;

  constructor(private readonly options: GrpcUpstreamOptions) {
    const { url, ca } = options;
    const scheme = url.protocol === 'grpcs:' ? 'https' : 'http';
    this.connection = new Connection({ origin: `${scheme}://${url.host}`, ca });
    this.authorization = basicOf(url);
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

  private headersOf(method: string, call: UpstreamCall): OutgoingHttpHeaders {
    const headers: OutgoingHttpHeaders = {
      ...call.metadata,
      ':method': 'POST',
      ':path': method,
      'content-type': 'application/grpc',
      te: 'trailers',
      'grpc-timeout': `${Math.min(Math.max(1, Math.ceil(call.timeoutMs)), 99_999_999)}m`,
      'user-agent': 'sibyl-gateway',
    };
    if (call.height !== undefined) headers[HEIGHT_METADATA] = String(call.height);
    if (this.authorization) headers.authorization = this.authorization;
    return headers;
  }
}
