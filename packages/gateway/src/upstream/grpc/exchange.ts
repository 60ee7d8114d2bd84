import { type ClientHttp2Session, type ClientHttp2Stream, constants } from 'node:http2';
import { GrpcCode, GrpcError } from '../grpc-error.js';
import type { MessageExchange } from '../upstream.js';
import { FrameReader, frameOf } from './message-frame.js';
import { httpFault, resetFault, statusOf } from './stream-status.js';

export interface ExchangeOptions {
  readonly headers: readonly string[];
  readonly timeoutMs: number;
  readonly maxReplyBytes: number;
}

interface Waiting {
  readonly resolve: (message: Uint8Array) => void;
  readonly reject: (fault: GrpcError) => void;
}

/** A bidirectional stream on which each message has one answer, in order. */
export class Exchange implements MessageExchange {
  private readonly stream: ClientHttp2Stream;
  private readonly frames: FrameReader;
  private readonly limit: NodeJS.Timeout;
  private readonly waiting: Waiting[] = [];
  private fault: GrpcError | undefined;

  constructor(session: ClientHttp2Session, options: ExchangeOptions) {
    this.frames = new FrameReader(options.maxReplyBytes);
    this.stream = session.request(options.headers);
    const late = new GrpcError(GrpcCode.deadlineExceeded, 'the exchange took too long');
    this.limit = setTimeout(() => this.fail(late), options.timeoutMs);
    this.stream
      .on('response', (headers) => this.check(statusOf(headers) ?? httpFault(headers)))
      .on('data', (piece: Buffer) => this.take(piece))
      .on('trailers', (headers) => this.check(statusOf(headers)))
      .on('error', () => this.fail(resetFault(this.stream.rstCode ?? 0)))
      .on('close', () => this.fail(resetFault(this.stream.rstCode ?? 0)));
  }

  ask(message: Uint8Array): Promise<Uint8Array> {
    if (this.fault) return Promise.reject(this.fault);
    return new Promise((resolve, reject) => {
      this.waiting.push({ resolve, reject });
      this.stream.write(frameOf(message));
    });
  }

  close(): void {
    this.fail(new GrpcError(GrpcCode.cancelled, 'the exchange is over'));
  }

  private check(status: GrpcError | 'ok' | undefined): void {
    if (status === undefined) return;
    this.fail(status === 'ok' ? new GrpcError(GrpcCode.internal, 'the node hung up') : status);
  }

  private take(piece: Buffer): void {
    try {
      for (const message of this.frames.take(piece)) this.waiting.shift()?.resolve(message);
    } catch (fault) {
      this.fail(fault as GrpcError);
    }
  }

  private fail(fault: GrpcError): void {
    if (this.fault) return;
    this.fault = fault;
    clearTimeout(this.limit);
    if (!this.stream.closed) this.stream.close(constants.NGHTTP2_CANCEL);
    for (const { reject } of this.waiting.splice(0)) reject(fault);
  }
}
