import { type Facts, type FieldFact, toMapType } from '../facts.js';
import { type Wire, wire } from '../wire.js';
import type { RandomSource } from './random-source.js';
import { randomDigits, randomJson, randomText } from './random-text.js';

const MAX_DEPTH = 1;
const VARINTS = new Set(['int32', 'int64', 'uint32', 'uint64', 'sint32', 'sint64', 'bool']);
const ANY_TYPES = ['test.Leaf', 'test.Branch', 'test.Empty', 'google.protobuf.Timestamp'];

/** Generates messages of a type: fields in any order, some missing, some repeated, some undeclared. */
export class RandomWire {
  private readonly facts: Facts;
  private readonly random: RandomSource;

  constructor(facts: Facts, random: RandomSource) {
    this.facts = facts;
    this.random = random;
  }

  message(type: string, depth = 0): Wire {
    const fields = this.facts.messages[type];
    if (!fields) return this.wellKnown(type);
    const sets = fields.flatMap((field) => this.occurrences(field, depth));
    if (this.random.happens(5)) sets.push((message) => message.text(900, 'unknown field'));
    if (this.random.happens(4)) this.random.shuffle(sets);
    return sets.reduce((message, set) => set(message), wire());
  }

  private occurrences(field: FieldFact, depth: number): ((message: Wire) => Wire)[] {
    const isMany = field.repeated || toMapType(field.type) !== undefined;
    const most = isMany ? 3 : this.random.happens(8) ? 3 : 2;
    const isTooDeep = depth > MAX_DEPTH && field.type.includes('.');
    const count = isTooDeep ? 0 : this.random.below(most);
    return Array.from({ length: count }, () => (message: Wire) => this.set(message, field, depth));
  }

  private set(message: Wire, field: FieldFact, depth: number): Wire {
    const map = toMapType(field.type);
    if (map) return message.message(field.no, this.mapEntry(map.key, map.value, depth));
    if (field.repeated && this.isVarint(field.type) && this.random.happens(2))
      return message.packed(
        field.no,
        Array.from({ length: this.random.below(4) }, () => this.random.bits()),
      );
    if (field.type === 'string' || field.type === 'bytes')
      return message.bytes(field.no, this.leafBytes(field));
    return this.setTyped(message, field.no, field.type, depth);
  }

  private setTyped(message: Wire, no: number, type: string, depth: number): Wire {
    if (this.isVarint(type)) return message.varint(no, this.varint(type));
    if (type.endsWith('fixed32') || type === 'float')
      return message.fixed32(no, this.random.below(2 ** 32));
    if (type.endsWith('fixed64') || type === 'double')
      return message.fixed64(no, this.random.bits());
    if (type === 'string' || type === 'bytes') return message.bytes(no, randomText(this.random));
    return message.message(no, this.message(type, depth + 1));
  }

  private mapEntry(key: string, value: string, depth: number): Wire {
    const entry = wire();
    if (!this.random.happens(6)) this.setTyped(entry, 1, key, depth);
    if (!this.random.happens(6)) this.setTyped(entry, 2, value, depth);
    return entry;
  }

  private isVarint(type: string): boolean {
    return VARINTS.has(type) || type in (this.facts.enums ?? {});
  }

  /** Mostly declared values of an enum. */
  private varint(type: string): bigint {
    return VARINTS.has(type) || this.random.happens(5)
      ? this.random.bits()
      : BigInt(this.random.below(5));
  }

  private leafBytes(field: FieldFact): Uint8Array | number[] {
    if (field.customtype) return randomDigits(this.random, this.random.below(40));
    if (field.casttype === 'RawContractMessage') return randomJson(this.random);
    return field.type === 'string'
      ? randomText(this.random)
      : this.random.bytes(this.random.below(20));
  }

  private wellKnown(type: string): Wire {
    if (type === 'google.protobuf.Any') {
      const inner = this.random.pick(ANY_TYPES);
      return wire().text(1, `/${inner}`).message(2, this.message(inner, MAX_DEPTH));
    }
    const seconds = this.random.pick([0, 1, this.random.below(2 ** 31), this.random.below(9e9)]);
    const nanos = this.random.pick([0, 5, 1000, 120_000, 3_000_000, this.random.below(1e9)]);
    const time = wire();
    if (seconds !== 0) time.varint(1, seconds);
    return nanos === 0 ? time : time.varint(2, nanos);
  }
}
