import type { HeaderFields } from './header-reader.js';
import { ReceiveWindow } from './receive-window.js';

/** Room for a large reply without waiting for permission to go on. */
export const STREAM_WINDOW = 4 * 1024 * 1024;

/** Hears what comes on a stream. */
export interface StreamListener {
  /** Headers first, trailers last. */
  onHeaders(fields: HeaderFields): void;
  onData(piece: Buffer): void;
  /** The other side has said all. */
  onEnd(): void;
  /** Nothing more comes: the stream was reset with a code, or its connection is gone. */
  onCut(cut: Cut): void;
}

export interface Cut {
  readonly code?: number | undefined;
  readonly cause?: Error | undefined;
}

/** What a stream needs of its connection. */
interface Carrier {
  /** Sends as much as may go now, ending the stream with the last of it; says how much went. */
  sendData(stream: Stream, bytes: Buffer): number;
  cancel(stream: Stream): void;
}

/** One request and its answer on a connection that carries many. */
export class Stream {
  /** 0 while it waits to be opened. */
  id = 0;
  /** How much may be sent before the other side allows more. */
  window = 0;
  readonly received = new ReceiveWindow(STREAM_WINDOW);
  /** Whether nothing follows what is being sent. */
  isEnding = false;
  private pending: Buffer | undefined;

  constructor(
    private readonly carrier: Carrier,
    readonly headerBlock: Buffer,
    readonly listener: StreamListener,
  ) {}

  write(bytes: Buffer): void {
    this.pending = this.pending ? Buffer.concat([this.pending, bytes]) : bytes;
    this.pump();
  }

  /** Writes the last there is to say. */
  end(bytes: Buffer): void {
    this.isEnding = true;
    this.write(bytes);
  }

  /** Whether all there was to say has gone out. */
  get isSent(): boolean {
    return this.isEnding && !this.pending;
  }

  /** Ends it early; its listener hears nothing more. */
  cancel(): void {
    this.carrier.cancel(this);
  }

  /** Sends what waits, as far as it may go. */
  pump(): void {
    if (this.id === 0 || !this.pending) return;
    const sent = this.carrier.sendData(this, this.pending);
    this.pending = sent < this.pending.length ? this.pending.subarray(sent) : undefined;
  }
}
