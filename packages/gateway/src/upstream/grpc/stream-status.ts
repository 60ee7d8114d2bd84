import { GrpcCode, GrpcError, grpcCodeOf } from '../grpc-error.js';
import type { HeaderFields } from '../http2/header-reader.js';
import { ErrorCode } from '../http2/protocol.js';
import type { Cut } from '../http2/stream.js';

/** What the end of a stream says; undefined if it says nothing, which is a fault of its own. */
export function statusOf(headers: HeaderFields): GrpcError | 'ok' | undefined {
  const status = headers.get('grpc-status');
  if (status === undefined) return undefined;
  const code = grpcCodeOf(status);
  if (code === GrpcCode.ok) return 'ok';
  // A server that says it is not there is as good as none.
  const origin = code === GrpcCode.unavailable ? 'transport' : 'node';
  return new GrpcError(code, messageOf(headers.get('grpc-message')), origin);
}

/** Percent-encoded UTF-8; what does not decode is shown as it came. */
function messageOf(text = ''): string {
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

/** An answer that is not gRPC's: a proxy's, or that of another kind of server. */
export function httpFault(headers: HeaderFields): GrpcError | undefined {
  const status = Number(headers.get(':status'));
  const type = headers.get('content-type') ?? '';
  if (status === 200 && type.startsWith('application/grpc')) return undefined;
  const code = HTTP_CODES[status] ?? GrpcCode.unknown;
  return new GrpcError(code, `not a gRPC answer: HTTP ${status} ${type}`.trim(), 'transport');
}

const RESET_CODES: Readonly<Record<number, GrpcCode>> = {
  [ErrorCode.refusedStream]: GrpcCode.unavailable,
  [ErrorCode.cancel]: GrpcCode.cancelled,
  [ErrorCode.enhanceYourCalm]: GrpcCode.resourceExhausted,
  [ErrorCode.inadequateSecurity]: GrpcCode.permissionDenied,
};

/** A stream that ended before its status came. */
export function cutFault({ code: reason, cause }: Cut): GrpcError {
  if (reason === undefined) return lostConnection(cause);
  const code = RESET_CODES[reason] ?? GrpcCode.internal;
  return new GrpcError(code, `the node reset the stream (code ${reason})`, 'transport');
}

export function lostConnection(cause?: Error): GrpcError {
  const text = 'the connection to the node broke';
  const detail = cause && `${text}: ${cause.message}`;
  return new GrpcError(GrpcCode.unavailable, text, 'transport', detail);
}
