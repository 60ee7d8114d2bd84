import type { IncomingMessage } from 'node:http';
import { GrpcCode, GrpcError } from '../grpc-error.js';
import type { ReplyMemory } from '../reply-memory.js';

/** Reads a body as text, up to a limit. */
export async function readBody(
  response: IncomingMessage,
  maxBytes: number,
  memory: ReplyMemory,
): Promise<string> {
  const pieces: Buffer[] = [];
  const reserved = memory.reserve();
  let size = 0;
  try {
    for await (const piece of response as AsyncIterable<Buffer>) {
      if (size + piece.length > maxBytes) {
        const text = `the reply has more than the ${maxBytes} bytes allowed`;
        throw new GrpcError(GrpcCode.resourceExhausted, text);
      }
      reserved.grow(piece.length);
      size += piece.length;
      pieces.push(piece);
    }
    return Buffer.concat(pieces, size).toString();
  } finally {
    reserved.release();
  }
}
