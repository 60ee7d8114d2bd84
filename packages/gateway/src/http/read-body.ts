import type { IncomingMessage } from 'node:http';
import { badRequest, QueryFault } from '../query/query-fault.js';
import { GrpcCode } from '../upstream/grpc-error.js';

const MAX_BYTES = 1024 * 1024;

/** Reads a request's body, up to a limit. */
export async function readBody(request: IncomingMessage): Promise<Buffer> {
  if (Number(request.headers['content-length'] ?? 0) > MAX_BYTES) throw tooLarge();
  const pieces: Buffer[] = [];
  let size = 0;
  try {
    for await (const piece of request as AsyncIterable<Buffer>) {
      size += piece.length;
      if (size > MAX_BYTES) throw tooLarge();
      pieces.push(piece);
    }
  } catch (fault) {
    throw fault instanceof QueryFault ? fault : badRequest('the body was cut off');
  }
  return Buffer.concat(pieces, size);
}

function tooLarge(): QueryFault {
  const text = `the body has more than ${MAX_BYTES} bytes`;
  // The rest is not read, so nothing more can come on this connection.
  const headers = { Connection: 'close' };
  return new QueryFault(GrpcCode.invalidArgument, text, { status: 413, headers });
}
