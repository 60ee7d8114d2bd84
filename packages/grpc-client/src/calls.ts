import { GrpcCode, GrpcError, readHttpError, readStatus, toGrpcError } from './grpc-error.js';
import type {
  HeaderFields,
  RequestHeaders,
  Session,
  Stream,
  StreamError,
  StreamListener,
} from './http2/transport.js';
import {
  encodeMessage,
  MessageReader,
  type ReplyMemory,
  type ReplyReservation,
} from './message-framing.js';

export interface GrpcReply {
  /** The encoded response message. */
  readonly message: Uint8Array;
  /** The response headers, not the trailers. */
  readonly headers: ReadonlyMap<string, string>;
}

/** A bidirectional call in which the server sends one reply per message, in order. */
export interface MessageStream {
  send(message: Uint8Array): Promise<Uint8Array>;
  close(): void;
}

/** The part of an `AbortSignal` that calls use; a smaller object makes them cheaper. */
export interface CancelSignal {
  readonly aborted: boolean;
  addEventListener(type: 'abort', listener: () => void): void;
  removeEventListener(type: 'abort', listener: () => void): void;
}

export interface UnaryCall {
  readonly headers: RequestHeaders;
  readonly message: Uint8Array;
  readonly timeoutMs: number;
  readonly maxReplyBytes: number;
  readonly signal: CancelSignal | undefined;
  readonly memory: ReplyMemory;
  /** Who the memory of the reply is counted for. */
  readonly owner: string | undefined;
  /** Called when the call exceeds its timeout. */
  readonly onTimeout: () => void;
}

/** Sends one request on its own stream and resolves to the reply. */
export function callUnary(session: Session, call: UnaryCall): Promise<GrpcReply> {
  if (call.signal?.aborted) return Promise.reject(canceled());
  return new Promise((resolve, reject) => new PendingUnaryCall(session, call, { resolve, reject }));
}

export const canceled = () => new GrpcError(GrpcCode.cancelled, 'the caller canceled the call');

interface Outcome<T> {
  readonly resolve: (value: T) => void;
  readonly reject: (error: GrpcError) => void;
}

const NO_HEADERS: HeaderFields = new Map();

class PendingUnaryCall implements StreamListener {
  private readonly stream: Stream;
  private readonly reader: MessageReader;
  private readonly timer: NodeJS.Timeout;
  private readonly cancel = () => this.fail(canceled());
  private message: Buffer | undefined;
  private headers: HeaderFields | undefined;
  private status: GrpcError | 'ok' | undefined;
  private readonly reserved: ReplyReservation;

  constructor(
    session: Session,
    private readonly call: UnaryCall,
    private readonly outcome: Outcome<GrpcReply>,
  ) {
    this.reserved = call.memory.reserve(call.owner);
    this.reader = new MessageReader(call.maxReplyBytes, this.reserved);
    this.timer = setTimeout(() => this.expire(), call.timeoutMs);
    call.signal?.addEventListener('abort', this.cancel);
    this.stream = session.request(call.headers, this);
    this.stream.end(encodeMessage(call.message));
  }

  onHeaders(headers: HeaderFields): void {
    this.status = readStatus(headers);
    if (this.headers) return;
    this.headers = headers;
    const error = this.status ? undefined : readHttpError(headers);
    if (error) this.fail(error);
  }

  onData(bytes: Buffer): void {
    try {
      for (const message of this.reader.read(bytes)) {
        if (this.message) throw new GrpcError(GrpcCode.internal, 'the node sent two replies');
        this.message = message;
      }
    } catch (error) {
      this.fail(error as GrpcError);
    }
  }

  onEnd(): void {
    this.settle();
    const { message, headers = NO_HEADERS } = this;
    if (this.status !== 'ok') this.outcome.reject(this.status ?? toGrpcError({}));
    else if (message) this.outcome.resolve({ message, headers });
    else this.outcome.reject(new GrpcError(GrpcCode.internal, 'the reply is incomplete'));
  }

  onError(error: StreamError): void {
    this.settle();
    this.outcome.reject(toGrpcError(error));
  }

  private expire(): void {
    this.fail(deadlineExceeded(this.call.timeoutMs));
    this.call.onTimeout();
  }

  private fail(error: GrpcError): void {
    this.settle();
    this.stream.cancel();
    this.outcome.reject(error);
  }

  private settle(): void {
    clearTimeout(this.timer);
    this.reserved.release();
    this.call.signal?.removeEventListener('abort', this.cancel);
  }
}

function deadlineExceeded(timeoutMs: number): GrpcError {
  const text = `the node did not answer within ${timeoutMs} ms`;
  return new GrpcError(GrpcCode.deadlineExceeded, text, 'transport');
}

export interface BidirectionalCallOptions {
  readonly headers: RequestHeaders;
  readonly timeoutMs: number;
  readonly maxReplyBytes: number;
}

export class BidirectionalCall implements MessageStream, StreamListener {
  private readonly stream: Stream;
  private readonly reader: MessageReader;
  private readonly timer: NodeJS.Timeout;
  private readonly pending: Outcome<Uint8Array>[] = [];
  private hasHeaders = false;
  private error: GrpcError | undefined;

  constructor(session: Session, options: BidirectionalCallOptions) {
    this.reader = new MessageReader(options.maxReplyBytes);
    this.timer = setTimeout(() => this.fail(streamTimedOut()), options.timeoutMs);
    this.stream = session.request(options.headers, this);
  }

  send(message: Uint8Array): Promise<Uint8Array> {
    if (this.error) return Promise.reject(this.error);
    return new Promise((resolve, reject) => {
      this.pending.push({ resolve, reject });
      this.stream.write(encodeMessage(message));
    });
  }

  close(): void {
    this.fail(new GrpcError(GrpcCode.cancelled, 'the stream is closed'));
  }

  onHeaders(headers: HeaderFields): void {
    const status = readStatus(headers) ?? (this.hasHeaders ? undefined : readHttpError(headers));
    this.hasHeaders = true;
    if (status !== undefined && status !== 'ok') this.fail(status);
  }

  onData(bytes: Buffer): void {
    try {
      for (const message of this.reader.read(bytes)) this.pending.shift()?.resolve(message);
    } catch (error) {
      this.fail(error as GrpcError);
    }
  }

  onEnd(): void {
    this.fail(new GrpcError(GrpcCode.internal, 'the node closed the stream'));
  }

  onError(error: StreamError): void {
    this.fail(toGrpcError(error));
  }

  private fail(error: GrpcError): void {
    if (this.error) return;
    this.error = error;
    clearTimeout(this.timer);
    this.stream.cancel();
    for (const { reject } of this.pending.splice(0)) reject(error);
  }
}

const streamTimedOut = () =>
  new GrpcError(GrpcCode.deadlineExceeded, 'the stream exceeded its time limit');
