import { ScalarType } from '@bufbuild/protobuf';
import { JsonSink, jsonBytes, Label, type ValueWriter } from './json-sink.js';
import { WIRE_TYPE, type WireReader } from './wire-reader.js';

/** Prints one member of an object: a field or a oneof. */
export interface MemberWriter {
  /** The tags its values come under. */
  readonly tags: readonly { readonly tag: number; readonly choice: number }[];
  readonly isRepeated: boolean;
  /**
   * Where the member's two numbers are in a message's frame, set by the message: the position of the
   * value (of the first tag if repeated) and the count (the choice of a oneof); 0 for none.
   */
  place: number;
  /** Prints a comma, the name and the value, unless the member is omitted. */
  write(wire: WireReader, out: JsonSink, frame: number): void;
  writeValue(wire: WireReader, out: JsonSink, frame: number): void;
  /** Does what `write` does, pausing between items; yields true if a pause is due although little was printed. */
  writeItems?(wire: WireReader, out: JsonSink, frame: number): Generator<boolean>;
}

/** Shorter messages are printed at once, which is faster. */
const LONG_MESSAGE_BYTES = 64 * 1024;

/** Prints the next value of the reader, or, if it is a long message, returns the steps to print it. */
function writeOrStep(
  value: ValueWriter,
  wire: WireReader,
  out: JsonSink,
): Generator<boolean> | undefined {
  const { at } = wire;
  const isLong = value.writeBodyInSteps !== undefined && wire.length() >= LONG_MESSAGE_BYTES;
  wire.at = at;
  if (isLong) return writeLongMessage(value, wire, out);
  value.write(wire, out);
  return undefined;
}

function* writeLongMessage(
  value: ValueWriter,
  wire: WireReader,
  out: JsonSink,
): Generator<boolean> {
  const outer = wire.enter();
  if (value.writeBodyInSteps) yield* value.writeBodyInSteps(wire, out);
  wire.leave(outer);
}

export interface SingleOptions {
  readonly name: string;
  readonly number: number;
  /** Prints null when absent instead of the zero of its type. */
  readonly isNullable: boolean;
  /** Omits the field when it is zero. */
  readonly omitsZero: boolean;
}

const NULL = jsonBytes('null');

/** Prints a field that is not repeated. */
export class SingleWriter implements MemberWriter {
  readonly tags: MemberWriter['tags'];
  readonly isRepeated = false;
  place = 0;
  private readonly label: Label;
  private readonly value: ValueWriter;
  private readonly options: SingleOptions;

  constructor(value: ValueWriter, options: SingleOptions) {
    this.tags = [{ tag: (options.number << 3) | value.wireType, choice: 0 }];
    this.label = new Label(options.name);
    this.value = value;
    this.options = options;
  }

  write(wire: WireReader, out: JsonSink, frame: number): void {
    const start = out.at;
    out.label(this.label);
    const valueStart = out.at;
    this.writeValue(wire, out, frame);
    if (this.options.omitsZero && isWritten(out, valueStart, this.absent())) out.at = start;
  }

  *writeItems(wire: WireReader, out: JsonSink, frame: number): Generator<boolean> {
    const count = wire.frames[frame + this.place + 1] as number;
    if (count !== 1 || this.options.omitsZero) return this.write(wire, out, frame);
    out.label(this.label);
    wire.at = wire.frames[frame + this.place] as number;
    const steps = writeOrStep(this.value, wire, out);
    if (steps) yield* steps;
  }

  writeValue(wire: WireReader, out: JsonSink, frame: number): void {
    const count = wire.frames[frame + this.place + 1] as number;
    if (count === 0) out.raw(this.absent());
    else if (count > 1 && this.value.writeBody) this.writeMerged(wire, out, frame);
    else {
      wire.at = wire.frames[frame + this.place] as number;
      this.value.write(wire, out);
    }
  }

  private absent(): Uint8Array {
    return this.options.isNullable ? NULL : this.value.zero();
  }

  /** A message that occurs several times is the concatenation of its occurrences. */
  private writeMerged(wire: WireReader, out: JsonSink, frame: number): void {
    const deps: Uint8Array[] = [];
    wire.at = wire.frames[frame] as number;
    while (wire.at < wire.end) {
      const tag = wire.tag();
      const isPart = tag === this.tags[0]?.tag;
      const from = wire.at;
      wire.skip(tag);
      if (isPart) deps.push(withoutLength(wire, from));
    }
    this.value.writeBody?.(wire.branch(Buffer.concat(deps)), out);
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

interface Choice {
  readonly name: string;
  readonly number: number;
  readonly value: ValueWriter;
}

/** Prints the field of a oneof that is last on the wire; omits the member if there is none. */
export class OneofWriter implements MemberWriter {
  readonly tags: MemberWriter['tags'];
  readonly isRepeated = false;
  place = 0;
  private readonly labels: readonly Label[];
  private readonly values: readonly ValueWriter[];

  constructor(choices: readonly Choice[]) {
    this.tags = choices.map(({ number, value }, i) => ({
      tag: (number << 3) | value.wireType,
      choice: i + 1,
    }));
    this.labels = choices.map(({ name }) => new Label(name));
    this.values = choices.map(({ value }) => value);
  }

  write(wire: WireReader, out: JsonSink, frame: number): void {
    const choice = wire.frames[frame + this.place + 1] as number;
    const label = this.labels[choice - 1];
    if (!label) return;
    out.label(label);
    this.writeValue(wire, out, frame);
  }

  *writeItems(wire: WireReader, out: JsonSink, frame: number): Generator<boolean> {
    const choice = wire.frames[frame + this.place + 1] as number;
    const [label, value] = [this.labels[choice - 1], this.values[choice - 1]];
    if (!label || !value) return;
    out.label(label);
    wire.at = wire.frames[frame + this.place] as number;
    const steps = writeOrStep(value, wire, out);
    if (steps) yield* steps;
  }

  writeValue(wire: WireReader, out: JsonSink, frame: number): void {
    const choice = wire.frames[frame + this.place + 1] as number;
    wire.at = wire.frames[frame + this.place] as number;
    const value = this.values[choice - 1];
    if (value) value.write(wire, out);
    else out.raw(NULL);
  }
}

export interface ListOptions {
  readonly name: string;
  readonly number: number;
  /** The text for an empty list; an empty text omits the member. */
  readonly empty: '[]' | 'null' | '';
}

const COMMA = 0x2c;
/** Numbers printed between pauses. */
const STEP_ITEMS = 1000;

/** Prints a repeated field. Numbers may be packed or not, with other fields in between. */
export class ListWriter implements MemberWriter {
  readonly tags: MemberWriter['tags'];
  readonly isRepeated = true;
  place = 0;
  private readonly itemTag: number;
  private readonly packedTag: number;
  private readonly label: Label;
  private readonly empty: Uint8Array;
  private readonly value: ValueWriter;

  constructor(value: ValueWriter, { name, number, empty }: ListOptions) {
    this.itemTag = (number << 3) | value.wireType;
    this.packedTag = (number << 3) | WIRE_TYPE.lengthDelimited;
    this.tags = [this.itemTag, this.packedTag].map((tag) => ({ tag, choice: 0 }));
    this.label = new Label(name);
    this.empty = jsonBytes(empty);
    this.value = value;
  }

  write(wire: WireReader, out: JsonSink, frame: number): void {
    if (this.count(wire, frame) === 0 && this.empty.length === 0) return;
    out.label(this.label);
    this.writeValue(wire, out, frame);
  }

  writeValue(wire: WireReader, out: JsonSink, frame: number): void {
    const count = this.count(wire, frame);
    if (count === 0) {
      out.raw(this.empty);
      return;
    }
    const start = out.at;
    wire.at = wire.frames[frame + this.place] as number;
    for (let left = count; left > 0; left -= 1) this.writeNext(wire, out);
    out.closeList(start);
  }

  *writeItems(wire: WireReader, out: JsonSink, frame: number): Generator<boolean> {
    const count = this.count(wire, frame);
    if (count === 0) return this.write(wire, out, frame);
    out.label(this.label);
    const start = out.at;
    wire.at = wire.frames[frame + this.place] as number;
    for (let left = count; left > 0; left -= 1) {
      const steps = this.startNext(wire, out);
      if (steps) yield* steps;
      yield false;
    }
    out.closeList(start);
  }

  /** Prints the value of the list's next tag, or, if it is long, returns the steps to print it. */
  private startNext(wire: WireReader, out: JsonSink): Generator<boolean> | undefined {
    if (this.findNext(wire) !== this.itemTag) return this.writePacked(wire, out);
    out.byte(COMMA);
    return writeOrStep(this.value, wire, out);
  }

  private *writePacked(wire: WireReader, out: JsonSink): Generator<boolean> {
    const outer = wire.enter();
    for (let written = 1; wire.at < wire.end; written += 1) {
      this.writeItem(wire, out);
      if (written % STEP_ITEMS === 0) yield false;
    }
    wire.leave(outer);
  }

  private count(wire: WireReader, frame: number): number {
    return wire.frames[frame + this.place + 1] as number;
  }

  /** Reads up to the list's next tag. */
  private findNext(wire: WireReader): number {
    let tag = wire.tag();
    while (tag !== this.itemTag && tag !== this.packedTag) {
      wire.skip(tag);
      tag = wire.tag();
    }
    return tag;
  }

  /** Prints the value of the list's next tag. */
  private writeNext(wire: WireReader, out: JsonSink): void {
    if (this.findNext(wire) === this.itemTag) this.writeItem(wire, out);
    else {
      const outer = wire.enter();
      while (wire.at < wire.end) this.writeItem(wire, out);
      wire.leave(outer);
    }
  }

  private writeItem(wire: WireReader, out: JsonSink): void {
    out.byte(COMMA);
    this.value.write(wire, out);
  }
}

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
  /** The identity and sort key of the entry. */
  readonly rank: string | bigint;
  readonly label: Uint8Array;
  /** Where the value is on the wire; 0 if the entry has none. */
  readonly valueAt: number;
}

/** Entries read between pauses, which take about a millisecond. */
const STEP_ENTRIES = 200;

/** Keys are printed one at a time. */
const keySink = new JsonSink();

/** Prints a map, sorted by key; the last entry of a key wins. */
export class MapWriter implements MemberWriter {
  readonly tags: MemberWriter['tags'];
  readonly isRepeated = true;
  place = 0;
  private readonly options: MapOptions;
  private readonly tag: number;
  private readonly label: Label;

  constructor(options: MapOptions) {
    this.tag = (options.number << 3) | WIRE_TYPE.lengthDelimited;
    this.tags = [{ tag: this.tag, choice: 0 }];
    this.options = options;
    this.label = new Label(options.name);
  }

  write(wire: WireReader, out: JsonSink, frame: number): void {
    out.label(this.label);
    this.writeValue(wire, out, frame);
  }

  writeValue(wire: WireReader, out: JsonSink, frame: number): void {
    for (const _ of this.writeEntries(wire, out, frame));
  }

  *writeItems(wire: WireReader, out: JsonSink, frame: number): Generator<boolean> {
    out.label(this.label);
    yield* this.writeEntries(wire, out, frame);
  }

  private *writeEntries(wire: WireReader, out: JsonSink, frame: number): Generator<boolean> {
    const start = out.at;
    for (const { label, valueAt } of yield* this.readEntries(wire, frame)) {
      out.raw(label);
      if (valueAt === 0) out.raw(this.options.absent());
      else {
        wire.at = valueAt;
        this.options.value.write(wire, out);
      }
      yield false;
    }
    out.closeObject(start);
  }

  /** Returns the entries in order. Pauses although nothing is printed yet. */
  private *readEntries(wire: WireReader, frame: number): Generator<boolean, Entry[]> {
    const entries = new Map<string | bigint, Entry>();
    let left = wire.frames[frame + this.place + 1] as number;
    wire.at = wire.frames[frame + this.place] as number;
    while (left > 0) {
      const tag = wire.tag();
      if (tag !== this.tag) {
        wire.skip(tag);
        continue;
      }
      const entry = this.readEntry(wire);
      entries.set(entry.rank, entry);
      left -= 1;
      if (left % STEP_ENTRIES === 0) yield true;
    }
    return [...entries.values()].sort((a, b) => (a.rank < b.rank ? -1 : 1));
  }

  private readEntry(wire: WireReader): Entry {
    const { key, value } = this.options;
    const outer = wire.enter();
    let keyAt = 0;
    let valueAt = 0;
    while (wire.at < wire.end) {
      const tag = wire.tag();
      if (tag === (8 | key.wireType)) keyAt = wire.at;
      if (tag === (16 | value.wireType)) valueAt = wire.at;
      wire.skip(tag);
    }
    const json = keyAt === 0 ? key.zero() : this.printKey(wire, keyAt);
    const rank = this.rank(wire, keyAt, json);
    wire.leave(outer);
    const name = json[0] === 0x22 ? latin1(json) : `"${latin1(json)}"`;
    return { rank, label: Buffer.from(`,${name}:`, 'latin1'), valueAt };
  }

  private printKey(wire: WireReader, keyAt: number): Uint8Array {
    wire.at = keyAt;
    this.options.key.write(wire, keySink);
    return keySink.take();
  }

  /** Text is sorted by its bytes, numbers by value. */
  private rank(wire: WireReader, keyAt: number, json: Uint8Array): string | bigint {
    const { keyType } = this.options;
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
