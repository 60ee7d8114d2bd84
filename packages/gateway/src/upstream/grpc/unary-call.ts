import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  constants,
  type IncomingHttpHeaders,
} from 'node:http2';
import { GrpcCode, GrpcError } from '../grpc-error.js';
import { HEIGHT_METADATA, parseHeight } from '../height.js';
import type { UpstreamReply } from '../upstream.js';
import { FrameReader, frameOf } from './message-frame.js';
import { httpFault, lostConnection, resetFault, statusOf } from './stream-status.js';

export interface UnaryCall {
  readonly headers: readonly string[];
  readonly message: Uint8Array;
  readonly timeoutMs: number;
  readonly maxReplyBytes: number;
  readonly signal: AbortSignal | undefined;
}

/** Asks one thing on a stream of its own. */
export function callUnary(session: ClientHttp2Session, call: UnaryCall): Promise<UpstreamReply> {
  return new Promise((resolve, reject) => new UnaryStream(session, call, { resolve, reject }));
}

interface Outcome {
  readonly resolve: (reply: UpstreamReply) => void;
  readonly reject: (fault: GrpcError) => void;
}

class UnaryStream {
  private readonly stream: ClientHttp2Stream;
  private readonly frames: FrameReader;
  private readonly limit: NodeJS.Timeout;
  private readonly cancel = () => this.fail(new GrpcError(GrpcCode.cancelled, 'nobody waits'));
  private message: Buffer | undefined;
  private height: number | undefined;
  private status: GrpcError | 'ok' | undefined;
  private isSettled = false;

  constructor(
    private readonly session: ClientHttp2Session,
    private readonly call: UnaryCall,
    private readonly outcome: Outcome,
  ) {
    this.frames = new FrameReader(call.maxReplyBytes);
    this.stream = session.request(call.headers);
    this.limit = setTimeout(() => this.fail(lateFault(call.timeoutMs)), call.timeoutMs);
    call.signal?.addEventListener('abort', this.cancel);
    this.stream
      .on('response', (headers) => this.begin(headers))
      .on('data', (piece: Buffer) => this.take(piece))
      .on('trailers', (headers) => {
        this.status ??= statusOf(headers);
      })
      .on('end', () => this.status && this.end())
      .on('error', (cause) => this.fail(this.faultOf(cause)))
      .on('close', () => this.end());
    this.stream.end(frameOf(call.message));
  }

  private begin(headers: IncomingHttpHeaders): void {
    this.height = parseHeight(headers[HEIGHT_METADATA]);
    this.status = statusOf(headers);
    const fault = this.status ? undefined : httpFault(headers);
    if (fault) this.fail(fault);
  }

  private take(piece: Buffer): void {
    try {
      for (const message of this.frames.take(piece)) {
        if (this.message) throw new GrpcError(GrpcCode.internal, 'the node answered twice');
        this.message = message;
      }
    } catch (fault) {
      this.fail(fault as GrpcError);
    }
  }

  private end(): void {
    const { message, height } = this;
    const fault = this.statusFault();
    if (fault) this.fail(fault);
    else if (!message) this.fail(new GrpcError(GrpcCode.internal, 'the reply is cut short'));
    else if (this.settle()) this.outcome.resolve({ message, height });
  }

  private statusFault(): GrpcError | undefined {
    if (this.status === 'ok') return undefined;
    return this.status ?? this.faultOf();
  }

  /** A connection that breaks takes its streams along, with a code that tells nothing. */
  private faultOf(cause?: Error): GrpcError {
    const { rstCode } = this.stream;
    return this.session.destroyed || !rstCode ? lostConnection(cause) : resetFault(rstCode);
  }

  private fail(fault: GrpcError): void {
    if (!this.settle()) return;
    if (!this.stream.closed) this.stream.close(constants.NGHTTP2_CANCEL);
    this.outcome.reject(fault);
  }

  /** Whether this is the first outcome; what the stream says later counts no more. */
  private settle(): boolean {
    if (this.isSettled) return false;
    this.isSettled = true;
    clearTimeout(this.limit);
    this.call.signal?.removeEventListener('abort', this.cancel);
    return true;
  }
}

function lateFault(timeoutMs: number): GrpcError {
  const text = `the node did not answer within ${timeoutMs} ms`;
  return new GrpcError(GrpcCode.deadlineExceeded, text, 'transport');
}
