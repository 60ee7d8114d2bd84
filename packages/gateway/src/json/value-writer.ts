import { JsonSink } from './json-sink.js';
import { WIRE_TYPE, WireError, WireReader } from './wire-reader.js';

/** Reads one type of value from the wire and prints it. */
export interface ValueWriter {
  readonly wireType: number;
  /** Prints the next value of the reader. */
  write(wire: WireReader, out: JsonSink): void;
  /** The text for a value that is not on the wire. */
  zero(): Uint8Array;
  /** Prints a message without its length before it; only values that are messages have this. */
  writeBody?(wire: WireReader, out: JsonSink): void;
}

/** Prints the part of the bytes between two places. */
export type PrintSpan = (out: JsonSink, bytes: Uint8Array, start: number, end: number) => void;

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
  private zeroBytes: Uint8Array | 'being made' | undefined;

  constructor(writeBody: PrintBody) {
    this.writeBody = writeBody;
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
