import type { JsonSink } from '../json-sink.js';
import { Label } from '../label.js';
import { jsonBytes, type ValueWriter } from '../value-writer.js';
import { WIRE_TYPE, type WireReader } from '../wire-reader.js';
import type { MemberWriter } from './member-writer.js';

export interface ListOptions {
  readonly name: string;
  readonly number: number;
  /** What an empty list prints as; an empty text leaves it out. */
  readonly empty: '[]' | 'null' | '';
}

const COMMA = 0x2c;
const BRACKET_CLOSE = 0x5d;

/** Prints a repeated field. Numbers may come packed or one by one, and other fields in between. */
export class ListWriter implements MemberWriter {
  readonly tags: MemberWriter['tags'];
  readonly isRepeated = true;
  place = 0;
  readonly #itemTag: number;
  readonly #packedTag: number;
  readonly #label: Label;
  readonly #empty: Uint8Array;
  readonly #value: ValueWriter;

  constructor(value: ValueWriter, { name, number, empty }: ListOptions) {
    this.#itemTag = (number << 3) | value.wireType;
    this.#packedTag = (number << 3) | WIRE_TYPE.lengthDelimited;
    this.tags = [this.#itemTag, this.#packedTag].map((tag) => ({ tag, choice: 0 }));
    this.#label = new Label(name);
    this.#empty = jsonBytes(empty);
    this.#value = value;
  }

  write(wire: WireReader, out: JsonSink, frame: number): void {
    if (this.#count(wire, frame) === 0 && this.#empty.length === 0) return;
    out.label(this.#label);
    this.writeValue(wire, out, frame);
  }

  writeValue(wire: WireReader, out: JsonSink, frame: number): void {
    const count = this.#count(wire, frame);
    if (count === 0) {
      out.raw(this.#empty);
      return;
    }
    const start = out.at;
    wire.at = wire.frames[frame + this.place] as number;
    for (let left = count; left > 0; left -= 1) this.#writeNext(wire, out);
    out.closeList(start);
  }

  *writeItems(wire: WireReader, out: JsonSink, frame: number): Generator<void> {
    const count = this.#count(wire, frame);
    if (count === 0 || this.#itemTag !== this.#packedTag) return this.write(wire, out, frame);
    out.label(this.#label);
    const start = out.at;
    wire.at = wire.frames[frame + this.place] as number;
    for (let done = 0; done < count; done += 1) {
      this.#writeNext(wire, out);
      if (done === 0) out.openList(start);
      yield;
    }
    out.byte(BRACKET_CLOSE);
  }

  #count(wire: WireReader, frame: number): number {
    return wire.frames[frame + this.place + 1] as number;
  }

  /** Prints what comes under the list's next tag, from the reader's place on. */
  #writeNext(wire: WireReader, out: JsonSink): void {
    let tag = wire.tag();
    while (tag !== this.#itemTag && tag !== this.#packedTag) {
      wire.skip(tag);
      tag = wire.tag();
    }
    if (tag === this.#itemTag) this.#writeItem(wire, out);
    else {
      const outer = wire.enter();
      while (wire.at < wire.end) this.#writeItem(wire, out);
      wire.leave(outer);
    }
  }

  #writeItem(wire: WireReader, out: JsonSink): void {
    out.byte(COMMA);
    this.#value.write(wire, out);
  }
}
