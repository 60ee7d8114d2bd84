import { WIRE_TYPE, WireError, WireReader } from './wire-reader.js';

const FIRST_SIZE = 16 * 1024;
/** Larger buffers are not reused. */
const LARGEST_KEPT = 1024 * 1024;
const BRACES = { open: 0x7b, close: 0x7d };
const BRACKETS = { open: 0x5b, close: 0x5d };

/** A buffer for JSON text. */
export class JsonSink {
  buffer = new Uint8Array(FIRST_SIZE);
  /** Of the same memory. */
  view = new DataView(this.buffer.buffer);
  /** Where the next byte goes. */
  at = 0;

  constructor(public maxBytes = Number.POSITIVE_INFINITY) {}

  /** Returns the buffer with space for `size` more bytes; the next call may replace it. */
  reserve(size: number): Uint8Array {
    const needed = this.at + size;
    if (needed > this.buffer.length) this.grow(needed);
    return this.buffer;
  }

  byte(byte: number): void {
    this.reserve(1)[this.at] = byte;
    this.at += 1;
  }

  label({ length, steps }: Label): void {
    const { at } = this;
    this.reserve(steps.length * 8);
    for (let i = 0; i < steps.length; i += 1) {
      this.view.setFloat64(at + i * 8, steps[i] as number, true);
    }
    this.at = at + length;
  }

  /** Appends bytes that are JSON already. */
  raw(bytes: Uint8Array): void {
    const buffer = this.reserve(bytes.length);
    let { at } = this;
    // For the short pieces this is made for, a loop is faster than a native copy.
    for (let i = 0; i < bytes.length; i += 1) {
      buffer[at] = bytes[i] as number;
      at += 1;
    }
    this.at = at;
  }

  /** Appends JSON that is ASCII. */
  ascii(text: string): void {
    const buffer = this.reserve(text.length);
    let { at } = this;
    for (let i = 0; i < text.length; i += 1) {
      buffer[at] = text.charCodeAt(i);
      at += 1;
    }
    this.at = at;
  }

  /** Opens and closes the object whose members, each preceded by a comma, start at `start`. */
  closeObject(start: number): void {
    this.open(start, BRACES.open);
    this.byte(BRACES.close);
  }

  /** Opens and closes the list whose items, each preceded by a comma, start at `start`. */
  closeList(start: number): void {
    this.open(start, BRACKETS.open);
    this.byte(BRACKETS.close);
  }

  /** Returns a copy of the text and clears the buffer. */
  take(): Buffer {
    const taken = Buffer.from(this.buffer.subarray(0, this.at));
    this.clear();
    return taken;
  }

  clear(): void {
    this.at = 0;
    if (this.buffer.length > LARGEST_KEPT) this.use(new Uint8Array(FIRST_SIZE));
  }

  /** Replaces the first comma. */
  private open(start: number, opening: number): void {
    if (this.at === start) this.byte(opening);
    else this.buffer[start] = opening;
  }

  private grow(needed: number): void {
    if (needed > this.maxBytes) throw new LongJsonError(this.maxBytes);
    const doubled = Math.min(this.buffer.length * 2, this.maxBytes);
    const grown = new Uint8Array(Math.max(needed, doubled));
    grown.set(this.buffer.subarray(0, this.at));
    this.use(grown);
  }

  private use(buffer: Uint8Array<ArrayBuffer>): void {
    this.buffer = buffer;
    this.view = new DataView(buffer.buffer);
  }
}

/** The JSON is longer than its buffer may become. */
export class LongJsonError extends Error {
  override readonly name = 'LongJsonError';

  constructor(maxBytes: number) {
    super(`the JSON of the reply exceeds the limit of ${maxBytes} bytes`);
  }
}

const STEP = 8;

/**
 * A comma, a name and a colon, before a value. They are half of most replies, so they are stored as doubles
 * and copied eight bytes at a time; no eight bytes of ASCII are a NaN, which would lose its bits.
 */
export class Label {
  readonly length: number;
  readonly steps: Float64Array;

  constructor(name: string) {
    const text = `,"${name}":`;
    const bytes = Buffer.alloc(Math.ceil(text.length / STEP) * STEP);
    if (bytes.write(text, 'ascii') !== Buffer.byteLength(text)) {
      throw new TypeError(`${name} is not a valid field name: field names are ASCII`);
    }
    this.length = text.length;
    this.steps = new Float64Array(bytes.length / STEP).map((_, i) => bytes.readDoubleLE(i * STEP));
  }
}

/** Reads one type of value from the wire and prints it. */
export interface ValueWriter {
  readonly wireType: number;
  /** Prints the next value of the reader. */
  write(wire: WireReader, out: JsonSink): void;
  /** The text for a value that is not on the wire. */
  zero(): Uint8Array;
  /** Prints a message without its length before it; only values that are messages have this. */
  writeBody?(wire: WireReader, out: JsonSink): void;
  /** Does what `writeBody` does in steps; only messages with fields have this. */
  writeBodyInSteps?: PrintInSteps | undefined;
}

/** Prints the message that fills the reader, pausing often; yields true if a pause is due although little was printed. */
export type PrintInSteps = (wire: WireReader, out: JsonSink) => Generator<boolean>;

/** Prints the part of the bytes between two places. */
type PrintSpan = (out: JsonSink, bytes: Uint8Array, start: number, end: number) => void;

const encoder = new TextEncoder();

export function jsonBytes(json: string): Uint8Array {
  return encoder.encode(json);
}

/** A writer of values that have a length before them. */
export function spanWriter(print: PrintSpan, zero: string): ValueWriter {
  const zeroBytes = jsonBytes(zero);
  return {
    wireType: WIRE_TYPE.lengthDelimited,
    write(wire, out) {
      const length = wire.length();
      const start = wire.at;
      wire.at = start + length;
      print(out, wire.bytes, start, start + length);
    },
    zero: () => zeroBytes,
  };
}

/** Prints the message that fills the reader. */
export type PrintBody = (wire: WireReader, out: JsonSink) => void;

/** Prints a message that is the value of a field. */
export class EmbeddedWriter implements ValueWriter {
  readonly wireType = WIRE_TYPE.lengthDelimited;
  readonly writeBody: PrintBody;
  readonly writeBodyInSteps: PrintInSteps | undefined;
  private zeroBytes: Uint8Array | 'being made' | undefined;

  constructor(writeBody: PrintBody, writeBodyInSteps?: PrintInSteps) {
    this.writeBody = writeBody;
    this.writeBodyInSteps = writeBodyInSteps;
  }

  write(wire: WireReader, out: JsonSink): void {
    const outer = wire.enter();
    this.writeBody(wire, out);
    wire.leave(outer);
  }

  zero(): Uint8Array {
    if (this.zeroBytes === 'being made')
      throw new WireError('The descriptors have a message that always contains itself');
    if (this.zeroBytes) return this.zeroBytes;
    this.zeroBytes = 'being made';
    const out = new JsonSink();
    this.writeBody(new WireReader(), out);
    this.zeroBytes = out.take();
    return this.zeroBytes;
  }
}
