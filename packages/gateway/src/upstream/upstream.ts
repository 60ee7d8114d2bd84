import type {
  CancelSignal,
  Http2Implementation,
  MessageStream,
  ReplyMemory,
} from '@sibyl/grpc-client';

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
