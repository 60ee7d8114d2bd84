/** The status codes of gRPC by name. */
export const GrpcCode = {
  ok: 0,
  cancelled: 1,
  unknown: 2,
  invalidArgument: 3,
  deadlineExceeded: 4,
  notFound: 5,
  alreadyExists: 6,
  permissionDenied: 7,
  resourceExhausted: 8,
  failedPrecondition: 9,
  aborted: 10,
  outOfRange: 11,
  unimplemented: 12,
  internal: 13,
  unavailable: 14,
  dataLoss: 15,
  unauthenticated: 16,
} as const;
export type GrpcCode = (typeof GrpcCode)[keyof typeof GrpcCode];

/** HTTP statuses in the order of the gRPC codes. */
const HTTP_STATUSES = [
  200, 408, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401,
] as const;

/** The HTTP status of a gRPC code; a code gRPC does not know is an error of the server. */
export function httpStatusOf(code: number): number {
  return HTTP_STATUSES[code] ?? 500;
}

/** Reads a code as it stands on the wire; what is no code at all is `unknown`. */
export function grpcCodeOf(text: string): GrpcCode {
  const code = /^\d{1,2}$/.test(text) ? Number(text) : GrpcCode.unknown;
  return code < HTTP_STATUSES.length ? (code as GrpcCode) : GrpcCode.unknown;
}

/** Who failed: the node answered with an error, or no answer came of the attempt at all. */
export type ErrorOrigin = 'node' | 'transport';

/** A query that failed, as gRPC says it. */
export class GrpcError extends Error {
  override readonly name = 'GrpcError';

  constructor(
    readonly code: GrpcCode,
    message: string,
    readonly origin: ErrorOrigin = 'node',
    /** The message with what clients must not see, such as addresses; for the log and operators. */
    readonly detail?: string,
  ) {
    super(message);
  }
}
