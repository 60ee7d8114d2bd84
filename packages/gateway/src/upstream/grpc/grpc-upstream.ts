import { basicOf } from '../basic-credentials.js';
import { GrpcCode, type GrpcError } from '../grpc-error.js';
import { HEIGHT_METADATA } from '../height.js';
import { headerBlockOf } from '../http2/header-block.js';
import type { PeerAddress } from '../http2/open-socket.js';
import { ReplyMemory } from '../reply-memory.js';
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
  /** Shared by all nodes; unset: a memory of its own. */
  readonly memory?: ReplyMemory | undefined;
}

/** A node spoken to by gRPC over HTTP/2. */
export class GrpcUpstream implements Upstream {
  readonly kind = 'grpc';
  private readonly connection: Connection;
  private readonly peer: PeerAddress;
  private readonly memory: ReplyMemory;
  /** The header fields that are the same for every call of a method. */
  private readonly fixed = new Map<string, Buffer>();

  constructor(private readonly options: GrpcUpstreamOptions) {
    const { url, ca } = options;
    this.memory = options.memory ?? new ReplyMemory(Number.POSITIVE_INFINITY);
    const scheme = url.protocol === 'grpcs:' ? 'https' : 'http';
    this.peer = { scheme, url, ca };
    this.connection = new Connection(this.peer);
  }

  async call(method: string, message: Uint8Array, call: UpstreamCall): Promise<UpstreamReply> {
    const { timeoutMs, signal, maxReplyBytes = this.options.maxReplyBytes } = call;
    const session = this.connection.session ?? (await this.connection.open());
    const headerBlock = this.headersOf(method, call);
    const limits = { timeoutMs, maxReplyBytes, signal, memory: this.memory };
    try {
      return await callUnary(session, { headerBlock, message, ...limits });
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
    const headerBlock = this.headersOf(method, { timeoutMs });
    return new Exchange(session, { headerBlock, timeoutMs, maxReplyBytes });
  }

  close(): void {
    this.connection.close();
  }

  private headersOf(method: string, { timeoutMs, height, metadata }: UpstreamCall): Buffer {
    const wait = Math.min(Math.max(1, Math.ceil(timeoutMs)), MAX_TIMEOUT_MS);
    const fields = ['grpc-timeout', `${wait}m`];
    if (height !== undefined) fields.push(HEIGHT_METADATA, String(height));
    for (const name in metadata) fields.push(name, metadata[name] ?? '');
    return Buffer.concat([this.fixedOf(method), headerBlockOf(fields)]);
  }

  private fixedOf(method: string): Buffer {
    const known = this.fixed.get(method);
    if (known) return known;
    const { scheme, url } = this.peer;
    const authorization = basicOf(url);
    const block = headerBlockOf([
      ...[':method', 'POST', ':scheme', scheme, ':authority', url.host, ':path', method],
      ...['content-type', 'application/grpc', 'te', 'trailers', 'user-agent', 'sibyl-gateway'],
      ...(authorization ? ['authorization', authorization] : []),
    ]);
    this.fixed.set(method, block);
    return block;
  }
}

/** gRPC allows eight digits. */
const MAX_TIMEOUT_MS = 99_999_999;
