import type { ServerHttp2Stream } from 'node:http2';
import { FrameReader, frameOf } from '../../upstream/grpc/message-frame.js';
import { CONTENT_TYPE, OK_TRAILERS } from './status-trailers.js';

const MAX_REQUEST_BYTES = 64 * 1024;

/** The answer to each message of a stream. */
export type MessageAnswers = (message: Uint8Array) => Uint8Array;

/** Answers the messages of a stream one by one, until the client has no more. */
export function answerStream(stream: ServerHttp2Stream, answerTo: MessageAnswers): void {
  const reader = new FrameReader(MAX_REQUEST_BYTES);
  stream.respond({ ':status': 200, ...CONTENT_TYPE }, { waitForTrailers: true });
  stream.once('wantTrailers', () => stream.sendTrailers(OK_TRAILERS));
  stream.on('data', (piece: Buffer) => {
    try {
      for (const message of reader.take(piece)) stream.write(frameOf(answerTo(message)));
    } catch {
      // Nothing sensible can follow a broken message.
      stream.close();
    }
  });
  stream.once('end', () => stream.end());
}
