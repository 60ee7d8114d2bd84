export type { CancelSignal, GrpcReply, MessageStream } from './calls.js';
export { Backoff } from './connection.js';
export {
  type CallOptions,
  createGrpcClient,
  type GrpcClient,
  type GrpcClientOptions,
  type Http2Implementation,
} from './grpc-client.js';
export { type ErrorOrigin, GrpcCode, GrpcError, toHttpStatus } from './grpc-error.js';
export { encodeMessage, MessageReader, ReplyMemory } from './message-framing.js';
