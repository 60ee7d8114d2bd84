import {
  BidirectionalCall,
  type CancelSignal,
  callUnary,
  type GrpcReply,
  type MessageStream,
  type UnaryCall,
} from './calls.js';
import { Connection } from './connection.js';
import { openNodeSession } from './http2/node-session.js';
import { openOwnSession } from './http2/session.js';
import type { OpenSession, PeerAddress, RequestHeaders } from './http2/transport.js';
import { ReplyMemory } from './message-framing.js';

/** The HTTP/2 implementation: this package's own, which uses less CPU, or `node:http2`. */
export type Http2Implementation = 'own' | 'node';

export interface GrpcClientOptions {
  /** `grpc://host:port`, or `grpcs://host:port` for TLS. */
  readonly url: URL;
  /** Trusted certificates, in PEM; default: those that ship with Node. */
  readonly ca?: readonly string[] | undefined;
  /** Value of the `authorization` header, if any. */
  readonly authorization?: string | undefined;
  readonly userAgent?: string | undefined;
  /** Default: own. */
  readonly http2?: Http2Implementation | undefined;
  readonly maxReplyBytes: number;
  /** Memory limit that several clients share; default: unlimited. */
  readonly memory?: ReplyMemory | undefined;
  /** Called for each new connection; behind a proxy it may lead to another server. */
  readonly onConnected?: (() => void) | undefined;
}

export interface CallOptions {
  /** Includes the time to connect. */
  readonly timeoutMs: number;
  readonly metadata?: Readonly<Record<string, string>> | undefined;
  readonly signal?: CancelSignal | undefined;
  /** Default: the limit of the client. */
  readonly maxReplyBytes?: number | undefined;
  /** Who the memory of the reply is counted for; default: only all replies together are. */
  readonly owner?: string | undefined;
}

type StreamOptions = Pick<CallOptions, 'timeoutMs' | 'maxReplyBytes'>;

/** Calls the methods of one server over one connection, which it opens on demand. Every failure is a `GrpcError`. */
export interface GrpcClient {
  /** Calls a unary method, such as `/package.Service/Method`. */
  call(method: string, message: Uint8Array, options: CallOptions): Promise<GrpcReply>;
  /** Opens a bidirectional method; the timeout limits the stream as a whole. */
  open(method: string, options: StreamOptions): Promise<MessageStream>;
  close(): void;
}

const openers: Readonly<Record<Http2Implementation, OpenSession>> = {
  own: openOwnSession,
  node: openNodeSession,
};

export function createGrpcClient(options: GrpcClientOptions): GrpcClient {
  return new ConnectedClient(options);
}

/** gRPC allows eight digits. */
const MAX_TIMEOUT_MS = 99_999_999;

const NONE: readonly string[] = [];

/** The header fields of a method. Most calls of it have the same timeout, so its encoding is cached too. */
interface FixedHeaders {
  readonly fixed: readonly string[];
  readonly usual: readonly string[];
  readonly usualLimit: number;
}

class ConnectedClient implements GrpcClient {
  private readonly connection: Connection;
  private readonly peer: PeerAddress;
  private readonly memory: ReplyMemory;
  /** The header fields that calls of a method share. */
  private readonly fixedHeaders = new Map<string, FixedHeaders>();
  private readonly onTimeout = () => this.connection.probe();

  constructor(private readonly options: GrpcClientOptions) {
    const { url, ca } = options;
    this.memory = options.memory ?? new ReplyMemory(Number.POSITIVE_INFINITY);
    this.peer = { scheme: url.protocol === 'grpcs:' ? 'https' : 'http', url, ca };
    const open = openers[options.http2 ?? 'own'];
    this.connection = new Connection(this.peer, open, options.onConnected);
  }

  call(method: string, message: Uint8Array, call: CallOptions): Promise<GrpcReply> {
    const { session } = this.connection;
    const unary = this.buildCall(method, message, call);
    return session ? callUnary(session, unary) : this.callOnceOpen(unary);
  }

  /** The timeout includes the time to connect. */
  private async callOnceOpen(call: UnaryCall): Promise<GrpcReply> {
    const endsAt = performance.now() + call.timeoutMs;
    const session = await this.connection.openWithin(call.timeoutMs, call.signal);
    return callUnary(session, { ...call, timeoutMs: leftUntil(endsAt) });
  }

  private buildCall(
    method: string,
    message: Uint8Array,
    { maxReplyBytes = this.options.maxReplyBytes, ...call }: CallOptions,
  ): UnaryCall {
    return {
      headers: this.buildHeaders(method, call.timeoutMs, call.metadata),
      message,
      timeoutMs: call.timeoutMs,
      maxReplyBytes,
      signal: call.signal,
      memory: this.memory,
      owner: call.owner,
      onTimeout: this.onTimeout,
    };
  }

  async open(
    method: string,
    { timeoutMs, maxReplyBytes = this.options.maxReplyBytes }: StreamOptions,
  ): Promise<MessageStream> {
    const endsAt = performance.now() + timeoutMs;
    const session = await this.connection.openWithin(timeoutMs);
    const headers = this.buildHeaders(method, timeoutMs, undefined);
    return new BidirectionalCall(session, {
      headers,
      timeoutMs: leftUntil(endsAt),
      maxReplyBytes,
    });
  }

  close(): void {
    this.connection.close();
  }

  private buildHeaders(
    method: string,
    timeoutMs: number,
    metadata: CallOptions['metadata'],
  ): RequestHeaders {
    const limit = Math.min(Math.max(1, Math.ceil(timeoutMs)), MAX_TIMEOUT_MS);
    const { usual, fixed, usualLimit } = this.getFixedHeaders(method, limit);
    if (limit === usualLimit && metadata === undefined) return { fixed: usual, variable: NONE };
    const variable = ['grpc-timeout', `${limit}m`];
    for (const name in metadata) variable.push(name, metadata[name] ?? '');
    return { fixed, variable };
  }

  private getFixedHeaders(method: string, limit: number): FixedHeaders {
    const known = this.fixedHeaders.get(method);
    if (known) return known;
    const fixed = this.listFixedHeaders(method);
    const usual = [...fixed, 'grpc-timeout', `${limit}m`];
    const headers = { fixed, usual, usualLimit: limit };
    this.fixedHeaders.set(method, headers);
    return headers;
  }

  private listFixedHeaders(method: string): readonly string[] {
    const { scheme, url } = this.peer;
    const { authorization, userAgent } = this.options;
    return [
      ...[':method', 'POST', ':scheme', scheme, ':authority', url.host, ':path', method],
      ...['content-type', 'application/grpc', 'te', 'trailers'],
      ...(userAgent ? ['user-agent', userAgent] : []),
      ...(authorization ? ['authorization', authorization] : []),
    ];
  }
}

const leftUntil = (endsAt: number) => Math.max(1, Math.ceil(endsAt - performance.now()));
