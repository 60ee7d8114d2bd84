import { constants, type IncomingHttpHeaders } from 'node:http2';
import { GrpcCode, GrpcError, grpcCodeOf } from '../grpc-error.js';

/** What the end of a stream says; undefined if it says nothing, which is a fault of its own. */
export function statusOf(headers: IncomingHttpHeaders): GrpcError | 'ok' | undefined {
  const status = headers['grpc-status'];
  if (typeof status !== 'string') return undefined;
  const code = grpcCodeOf(status);
  if (code === GrpcCode.ok) return 'ok';
  // A server that says it is not there is as good as none.
  const origin = code === GrpcCode.unavailable ? 'transport' : 'node';
  return new GrpcError(code, messageOf(headers['grpc-message']), origin);
}

/** Percent-encoded UTF-8; what does not decode is shown as it came. */
function messageOf(header: string | string[] | undefined): string {
  const text = typeof header === 'string' ? header : '';
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
export function httpFault(headers: IncomingHttpHeaders): GrpcError | undefined {
  const status = Number(headers[':status']);
  const type = headers['content-type'] ?? '';
  if (status === 200 && type.startsWith('application/grpc')) return undefined;
  const code = HTTP_CODES[status] ?? GrpcCode.unknown;
  return new GrpcError(code, `not a gRPC answer: HTTP ${status} ${type}`.trim(), 'transport');
}

const RESET_CODES: Readonly<Record<number, GrpcCode>> = {
  [constants.NGHTTP2_REFUSED_STREAM]: GrpcCode.unavailable,
  [constants.NGHTTP2_CANCEL]: GrpcCode.cancelled,
  [constants.NGHTTP2_ENHANCE_YOUR_CALM]: GrpcCode.resourceExhausted,
  [constants.NGHTTP2_INADEQUATE_SECURITY]: GrpcCode.permissionDenied,
};

/** A stream that was reset before its status came. */
export function resetFault(rstCode: number): GrpcError {
  const code = RESET_CODES[rstCode] ?? GrpcCode.internal;
  return new GrpcError(code, `the node reset the stream (code ${rstCode})`, 'transport');
}

export function lostConnection(cause?: Error): GrpcError {
  const reason = cause ? `: ${cause.message}` : '';
  return new GrpcError(
    GrpcCode.unavailable,
    `the connection to the node broke${reason}`,
    'transport',
  );
}
