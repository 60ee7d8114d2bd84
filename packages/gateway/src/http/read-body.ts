import type { ByteBudget } from '../limits/byte-budget.js';
import { badRequest, QueryFault } from '../query/query-fault.js';
import { GrpcCode } from '../upstream/grpc-error.js';
import type { Exchange } from './exchange.js';

const MAX_BYTES = 1024 * 1024;

/** Reads a request's body, up to a limit; its memory is reserved before the first byte is read. */
export async function readBody(exchange: Exchange, incoming: ByteBudget): Promise<Buffer> {
  const { request, callerKey } = exchange;
  const declared = request.headers['content-length'];
  const expected = declared === undefined ? MAX_BYTES : Number(declared);
  if (expected > MAX_BYTES) throw tooLarge();
  const release = incoming.reserve(callerKey, expected);
  const pieces: Buffer[] = [];
  let size = 0;
  try {
    for await (const piece of request as AsyncIterable<Buffer>) {
      size += piece.length;
      if (size > MAX_BYTES) throw tooLarge();
      pieces.push(piece);
    }
    return Buffer.concat(pieces, size);
  } catch (fault) {
    throw fault instanceof QueryFault ? fault : badRequest('the body was cut off');
  } finally {
    release();
  }
}

function tooLarge(): QueryFault {
  const text = `the body has more than ${MAX_BYTES} bytes`;
  // The rest is not read, so nothing more can come on this connection.
  const headers = { Connection: 'close' };
  return new QueryFault(GrpcCode.invalidArgument, text, { status: 413, headers });
}
