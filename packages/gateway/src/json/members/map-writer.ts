import { ScalarType } from '@bufbuild/protobuf';
import { JsonSink } from '../json-sink.js';
import { Label } from '../label.js';
import type { ValueWriter } from '../value-writer.js';
import { WIRE_TYPE, type WireReader } from '../wire-reader.js';
import type { MemberWriter } from './member-writer.js';

export interface MapOptions {
  readonly name: string;
  readonly number: number;
  readonly keyType: ScalarType;
  readonly key: ValueWriter;
  readonly value: ValueWriter;
  /** What an entry without a value prints. */
  absent(): Uint8Array;
}

interface Entry {
  /** What entries are told apart and sorted by. */
  readonly rank: string | bigint;
  readonly label: Uint8Array;
  /** Where the value is on the wire; 0 if the entry has none. */
  readonly valueAt: number;
}

/** Keys are printed one at a time. */
const keySink = new JsonSink();

/** Prints a map, sorted by key; of two entries with one key the later counts. */
export class MapWriter implements MemberWriter {
  readonly tags: MemberWriter['tags'];
  readonly isRepeated = true;
  place = 0;
  readonly #options: MapOptions;
  readonly #tag: number;
  readonly #label: Label;

  constructor(options: MapOptions) {
    this.#tag = (options.number << 3) | WIRE_TYPE.lengthDelimited;
    this.tags = [{ tag: this.#tag, choice: 0 }];
    this.#options = options;
    this.#label = new Label(options.name);
  }

  write(wire: WireReader, out: JsonSink, frame: number): void {
    out.label(this.#label);
    this.writeValue(wire, out, frame);
  }

  writeValue(wire: WireReader, out: JsonSink, frame: number): void {
    const start = out.at;
    for (const { label, valueAt } of this.#sortedEntries(wire, frame)) {
      out.raw(label);
      if (valueAt === 0) out.raw(this.#options.absent());
      else {
        wire.at = valueAt;
        this.#options.value.write(wire, out);
      }
    }
    out.closeObject(start);
  }

  #sortedEntries(wire: WireReader, frame: number): Entry[] {
    const entries = new Map<string | bigint, Entry>();
    let left = wire.frames[frame + this.place + 1] as number;
    wire.at = wire.frames[frame + this.place] as number;
    while (left > 0) {
      const tag = wire.tag();
      if (tag !== this.#tag) {
        wire.skip(tag);
        continue;
      }
      const entry = this.#readEntry(wire);
      entries.set(entry.rank, entry);
      left -= 1;
    }
    return [...entries.values()].sort((a, b) => (a.rank < b.rank ? -1 : 1));
  }

  #readEntry(wire: WireReader): Entry {
    const { key, value } = this.#options;
    const outer = wire.enter();
    let keyAt = 0;
    let valueAt = 0;
    while (wire.at < wire.end) {
      const tag = wire.tag();
      if (tag === (8 | key.wireType)) keyAt = wire.at;
      if (tag === (16 | value.wireType)) valueAt = wire.at;
      wire.skip(tag);
    }
    const json = keyAt === 0 ? key.zero() : this.#printKey(wire, keyAt);
    const rank = this.#rank(wire, keyAt, json);
    wire.leave(outer);
    const name = json[0] === 0x22 ? latin1(json) : `"${latin1(json)}"`;
    return { rank, label: Buffer.from(`,${name}:`, 'latin1'), valueAt };
  }

  #printKey(wire: WireReader, keyAt: number): Uint8Array {
    wire.at = keyAt;
    this.#options.key.write(wire, keySink);
    return keySink.take();
  }

  /** Text is sorted by its bytes, numbers by value. */
  #rank(wire: WireReader, keyAt: number, json: Uint8Array): string | bigint {
    const { keyType } = this.#options;
    if (keyType === ScalarType.BOOL) return latin1(json);
    if (keyType !== ScalarType.STRING) return BigInt(latin1(json).replaceAll('"', ''));
    if (keyAt === 0) return '';
    wire.at = keyAt;
    const length = wire.length();
    return latin1(wire.bytes.subarray(wire.at, wire.at + length));
  }
}

function latin1(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('latin1');
}
