/** The part of a tag that says how its value is laid out. */
export const WIRE_TYPE = {
  varint: 0,
  bit64: 1,
  lengthDelimited: 2,
  startGroup: 3,
  endGroup: 4,
  bit32: 5,
};

const MAX_DEPTH = 100;
const NOTHING = new Uint8Array();

/**
 * A cursor over a message's bytes. No read leaves the message that was entered last, and 64-bit values
 * come as two halves, so that nothing is allocated on the way.
 */
export class WireReader {
  bytes: Uint8Array;
  at = 0;
  /** Where the message being read ends. */
  end: number;
  /** The halves of the last varint or 64-bit value, each as a signed 32-bit number. */
  low = 0;
  high = 0;
  /** Where fields were found, of every message being read; a stack of `openFrame`s. */
  frames = new Int32Array(512);
  private frameTop = 0;
  private depth: number;

  constructor(bytes: Uint8Array = NOTHING, depth = 0) {
    // A Buffer would be a second hidden class in every loop over these bytes.
    this.bytes = new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.end = bytes.byteLength;
    this.depth = depth;
  }

  /** Starts over with another message. */
  reset(bytes: Uint8Array): void {
    this.bytes = new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.at = 0;
    this.end = bytes.byteLength;
    this.frameTop = 0;
    this.depth = 0;
  }

  /** A reader of other bytes that belong to the same message. */
  branch(bytes: Uint8Array): WireReader {
    return new WireReader(bytes, this.depth);
  }

  /** Limits the reader to the next embedded message; returns the argument for `leave`. */
  enter(): number {
    const length = this.length();
    return this.narrow(this.at, this.at + length);
  }

  narrow(start: number, end: number): number {
    const outer = this.end;
    this.deepen();
    this.at = start;
    this.end = end;
    return outer;
  }

  leave(outer: number): void {
    this.at = this.end;
    this.end = outer;
    this.depth -= 1;
  }

  /** Allocates zeroed positions for a message's fields; returns the argument for `closeFrame`. */
  openFrame(size: number): number {
    const base = this.frameTop;
    const top = base + size;
    if (top > this.frames.length) this.growFrames(top);
    for (let i = base; i < top; i += 1) this.frames[i] = 0;
    this.frameTop = top;
    return base;
  }

  closeFrame(base: number): void {
    this.frameTop = base;
  }

  /** Reads a varint into `low` and `high`. */
  varint(): void {
    const { bytes, at } = this;
    const first = bytes[at] as number;
    if (at < this.end && first < 0x80) {
      this.at = at + 1;
      this.low = first;
      this.high = 0;
      return;
    }
    this.longVarint();
  }

  tag(): number {
    this.varint();
    if (this.high !== 0 || this.low >>> 3 === 0)
      throw new WireError('The reply has a bad field tag');
    return this.low >>> 0;
  }

  /** Reads a length and checks that the message has that many bytes left. */
  length(): number {
    this.varint();
    if (this.high !== 0 || this.low < 0 || this.low > this.end - this.at) throw truncated();
    return this.low;
  }

  bit32(): void {
    const at = this.take(4);
    this.low = this.int32At(at);
    this.high = 0;
  }

  bit64(): void {
    const at = this.take(8);
    this.low = this.int32At(at);
    this.high = this.int32At(at + 4);
  }

  /** Skips the value of the tag that was just read. */
  skip(tag: number): void {
    switch (tag & 7) {
      case WIRE_TYPE.varint:
        this.varint();
        return;
      case WIRE_TYPE.bit64:
        this.take(8);
        return;
      case WIRE_TYPE.lengthDelimited:
        this.take(this.length());
        return;
      case WIRE_TYPE.bit32:
        this.take(4);
        return;
      case WIRE_TYPE.startGroup:
        this.skipGroup(tag >>> 3);
        return;
      default:
        throw new WireError('The reply has a bad wire type');
    }
  }

  private skipGroup(number: number): void {
    this.deepen();
    for (let tag = this.tag(); (tag & 7) !== WIRE_TYPE.endGroup; tag = this.tag()) this.skip(tag);
    if (this.low >>> 3 !== number) throw new WireError('The reply has an unterminated group');
    this.depth -= 1;
  }

  private deepen(): void {
    this.depth += 1;
    if (this.depth > MAX_DEPTH) throw new WireError('The reply is nested too deeply');
  }

  private longVarint(): void {
    const { bytes, at } = this;
    if (at + 1 < this.end && (bytes[at + 1] as number) < 0x80) {
      this.at = at + 2;
      this.low = ((bytes[at] as number) & 0x7f) | ((bytes[at + 1] as number) << 7);
      this.high = 0;
      return;
    }
    this.low = 0;
    this.high = 0;
    for (let shift = 0; shift < 70; shift += 7) {
      const byte = this.byte();
      const bits = byte & 0x7f;
      if (shift < 32) this.low |= bits << shift;
      if (shift > 24) this.high |= shift < 32 ? bits >> (32 - shift) : bits << (shift - 32);
      if (byte < 0x80) return;
    }
    throw new WireError('The reply has an integer of more than 64 bits');
  }

  private byte(): number {
    return this.bytes[this.take(1)] as number;
  }

  private take(length: number): number {
    const { at } = this;
    if (length > this.end - at) throw truncated();
    this.at = at + length;
    return at;
  }

  private int32At(at: number): number {
    const { bytes } = this;
    return (
      (bytes[at] as number) |
      ((bytes[at + 1] as number) << 8) |
      ((bytes[at + 2] as number) << 16) |
      ((bytes[at + 3] as number) << 24)
    );
  }

  private growFrames(size: number): void {
    const grown = new Int32Array(Math.max(size, this.frames.length * 2));
    grown.set(this.frames);
    this.frames = grown;
  }
}

function truncated(): WireError {
  return new WireError('The reply is truncated');
}

/** The node's reply does not match its descriptors: malformed bytes, or an Any of unknown type. */
export class WireError extends Error {
  override readonly name = 'WireError';
}
