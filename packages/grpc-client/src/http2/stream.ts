import { STREAM_WINDOW, type Stream, type StreamListener } from './transport.js';

/** The connection of a stream. */
interface StreamCarrier {
  /** Sends what the flow control windows allow and returns the number of bytes; the last ones end the stream. */
  sendData(stream: OwnStream, bytes: Buffer): number;
  cancel(stream: OwnStream): void;
}

/** One request and its response on a connection that carries many. */
export class OwnStream implements Stream {
  /** 0 until the stream is opened. */
  id = 0;
  /** Bytes that may be sent before the peer allows more. */
  window = 0;
  readonly received = new ReceiveWindow(STREAM_WINDOW);
  /** Whether `end` was called. */
  isEnding = false;
  private pending: Buffer | undefined;

  constructor(
    private readonly carrier: StreamCarrier,
    readonly headerBlock: Buffer,
    readonly listener: StreamListener,
  ) {}

  write(bytes: Buffer): void {
    this.pending = this.pending ? Buffer.concat([this.pending, bytes]) : bytes;
    this.pump();
  }

  end(bytes: Buffer): void {
    this.isEnding = true;
    this.write(bytes);
  }

  /** Whether the whole request was sent. */
  get isSent(): boolean {
    return this.isEnding && !this.pending;
  }

  cancel(): void {
    this.carrier.cancel(this);
  }

  /** Sends pending bytes as far as the windows allow. */
  pump(): void {
    if (this.id === 0 || !this.pending) return;
    const sent = this.carrier.sendData(this, this.pending);
    this.pending = sent < this.pending.length ? this.pending.subarray(sent) : undefined;
  }
}

/** Reports how much more the peer may send; it is allowed more when half of the window is used. */
export class ReceiveWindow {
  private used = 0;

  constructor(private readonly bytes: number) {}

  /** Counts received bytes and returns by how many to extend the window now. */
  take(bytes: number): number {
    this.used += bytes;
    if (this.used <= this.bytes / 2) return 0;
    const extension = this.used;
    this.used = 0;
    return extension;
  }
}
