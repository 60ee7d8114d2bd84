import { GrpcCode, GrpcError } from '../grpc-error.js';
import type { HeaderFields } from '../http2/header-reader.js';
import type { Session } from '../http2/session.js';
import type { Cut, Stream, StreamListener } from '../http2/stream.js';
import type { MessageExchange } from '../upstream.js';
import { FrameReader, frameOf } from './message-frame.js';
import { cutFault, httpFault, statusOf } from './stream-status.js';

export interface ExchangeOptions {
  readonly headerBlock: Buffer;
  readonly timeoutMs: number;
  readonly maxReplyBytes: number;
}

interface Waiting {
  readonly resolve: (message: Uint8Array) => void;
  readonly reject: (fault: GrpcError) => void;
}

/** A bidirectional stream on which each message has one answer, in order. */
export class Exchange implements MessageExchange, StreamListener {
  private readonly stream: Stream;
  private readonly frames: FrameReader;
  private readonly limit: NodeJS.Timeout;
  private readonly waiting: Waiting[] = [];
  private hasBegun = false;
  private fault: GrpcError | undefined;

  constructor(session: Session, options: ExchangeOptions) {
    this.frames = new FrameReader(options.maxReplyBytes);
    const late = new GrpcError(GrpcCode.deadlineExceeded, 'the exchange took too long');
    this.limit = setTimeout(() => this.fail(late), options.timeoutMs);
    this.stream = session.request(options.headerBlock, this);
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

  onHeaders(headers: HeaderFields): void {
    const status = statusOf(headers) ?? (this.hasBegun ? undefined : httpFault(headers));
    this.hasBegun = true;
    if (status !== undefined && status !== 'ok') this.fail(status);
  }

  onData(piece: Buffer): void {
    try {
      for (const message of this.frames.take(piece)) this.waiting.shift()?.resolve(message);
    } catch (fault) {
      this.fail(fault as GrpcError);
    }
  }

  onEnd(): void {
    this.fail(new GrpcError(GrpcCode.internal, 'the node hung up'));
  }

  onCut(cut: Cut): void {
    this.fail(cutFault(cut));
  }

  private fail(fault: GrpcError): void {
    if (this.fault) return;
    this.fault = fault;
    clearTimeout(this.limit);
    this.stream.cancel();
    for (const { reject } of this.waiting.splice(0)) reject(fault);
  }
}
