import type { IncomingMessage } from 'node:http';
import { GrpcCode, GrpcError } from '../grpc-error.js';

/** Reads a body as text, up to a limit. */
export async function readBody(response: IncomingMessage, maxBytes: number): Promise<string> {
  const pieces: Buffer[] = [];
  let size = 0;
  for await (const piece of response as AsyncIterable<Buffer>) {
    size += piece.length;
    if (size > maxBytes) {
      const text = `the reply has more than the ${maxBytes} bytes allowed`;
      throw new GrpcError(GrpcCode.resourceExhausted, text);
    }
    pieces.push(piece);
  }
  return Buffer.concat(pieces, size).toString();
}
