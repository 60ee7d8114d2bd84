import type { JsonSink } from '../json-sink.js';
import { Label } from '../label.js';
import { jsonBytes, type ValueWriter } from '../value-writer.js';
import type { WireReader } from '../wire-reader.js';
import type { MemberWriter } from './member-writer.js';

export interface SingleOptions {
  readonly name: string;
  readonly number: number;
  /** Prints as null when it is not there, not as the zero of its type. */
  readonly isNullable: boolean;
  /** Is left out when it is zero. */
  readonly omitsZero: boolean;
}

const NULL = jsonBytes('null');

/** Prints a field that is there at most once. */
export class SingleWriter implements MemberWriter {
  readonly tags: MemberWriter['tags'];
  readonly isRepeated = false;
  place = 0;
  readonly #label: Label;
  readonly #value: ValueWriter;
  readonly #options: SingleOptions;

  constructor(value: ValueWriter, options: SingleOptions) {
    this.tags = [{ tag: (options.number << 3) | value.wireType, choice: 0 }];
    this.#label = new Label(options.name);
    this.#value = value;
    this.#options = options;
  }

  write(wire: WireReader, out: JsonSink, frame: number): void {
    const start = out.at;
    out.label(this.#label);
    const valueStart = out.at;
    this.writeValue(wire, out, frame);
    if (this.#options.omitsZero && isWritten(out, valueStart, this.#absent())) out.at = start;
  }

  writeValue(wire: WireReader, out: JsonSink, frame: number): void {
    const count = wire.frames[frame + this.place + 1] as number;
    if (count === 0) out.raw(this.#absent());
    else if (count > 1 && this.#value.writeBody) this.#writeMerged(wire, out, frame);
    else {
      wire.at = wire.frames[frame + this.place] as number;
      this.#value.write(wire, out);
    }
  }

  #absent(): Uint8Array {
    return this.#options.isNullable ? NULL : this.#value.zero();
  }

  /** A message that comes in parts is what its parts make when joined. */
  #writeMerged(wire: WireReader, out: JsonSink, frame: number): void {
    const parts: Uint8Array[] = [];
    wire.at = wire.frames[frame] as number;
    while (wire.at < wire.end) {
      const tag = wire.tag();
      const isPart = tag === this.tags[0]?.tag;
      const from = wire.at;
      wire.skip(tag);
      if (isPart) parts.push(withoutLength(wire, from));
    }
    this.#value.writeBody?.(wire.branch(Buffer.concat(parts)), out);
  }
}

function withoutLength(wire: WireReader, from: number): Uint8Array {
  const to = wire.at;
  wire.at = from;
  const length = wire.length();
  wire.at = to;
  return wire.bytes.subarray(to - length, to);
}

function isWritten(out: JsonSink, start: number, text: Uint8Array): boolean {
  return Buffer.compare(out.buffer.subarray(start, out.at), text) === 0;
}
