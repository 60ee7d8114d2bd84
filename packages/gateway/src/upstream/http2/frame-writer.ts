import type { Socket } from 'node:net';
import { type FrameHead, headOf } from './frames.js';
import { Flag, FrameType } from './protocol.js';

const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
const NOTHING = Buffer.alloc(0);

/** Sends frames: all of one round of the event loop together, since each write costs more than what it carries. */
export class FrameWriter {
  private waiting: Buffer[] = [PREFACE];

  constructor(private readonly socket: Socket) {}

  send(head: FrameHead, payload: Buffer): void {
    if (this.waiting.length === 0) setImmediate(() => this.flush());
    this.waiting.push(headOf(head, payload.length), payload);
  }

  settings(settings: Readonly<Record<number, number>>): void {
    const payload = Buffer.concat(
      Object.entries(settings).map(([id, value]) => {
        const entry = Buffer.allocUnsafe(6);
        entry.writeUInt16BE(Number(id));
        entry.writeUInt32BE(value, 2);
        return entry;
      }),
    );
    this.send({ type: FrameType.settings, flags: 0, streamId: 0 }, payload);
  }

  settingsTaken(): void {
    this.send({ type: FrameType.settings, flags: Flag.ack, streamId: 0 }, NOTHING);
  }

  ping(payload: Buffer, flags: number): void {
    this.send({ type: FrameType.ping, flags, streamId: 0 }, payload);
  }

  /** Allows the other side so many bytes more, on a stream or (0) on all together. */
  allow(streamId: number, bytes: number): void {
    this.send({ type: FrameType.windowUpdate, flags: 0, streamId }, numbers(bytes));
  }

  reset(streamId: number, code: number): void {
    this.send({ type: FrameType.reset, flags: 0, streamId }, numbers(code));
  }

  /** Tells why the connection ends, at once. */
  goAway(code: number): void {
    this.send({ type: FrameType.goAway, flags: 0, streamId: 0 }, numbers(0, code));
    this.flush();
  }

  /** Begins a stream; a block that is too large for one frame goes on in others. */
  headers(streamId: number, block: Buffer, maxFrame: number): void {
    for (let at = 0; at === 0 || at < block.length; at += maxFrame) {
      const type = at === 0 ? FrameType.headers : FrameType.continuation;
      const flags = at + maxFrame >= block.length ? Flag.endHeaders : 0;
      this.send({ type, flags, streamId }, block.subarray(at, at + maxFrame));
    }
  }

  flush(): void {
    const bytes = Buffer.concat(this.waiting);
    this.waiting = [];
    if (this.socket.writable) this.socket.write(bytes);
  }
}

function numbers(...values: number[]): Buffer {
  const payload = Buffer.allocUnsafe(4 * values.length);
  values.forEach((value, i) => void payload.writeUInt32BE(value, 4 * i));
  return payload;
}
