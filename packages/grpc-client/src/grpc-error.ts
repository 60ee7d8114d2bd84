import { ErrorCode } from './http2/protocol.js';
import type { HeaderFields, StreamError } from './http2/transport.js';

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

/** Maps a gRPC code to an HTTP status; unknown codes become 500. */
export function toHttpStatus(code: number): number {
  return HTTP_STATUSES[code] ?? 500;
}

/** Parses a `grpc-status`; anything that is not a code becomes `unknown`. */
function parseGrpcCode(text: string): GrpcCode {
  const code = /^\d{1,2}$/.test(text) ? Number(text) : GrpcCode.unknown;
  return code < HTTP_STATUSES.length ? (code as GrpcCode) : GrpcCode.unknown;
}

/** Where a call failed: the server replied with an error, or no reply arrived. */
export type ErrorOrigin = 'node' | 'transport';

/** A failed gRPC call. */
export class GrpcError extends Error {
  override readonly name = 'GrpcError';

  constructor(
    readonly code: GrpcCode,
    message: string,
    readonly origin: ErrorOrigin = 'node',
    /** The message with internal details such as addresses, for logs and operators only. */
    readonly detail?: string,
  ) {
    super(message);
  }
}

/** Reads the status of a call from headers or trailers; undefined if they have none. */
export function readStatus(headers: HeaderFields): GrpcError | 'ok' | undefined {
  const status = headers.get('grpc-status');
  if (status === undefined) return undefined;
  const code = parseGrpcCode(status);
  if (code === GrpcCode.ok) return 'ok';
  // Equivalent to a server that does not answer.
  const origin = code === GrpcCode.unavailable ? 'transport' : 'node';
  return new GrpcError(code, decodeMessage(headers.get('grpc-message')), origin);
}

/** Decodes percent-encoded UTF-8; returns malformed text unchanged. */
function decodeMessage(text = ''): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

const HTTP_CODES: Readonly<Record<number, GrpcCode>> = {
  400: GrpcCode.internal,
  401: GrpcCode.unauthenticated,
  403: GrpcCode.permissionDenied,
  404: GrpcCode.unimplemented,
  429: GrpcCode.unavailable,
  502: GrpcCode.unavailable,
  503: GrpcCode.unavailable,
  504: GrpcCode.unavailable,
};

/** The error for a response that is not gRPC, such as one of a proxy. */
export function readHttpError(headers: HeaderFields): GrpcError | undefined {
  const status = Number(headers.get(':status'));
  const type = headers.get('content-type') ?? '';
  if (status === 200 && type.startsWith('application/grpc')) return undefined;
  const code = HTTP_CODES[status] ?? GrpcCode.unknown;
  return new GrpcError(code, `not a gRPC response: HTTP ${status} ${type}`.trim(), 'transport');
}

const RESET_CODES: Readonly<Record<number, GrpcCode>> = {
  [ErrorCode.refusedStream]: GrpcCode.unavailable,
  [ErrorCode.cancel]: GrpcCode.cancelled,
  [ErrorCode.enhanceYourCalm]: GrpcCode.resourceExhausted,
  [ErrorCode.inadequateSecurity]: GrpcCode.permissionDenied,
};

/** The error for a stream that ended without a status. */
export function toGrpcError({ code: reason, cause }: StreamError): GrpcError {
  if (reason === undefined) return connectionLost(cause);
  const code = RESET_CODES[reason] ?? GrpcCode.internal;
  return new GrpcError(code, `the node reset the stream (code ${reason})`, 'transport');
}

export function connectionLost(cause?: Error): GrpcError {
  const text = 'the connection to the node was lost';
  const detail = cause && `${text}: ${cause.message}`;
  return new GrpcError(GrpcCode.unavailable, text, 'transport', detail);
}
