import type { GrpcError } from '../../upstream/grpc-error.js';

/** A query as it reaches a node. */
export interface Query {
  /** Such as `ixo.entity.v1beta1.Query/Entity`. */
  readonly method: string;
  /** The request message, still encoded. */
  readonly request: Uint8Array;
  /** The block asked about; unset: the latest. */
  readonly height?: number | undefined;
}

/** What a node says to a query, and of which block it speaks. */
export type Answer = { readonly height?: number | undefined } & (
  | { readonly message: Uint8Array }
  | { readonly error: GrpcError }
);

/** Answers queries; may also throw a `GrpcError`. */
export type AnswerQuery = (query: Query) => Answer | Promise<Answer>;
