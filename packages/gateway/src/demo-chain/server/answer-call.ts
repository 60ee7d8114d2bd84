import type { IncomingHttpHeaders, OutgoingHttpHeaders, ServerHttp2Stream } from 'node:http2';
import { FrameReader, frameOf } from '../../upstream/grpc/message-frame.js';
import { GrpcCode, GrpcError } from '../../upstream/grpc-error.js';
import { HEIGHT_METADATA, parseHeight } from '../../upstream/height.js';
import type { Answer, AnswerQuery } from './query.js';
import { CONTENT_TYPE, OK_TRAILERS, refuse, trailersOf } from './status-trailers.js';

const MAX_REQUEST_BYTES = 4 * 1024 * 1024;

interface Call {
  readonly method: string;
  readonly headers: IncomingHttpHeaders;
  readonly answer: AnswerQuery;
}

/** Answers a unary call once its request is there. */
export function answerCall(stream: ServerHttp2Stream, call: Call): void {
  const reader = new FrameReader(MAX_REQUEST_BYTES);
  const requests: Buffer[] = [];
  stream.on('data', (piece: Buffer) => {
    try {
      requests.push(...reader.take(piece));
    } catch (error) {
      refuse(stream, asGrpcError(error));
    }
  });
  stream.once('end', () => {
    void answerOf(call, requests).then((answer) => send(stream, answer));
  });
}

async function answerOf(call: Call, requests: readonly Buffer[]): Promise<Answer> {
  try {
    const [request] = requests;
    if (!request || requests.length > 1) {
      throw new GrpcError(
        GrpcCode.internal,
        `a unary call has one message, not ${requests.length}`,
      );
    }
    return await call.answer({ method: call.method, request, height: heightOf(call.headers) });
  } catch (error) {
    return { error: asGrpcError(error) };
  }
}

function heightOf(headers: IncomingHttpHeaders): number | undefined {
  const text = headers[HEIGHT_METADATA];
  if (text === undefined) return undefined;
  const height = parseHeight(text);
  if (height !== undefined) return height;
  throw new GrpcError(GrpcCode.invalidArgument, `invalid height header "${text}": invalid request`);
}

/** As servers do: what is known of a failed call beside the failure goes before it in headers of its own. */
function send(stream: ServerHttp2Stream, answer: Answer): void {
  if (stream.destroyed || stream.headersSent) return;
  const { height } = answer;
  const error = 'error' in answer ? answer.error : undefined;
  if (error && height === undefined) {
    refuse(stream, error);
    return;
  }
  const headers: OutgoingHttpHeaders = { ':status': 200, ...CONTENT_TYPE };
  if (height !== undefined) headers[HEIGHT_METADATA] = String(height);
  stream.respond(headers, { waitForTrailers: true });
  stream.once('wantTrailers', () => stream.sendTrailers(error ? trailersOf(error) : OK_TRAILERS));
  if ('message' in answer) stream.end(frameOf(answer.message));
  else stream.end();
}

function asGrpcError(error: unknown): GrpcError {
  return error instanceof GrpcError ? error : new GrpcError(GrpcCode.unknown, String(error));
}
