import { GrpcCode, GrpcError } from '../grpc-error.js';
import { HEIGHT_METADATA, parseHeight } from '../height.js';
import type { HeaderFields } from '../http2/header-reader.js';
import type { Session } from '../http2/session.js';
import type { Cut, Stream, StreamListener } from '../http2/stream.js';
import type { ReplyMemory, ReplyReservation } from '../reply-memory.js';
import type { UpstreamReply } from '../upstream.js';
import { FrameReader, frameOf } from './message-frame.js';
import { cutFault, httpFault, statusOf } from './stream-status.js';

export interface UnaryCall {
  readonly headerBlock: Buffer;
  readonly message: Uint8Array;
  readonly timeoutMs: number;
  readonly maxReplyBytes: number;
  readonly signal: AbortSignal | undefined;
  readonly memory: ReplyMemory;
}

/** Asks one thing on a stream of its own. */
export function callUnary(session: Session, call: UnaryCall): Promise<UpstreamReply> {
  return new Promise((resolve, reject) => new UnaryAnswer(session, call, { resolve, reject }));
}

interface Outcome {
  readonly resolve: (reply: UpstreamReply) => void;
  readonly reject: (fault: GrpcError) => void;
}

class UnaryAnswer implements StreamListener {
  private readonly stream: Stream;
  private readonly frames: FrameReader;
  private readonly limit: NodeJS.Timeout;
  private readonly cancel = () => this.fail(new GrpcError(GrpcCode.cancelled, 'nobody waits'));
  private message: Buffer | undefined;
  private height: number | undefined;
  private status: GrpcError | 'ok' | undefined;
  private hasBegun = false;
  private readonly reserved: ReplyReservation;

  constructor(
    session: Session,
    private readonly call: UnaryCall,
    private readonly outcome: Outcome,
  ) {
    this.reserved = call.memory.reserve();
    this.frames = new FrameReader(call.maxReplyBytes, this.reserved.grow);
    this.limit = setTimeout(() => this.fail(lateFault(call.timeoutMs)), call.timeoutMs);
    call.signal?.addEventListener('abort', this.cancel);
    this.stream = session.request(call.headerBlock, this);
    this.stream.end(frameOf(call.message));
  }

  onHeaders(headers: HeaderFields): void {
    this.status = statusOf(headers);
    if (this.hasBegun) return;
    this.hasBegun = true;
    this.height = parseHeight(headers.get(HEIGHT_METADATA));
    const fault = this.status ? undefined : httpFault(headers);
    if (fault) this.fail(fault);
  }

  onData(piece: Buffer): void {
    try {
      for (const message of this.frames.take(piece)) {
        if (this.message) throw new GrpcError(GrpcCode.internal, 'the node answered twice');
        this.message = message;
      }
    } catch (fault) {
      this.fail(fault as GrpcError);
    }
  }

  onEnd(): void {
    this.settle();
    const { message, height } = this;
    if (this.status !== 'ok') this.outcome.reject(this.status ?? cutFault({}));
    else if (message) this.outcome.resolve({ message, height });
    else this.outcome.reject(new GrpcError(GrpcCode.internal, 'the reply is cut short'));
  }

  onCut(cut: Cut): void {
    this.settle();
    this.outcome.reject(cutFault(cut));
  }

  private fail(fault: GrpcError): void {
    this.settle();
    this.stream.cancel();
    this.outcome.reject(fault);
  }

  private settle(): void {
    clearTimeout(this.limit);
    this.reserved.release();
    this.call.signal?.removeEventListener('abort', this.cancel);
  }
}

function lateFault(timeoutMs: number): GrpcError {
  const text = `the node did not answer within ${timeoutMs} ms`;
  return new GrpcError(GrpcCode.deadlineExceeded, text, 'transport');
}
