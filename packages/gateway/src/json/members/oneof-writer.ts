import type { JsonSink } from '../json-sink.js';
import { Label } from '../label.js';
import { jsonBytes, type ValueWriter } from '../value-writer.js';
import type { WireReader } from '../wire-reader.js';
import type { MemberWriter } from './member-writer.js';

interface Choice {
  readonly name: string;
  readonly number: number;
  readonly value: ValueWriter;
}

const NULL = jsonBytes('null');

/** Prints whichever field of a oneof came last on the wire; the object goes without if none did. */
export class OneofWriter implements MemberWriter {
  readonly tags: MemberWriter['tags'];
  readonly isRepeated = false;
  place = 0;
  readonly #labels: readonly Label[];
  readonly #values: readonly ValueWriter[];

  constructor(choices: readonly Choice[]) {
    this.tags = choices.map(({ number, value }, i) => ({
      tag: (number << 3) | value.wireType,
      choice: i + 1,
    }));
    this.#labels = choices.map(({ name }) => new Label(name));
    this.#values = choices.map(({ value }) => value);
  }

  write(wire: WireReader, out: JsonSink, frame: number): void {
    const choice = wire.frames[frame + this.place + 1] as number;
    const label = this.#labels[choice - 1];
    if (!label) return;
    out.label(label);
    this.writeValue(wire, out, frame);
  }

  writeValue(wire: WireReader, out: JsonSink, frame: number): void {
    const choice = wire.frames[frame + this.place + 1] as number;
    wire.at = wire.frames[frame + this.place] as number;
    const value = this.#values[choice - 1];
    if (value) value.write(wire, out);
    else out.raw(NULL);
  }
}
