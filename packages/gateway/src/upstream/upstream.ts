/** What goes with one query. */
export interface UpstreamCall {
  /** Unset: the latest block. */
  readonly height?: number | undefined;
  readonly metadata?: Readonly<Record<string, string>>;
  readonly timeoutMs: number;
  readonly signal?: AbortSignal;
  /** Larger replies than this are refused; unset: the upstream's own limit. */
  readonly maxReplyBytes?: number;
}

export interface UpstreamReply {
  /** The response message, still encoded. */
  readonly message: Uint8Array;
  /** The block the reply speaks of, if the node says. */
  readonly height: number | undefined;
}

/** How far a node is, and how far back it goes. */
export interface NodeStatus {
  readonly height: number;
  /** Unset: the node does not say. */
  readonly earliest: number | undefined;
  /** Whether the node says of itself that it is still catching up with the chain. */
  readonly isCatchingUp: boolean;
}

/** A stream on which messages are asked and answered one by one. */
export interface MessageExchange {
  ask(message: Uint8Array): Promise<Uint8Array>;
  close(): void;
}

/** One node of the chain, whatever it speaks; every failure is a `GrpcError`. */
export interface Upstream {
  readonly kind: 'grpc' | 'rpc';
  /** Asks a unary method, such as `/ixo.entity.v1beta1.Query/Entity`. */
  call(method: string, request: Uint8Array, call: UpstreamCall): Promise<UpstreamReply>;
  status(timeoutMs: number): Promise<NodeStatus>;
  /** Opens a bidirectional method; only gRPC has them. */
  open?(method: string, timeoutMs: number): Promise<MessageExchange>;
  close(): void;
}
