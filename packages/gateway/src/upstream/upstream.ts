import type {
  CancelSignal,
  Http2Implementation,
  MessageStream,
  ReplyMemory,
} from '@sibyl/grpc-client';
import { WebSocket } from 'ws';
import { z } from 'zod';

export interface UpstreamOptions {
  /** The address of the node; its user and password become Basic credentials. */
  readonly url: URL;
  /** Trusted certificates, in PEM; default: those that ship with Node. */
  readonly ca?: readonly string[] | undefined;
  /** Only for gRPC; default: own. */
  readonly http2?: Http2Implementation | undefined;
  /** The RPC of a gRPC node, for its new blocks. */
  readonly rpc?: URL | undefined;
  readonly maxReplyBytes: number;
  /** Memory limit that all nodes share; default: unlimited. */
  readonly memory?: ReplyMemory | undefined;
}

export interface UpstreamCall {
  /** Default: the latest block. */
  readonly height?: number | undefined;
  readonly metadata?: Readonly<Record<string, string>> | undefined;
  readonly timeoutMs: number;
  readonly signal?: CancelSignal | undefined;
  /** Default: the limit of the upstream. */
  readonly maxReplyBytes?: number;
  /** Who the memory of the reply is counted for; replies of RPC may be for several. */
  readonly owner?: string | undefined;
}

/** Who a call is for, and until when. */
export type CallOwner = Pick<UpstreamCall, 'signal' | 'owner'>;

export interface UpstreamReply {
  /** The encoded response message. */
  readonly message: Uint8Array;
  /** The height of the state the reply was made from, if the node reports it. */
  readonly height: number | undefined;
}

export interface NodeStatus {
  readonly height: number;
  /** The first height the node has, if it reports it. */
  readonly earliest: number | undefined;
  /** Whether the node reports that it is still catching up with the chain. */
  readonly isCatchingUp: boolean;
}

/** One node of the chain, independent of its protocol; every failure is a `GrpcError`. */
export interface Upstream {
  readonly kind: 'grpc' | 'rpc';
  /** Calls a unary method, such as `/ixo.entity.v1beta1.Query/Entity`. */
  call(method: string, request: Uint8Array, call: UpstreamCall): Promise<UpstreamReply>;
  status(timeoutMs: number): Promise<NodeStatus>;
  /** The latest height of the state that queries see. */
  readHeight(timeoutMs: number): Promise<number>;
  /** Calls back with the height of each new block, while the node can be subscribed to; returns the function that stops. */
  watchBlocks?(onBlock: (height: number) => void): () => void;
  /** Called when a new connection may lead to another node. */
  onConnected?: (() => void) | undefined;
  /** Opens a bidirectional method; only gRPC has them. */
  open?(
    method: string,
    call: Pick<UpstreamCall, 'timeoutMs' | 'maxReplyBytes'>,
  ): Promise<MessageStream>;
  close(): void;
}

/** The header and metadata name of a block height, in requests and replies. */
export const HEIGHT_METADATA = 'x-cosmos-block-height';

/** Parses a block height: a whole number that JavaScript represents exactly. */
export function parseHeight(text: unknown): number | undefined {
  return typeof text === 'string' && /^\d{1,15}$/.test(text) ? Number(text) : undefined;
}

/** The `authorization` header for an address with user and password. */
export function readBasicCredentials({ username, password }: URL): string | undefined {
  if (!username) return undefined;
  const pair = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  return `Basic ${Buffer.from(pair).toString('base64')}`;
}

const FIRST_RETRY_MS = 1000;
const LONGEST_RETRY_MS = 60_000;
const HANDSHAKE_MS = 5000;
/** Nodes ping about every half minute. */
const SILENCE_MS = 90_000;
/** The header of a block takes less than a kilobyte. */
const MAX_EVENT_BYTES = 256 * 1024;

const SUBSCRIBE = JSON.stringify({
  jsonrpc: '2.0',
  id: 1,
  method: 'subscribe',
  params: { query: "tm.event='NewBlockHeader'" },
});

const BlockEvent = z.object({
  result: z.object({
    data: z.object({
      value: z.object({ header: z.object({ height: z.string().regex(/^\d{1,15}$/) }) }),
    }),
  }),
});

interface SubscriptionOptions {
  /** The `http:` or `https:` address of the node's RPC. */
  readonly url: URL;
  readonly authorization: string | undefined;
  readonly ca?: readonly string[] | undefined;
  readonly onBlock: (height: number) => void;
}

/** Subscribes to the new blocks of a CometBFT node; subscribes again after a failure, until it is closed. */
export class BlockSubscription {
  private socket: WebSocket | undefined;
  private retry: NodeJS.Timeout | undefined;
  private silence: NodeJS.Timeout | undefined;
  private failures = 0;
  private isClosed = false;

  constructor(private readonly options: SubscriptionOptions) {
    this.connect();
  }

  close(): void {
    this.isClosed = true;
    clearTimeout(this.retry);
    clearTimeout(this.silence);
    this.socket?.terminate();
  }

  private connect(): void {
    const { url, authorization, ca } = this.options;
    const address = new URL(url);
    address.pathname = `${url.pathname.replace(/\/$/, '')}/websocket`;
    address.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
    const socket = new WebSocket(address, {
      handshakeTimeout: HANDSHAKE_MS,
      maxPayload: MAX_EVENT_BYTES,
      ...(authorization && { headers: { authorization } }),
      ...(ca && { ca: [...ca] }),
    });
    this.socket = socket;
    socket.on('open', () => socket.send(SUBSCRIBE));
    socket.on('message', (data) => this.receive(String(data)));
    socket.on('ping', () => this.listen());
    // The reason does not matter: polls report whether the node is available.
    socket.on('error', () => {});
    socket.on('close', () => this.reconnect());
    this.listen();
  }

  private receive(text: string): void {
    this.listen();
    const { data } = BlockEvent.safeParse(parse(text));
    if (!data) return;
    this.failures = 0;
    this.options.onBlock(Number(data.result.data.value.header.height));
  }

  /** A connection on which nothing arrives may be dead. */
  private listen(): void {
    clearTimeout(this.silence);
    this.silence = setTimeout(() => this.socket?.terminate(), SILENCE_MS).unref();
  }

  private reconnect(): void {
    clearTimeout(this.silence);
    if (this.isClosed) return;
    const waitMs = Math.min(LONGEST_RETRY_MS, FIRST_RETRY_MS * 2 ** this.failures);
    this.failures += 1;
    this.retry = setTimeout(() => this.connect(), waitMs).unref();
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
