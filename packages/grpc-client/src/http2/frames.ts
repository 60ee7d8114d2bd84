import type { Socket } from 'node:net';
import { HpackDecoder } from './hpack.js';
import { ErrorCode, Flag, FrameType, ProtocolError } from './protocol.js';
import type { HeaderFields } from './transport.js';

export interface FrameHead {
  readonly type: number;
  readonly flags: number;
  readonly streamId: number;
}

/** The payload is valid only during the call. */
type OnFrame = (head: FrameHead, payload: Buffer) => void;

/** Length, type, flags and stream, before every payload. */
export const HEAD_BYTES = 9;

/** Encodes the head of a frame whose payload has `length` bytes. */
export function encodeHead(head: FrameHead, length: number): Buffer {
  const bytes = Buffer.allocUnsafe(HEAD_BYTES);
  writeHead(bytes, 0, head, length);
  return bytes;
}

function writeHead(bytes: Buffer, at: number, head: FrameHead, length: number): void {
  const { type, flags, streamId } = head;
  bytes.writeUIntBE(length, at, 3);
  bytes[at + 3] = type;
  bytes[at + 4] = flags;
  bytes.writeUInt32BE(streamId, at + 5);
}

/** Splits received bytes into frames. Copies only frames that arrive in parts. */
export class FrameReader {
  private readonly held: Buffer;
  private heldBytes = 0;

  constructor(
    private readonly maxFrame: number,
    private readonly onFrame: OnFrame,
  ) {
    this.held = Buffer.allocUnsafe(HEAD_BYTES + maxFrame);
  }

  /** The bytes may be overwritten afterwards. */
  read(bytes: Buffer): void {
    let at = this.heldBytes > 0 ? this.complete(bytes) : 0;
    while (bytes.length - at >= HEAD_BYTES) {
      const end = at + this.sizeAt(bytes, at);
      if (end > bytes.length) break;
      this.emit(bytes, at, end);
      at = end;
    }
    this.hold(bytes, at, bytes.length - at);
  }

  /** Completes the partial frame; returns where the next one starts. */
  private complete(bytes: Buffer): number {
    const at = this.hold(bytes, 0, HEAD_BYTES - this.heldBytes);
    if (this.heldBytes < HEAD_BYTES) return at;
    const size = this.sizeAt(this.held, 0);
    const end = this.hold(bytes, at, size - this.heldBytes);
    if (this.heldBytes < size) return end;
    this.heldBytes = 0;
    this.emit(this.held, 0, size);
    return end;
  }

  private hold(bytes: Buffer, at: number, count: number): number {
    const end = Math.min(bytes.length, at + Math.max(0, count));
    this.heldBytes += bytes.copy(this.held, this.heldBytes, at, end);
    return end;
  }

  private emit(bytes: Buffer, at: number, end: number): void {
    const streamId = bytes.readUInt32BE(at + 5) & 0x7fffffff;
    const head = { type: bytes[at + 3] ?? 0, flags: bytes[at + 4] ?? 0, streamId };
    this.onFrame(head, bytes.subarray(at + HEAD_BYTES, end));
  }

  private sizeAt(bytes: Buffer, at: number): number {
    const length = bytes.readUIntBE(at, 3);
    if (length <= this.maxFrame) return HEAD_BYTES + length;
    throw new ProtocolError(`a frame of ${length} bytes is too large`, ErrorCode.frameSize);
  }
}

/** Removes the padding from a payload. */
export function removePadding(payload: Buffer, flags: number): Buffer {
  if ((flags & Flag.padded) === 0) return payload;
  const end = payload.length - (payload[0] ?? 0);
  if (end < 1) throw new ProtocolError('the padding of a frame exceeds its payload');
  return payload.subarray(1, end);
}

/** Reads the 32-bit integer at the start of a payload. */
export function readUint32(payload: Buffer): number {
  if (payload.length < 4) throw new ProtocolError('a frame is truncated', ErrorCode.frameSize);
  return payload.readUInt32BE(0);
}

const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
const NOTHING = Buffer.alloc(0);

/** Room for the frames of many small requests. */
const BATCH_BYTES = 16 * 1024;

/** Answers to the peer that it has not read yet; more than a peer that reads ever causes. */
const MAX_UNSENT_ANSWERS = 10_000;

/** Sends frames. Collects those of one event loop turn, since a write costs more than its bytes. */
export class FrameWriter {
  private batch = Buffer.allocUnsafe(BATCH_BYTES);
  private used = PREFACE.copy(this.batch);
  private isScheduled = false;
  /** Answers in the batch, and all that the system has not taken yet. */
  private answers = 0;
  private unsentAnswers = 0;

  constructor(private readonly socket: Socket) {}

  send(head: FrameHead, payload: Buffer): void {
    if (!this.isScheduled) {
      this.isScheduled = true;
      setImmediate(() => this.flush());
    }
    const size = HEAD_BYTES + payload.length;
    if (this.used + size > this.batch.length) this.makeRoom(size);
    writeHead(this.batch, this.used, head, payload.length);
    payload.copy(this.batch, this.used + HEAD_BYTES);
    this.used += size;
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

  ackSettings(): void {
    this.countAnswer();
    this.send({ type: FrameType.settings, flags: Flag.ack, streamId: 0 }, NOTHING);
  }

  ping(payload: Buffer): void {
    this.send({ type: FrameType.ping, flags: 0, streamId: 0 }, payload);
  }

  ackPing(payload: Buffer): void {
    this.countAnswer();
    this.send({ type: FrameType.ping, flags: Flag.ack, streamId: 0 }, payload);
  }

  /** Extends the window of a stream, or of the connection (stream 0). */
  extendWindow(streamId: number, bytes: number): void {
    this.send({ type: FrameType.windowUpdate, flags: 0, streamId }, encodeUint32s(bytes));
  }

  reset(streamId: number, code: number): void {
    this.send({ type: FrameType.reset, flags: 0, streamId }, encodeUint32s(code));
  }

  /** Flushes, since the socket closes next. */
  goAway(code: number): void {
    this.send({ type: FrameType.goAway, flags: 0, streamId: 0 }, encodeUint32s(0, code));
    this.flush();
  }

  /** Opens a stream; a block that does not fit into one frame continues in others. */
  headers(streamId: number, block: Buffer, maxFrame: number): void {
    for (let at = 0; at === 0 || at < block.length; at += maxFrame) {
      const type = at === 0 ? FrameType.headers : FrameType.continuation;
      const flags = at + maxFrame >= block.length ? Flag.endHeaders : 0;
      this.send({ type, flags, streamId }, block.subarray(at, at + maxFrame));
    }
  }

  flush(): void {
    this.isScheduled = false;
    if (this.used === 0) return;
    const bytes = this.batch.subarray(0, this.used);
    this.used = 0;
    if (!this.socket.writable) return;
    // What the system has not taken yet must not be overwritten.
    const isBlocked = this.socket.writableLength > 0;
    this.write(isBlocked ? Buffer.from(bytes) : bytes);
    if (isBlocked || this.socket.writableLength === 0) return;
    this.batch = Buffer.allocUnsafe(BATCH_BYTES);
  }

  private write(bytes: Buffer): void {
    const { answers } = this;
    this.answers = 0;
    const onTaken = () => {
      this.unsentAnswers -= answers;
    };
    this.socket.write(bytes, answers > 0 ? onTaken : undefined);
  }

  /** The peer must read the answers to what it sends, or they would use more and more memory. */
  private countAnswer(): void {
    this.answers += 1;
    this.unsentAnswers += 1;
    if (this.unsentAnswers <= MAX_UNSENT_ANSWERS) return;
    throw new ProtocolError('the peer does not read', ErrorCode.enhanceYourCalm);
  }

  private makeRoom(size: number): void {
    const scheduled = this.isScheduled;
    this.flush();
    this.isScheduled = scheduled;
    if (size > this.batch.length) this.batch = Buffer.allocUnsafe(Math.max(size, BATCH_BYTES));
  }
}

function encodeUint32s(...values: number[]): Buffer {
  const payload = Buffer.allocUnsafe(4 * values.length);
  values.forEach((value, i) => void payload.writeUInt32BE(value, 4 * i));
  return payload;
}

const MAX_BLOCK_BYTES = 64 * 1024;
/** Dependency and weight, which a client ignores. */
const PRIORITY_BYTES = 5;

/** The headers or the trailers of a stream. */
export interface HeaderSection {
  readonly streamId: number;
  readonly fields: HeaderFields;
  /** Whether the section ends the stream. */
  readonly isLast: boolean;
}

/** A section whose block continues in the next frame. */
interface Unfinished {
  readonly head: FrameHead;
  readonly chunks: Buffer[];
  bytes: number;
}

/** Reads header sections from HEADERS and CONTINUATION frames. */
export class HeaderSectionReader {
  private readonly decoder = new HpackDecoder();
  private unfinished: Unfinished | undefined;

  /** Throws if the frame interrupts a header section. */
  checkOrder({ type, streamId }: FrameHead): void {
    const expected = this.unfinished?.head.streamId;
    const actual = type === FrameType.continuation ? streamId : undefined;
    if (actual !== expected) throw new ProtocolError('a frame interrupts the headers of a stream');
  }

  /** Returns the section once it is complete. */
  read(head: FrameHead, payload: Buffer): HeaderSection | undefined {
    const isFirst = head.type === FrameType.headers;
    const chunk = isFirst ? extractBlock(payload, head.flags) : payload;
    if (isFirst && isEndOfHeaders(head)) return this.decode(head, chunk);
    this.unfinished ??= { head, chunks: [], bytes: 0 };
    const { chunks, head: first } = this.unfinished;
    chunks.push(Buffer.from(chunk));
    this.unfinished.bytes += HEAD_BYTES + chunk.length;
    if (this.unfinished.bytes > MAX_BLOCK_BYTES) throw tooLarge();
    if (!isEndOfHeaders(head)) return undefined;
    this.unfinished = undefined;
    return this.decode(first, Buffer.concat(chunks));
  }

  private decode({ streamId, flags }: FrameHead, block: Buffer): HeaderSection | undefined {
    const fields = this.decoder.decode(block);
    const isLast = (flags & Flag.endStream) !== 0;
    return isInformational(fields) ? undefined : { streamId, isLast, fields };
  }
}

const isEndOfHeaders = ({ flags }: FrameHead) => (flags & Flag.endHeaders) !== 0;

function extractBlock(payload: Buffer, flags: number): Buffer {
  const plain = removePadding(payload, flags);
  return (flags & Flag.priority) === 0 ? plain : plain.subarray(PRIORITY_BYTES);
}

/** Whether these are the headers of a 1xx response, before the actual ones. */
function isInformational(fields: HeaderFields): boolean {
  return fields.get(':status')?.startsWith('1') ?? false;
}

function tooLarge(): ProtocolError {
  const text = `a header block has more than ${MAX_BLOCK_BYTES} bytes`;
  return new ProtocolError(text, ErrorCode.enhanceYourCalm);
}
