import type { OutgoingHttpHeaders, ServerHttp2Stream } from 'node:http2';
import { GrpcCode, type GrpcError } from '../../upstream/grpc-error.js';

export const CONTENT_TYPE = { 'content-type': 'application/grpc' };

/** The trailers of a call that went well. */
export const OK_TRAILERS: OutgoingHttpHeaders = { 'grpc-status': String(GrpcCode.ok) };

/** The trailers of a call that failed. */
export function trailersOf({ code, message }: GrpcError): OutgoingHttpHeaders {
  return { 'grpc-status': String(code), 'grpc-message': percentEncode(message) };
}

/** Ends a call that got no further than its request. */
export function refuse(stream: ServerHttp2Stream, error: GrpcError): void {
  if (stream.destroyed) return;
  stream.respond({ ':status': 200, ...CONTENT_TYPE, ...trailersOf(error) }, { endStream: true });
}

/** Header values are printable ASCII; gRPC has the rest, and the percent sign, as bytes in hex. */
function percentEncode(text: string): string {
  return encodeURI(text.toWellFormed()).replace(/%(20|22|3C|3E|5B|5C|5D|5E|60|7B|7C|7D)/g, (code) =>
    decodeURIComponent(code),
  );
}
