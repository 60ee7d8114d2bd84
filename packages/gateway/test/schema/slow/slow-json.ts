import { type Facts, type FieldFact, toMapType } from '../facts.js';
import { type Decoded, decode, unpack } from './decode.js';
import {
  decimalJson,
  integerJson,
  numberJson,
  packedWireType,
  rawJson,
  textJson,
} from './scalar-json.js';
import { durationJson, goTimeJson, timestampJson } from './time-json.js';

/** How Go prints a message: by protobuf's rules, or by those of encoding/json. */
type Mode = 'proto' | 'go';

const GO_PRINTED = /^cosmos\.staking\.v1beta1\.(Red|D)elegationResponse$/;
const ACCESS_TYPES: Readonly<Record<string, string>> = {
  1: 'Nobody',
  3: 'Everybody',
  4: 'AnyOfAddresses',
};
const NOTHING = new Uint8Array();

/**
 * Prints what a node prints, in the simplest way: from bytes to lists of fields to strings. It shares no code
 * with the writer under test.
 */
export class SlowJson {
  private readonly facts: Facts;

  constructor(facts: Facts) {
    this.facts = facts;
  }

  message(type: string, bytes: Uint8Array, mode: Mode = 'proto'): string {
    return `{${this.members(type, bytes, mode).join(',')}}`;
  }

  private members(type: string, bytes: Uint8Array, mode: Mode): string[] {
    const fields = this.facts.messages[type] ?? [];
    const all = decode(bytes);
    return fields.flatMap((field, i) => {
      const isFirst = fields.findIndex(({ oneof }) => oneof === field.oneof) === i;
      if (field.oneof) return isFirst ? this.oneof(field.oneof, fields, all) : [];
      return this.member(
        field,
        all.filter(({ no }) => no === field.no),
        mode,
      );
    });
  }

  private oneof(name: string, fields: readonly FieldFact[], all: readonly Decoded[]): string[] {
    const choices = fields.filter(({ oneof }) => oneof === name);
    const last = all.findLast(({ no }) => choices.some((choice) => choice.no === no));
    const chosen = choices.find(({ no }) => no === last?.no);
    return chosen && last ? [`"${chosen.name}":${this.value(chosen, [last.value], 'proto')}`] : [];
  }

  private member(field: FieldFact, found: readonly Decoded[], mode: Mode): string[] {
    const json = this.fieldJson(field, found, mode);
    return json === undefined ? [] : [`"${field.name}":${json}`];
  }

  /** The value of a field; undefined if it is left out. */
  private fieldJson(field: FieldFact, found: readonly Decoded[], mode: Mode): string | undefined {
    if (toMapType(field.type)) return this.map(field, found);
    if (field.repeated) return this.list(field, found, mode);
    const values = found.map(({ value }) => value);
    const json = values.length > 0 ? this.value(field, values, mode) : this.absent(field, mode);
    const mayBeOmitted = mode === 'go' && field.nullable !== false;
    return mayBeOmitted && json === this.absent(field, mode) ? undefined : json;
  }

  private list(field: FieldFact, found: readonly Decoded[], mode: Mode): string | undefined {
    const isText = ['string', 'bytes'].includes(field.type) || this.isMessage(field.type);
    const values = found.flatMap(({ value }) =>
      value instanceof Uint8Array && !isText ? unpack(value, packedWireType(field.type)) : [value],
    );
    if (values.length === 0 && mode === 'go') return field.nullable === false ? 'null' : undefined;
    return `[${values.map((value) => this.value(field, [value], mode)).join(',')}]`;
  }

  private map(field: FieldFact, found: readonly Decoded[]): string {
    const { key = '', value = '' } = toMapType(field.type) ?? {};
    const entries = found.map((entry) => {
      const deps = decode(entry.value as Uint8Array);
      const of = (no: number) => deps.findLast((part) => part.no === no)?.value;
      const toKey = of(1) ?? (key === 'string' ? NOTHING : 0n);
      return { key: this.keyText(key, toKey), rank: toRank(key, toKey), value: of(2) };
    });
    const last = new Map(entries.map((entry) => [entry.key, entry]));
    const sorted = [...last.values()].sort((a, b) => (a.rank < b.rank ? -1 : 1));
    const fact = { ...field, type: value, repeated: false };
    return `{${sorted
      .map((entry) => `${entry.key}:${this.mapValue(fact, entry.value)}`)
      .join(',')}}`;
  }

  private mapValue(field: FieldFact, value: bigint | Uint8Array | undefined): string {
    if (value !== undefined) return this.value(field, [value], 'proto');
    return field.type === 'bytes' ? '""' : this.absent(field, 'proto');
  }

  private keyText(type: string, value: bigint | Uint8Array): string {
    if (value instanceof Uint8Array) return textJson(value);
    return `"${numberJson(type, value).replaceAll('"', '')}"`;
  }

  /** One value; the parts of a message are merged, of other types the last one counts. */
  private value(field: FieldFact, values: readonly (bigint | Uint8Array)[], mode: Mode): string {
    const last = values.at(-1) as bigint | Uint8Array;
    if (!(last instanceof Uint8Array)) return this.number(field, last, mode);
    if (field.customtype?.endsWith('Dec')) return decimalJson(last);
    if (field.customtype) return integerJson(last);
    if (field.casttype?.endsWith('HexBytes'))
      return `"${Buffer.from(last).toString('hex').toUpperCase()}"`;
    if (field.casttype === 'RawContractMessage') return rawJson(last);
    if (field.type === 'string') return textJson(last);
    if (field.type === 'bytes') return `"${Buffer.from(last).toString('base64')}"`;
    if (field.stdtime) return mode === 'go' ? goTimeJson(last) : timestampJson(last);
    const merged = field.stdduration ? last : Buffer.concat(values as Uint8Array[]);
    return this.messageValue(field.type, merged, mode);
  }

  private number(field: FieldFact, bits: bigint, mode: Mode): string {
    const names = this.facts.enums?.[field.type];
    if (!names) return numberJson(field.type, bits).replaceAll('"', mode === 'go' ? '' : '"');
    const number = String(BigInt.asIntN(32, bits));
    if (field.type.endsWith('.AccessType')) return `"${ACCESS_TYPES[number] ?? 'Unspecified'}"`;
    return number in names ? `"${names[number]}"` : number;
  }

  private messageValue(type: string, bytes: Uint8Array, mode: Mode): string {
    if (type === 'google.protobuf.Timestamp') return timestampJson(bytes);
    if (type === 'google.protobuf.Duration') return durationJson(bytes);
    if (type === 'google.protobuf.Any') return this.any(bytes);
    return this.message(type, bytes, GO_PRINTED.test(type) ? 'go' : mode);
  }

  private any(bytes: Uint8Array): string {
    const all = decode(bytes);
    const of = (no: number) =>
      (all.findLast((one) => one.no === no)?.value ?? NOTHING) as Uint8Array;
    const type = Buffer.from(of(1)).toString().slice(1);
    const label = `"@type":${textJson(of(1))}`;
    if (type in this.facts.messages)
      return `{${[label, ...this.members(type, of(2), 'proto')].join(',')}}`;
    return `{${label},"value":${this.messageValue(type, of(2), 'proto')}}`;
  }

  private isMessage(type: string): boolean {
    return type.includes('.') && !(type in (this.facts.enums ?? {}));
  }

  private absent(field: FieldFact, mode: Mode): string {
    if (field.optional) return 'null';
    if (field.customtype)
      return field.nullable === false && !field.customtype.endsWith('Dec') ? '"0"' : 'null';
    if (field.type === 'string' || field.casttype?.endsWith('HexBytes')) return '""';
    if (field.type === 'bytes') return 'null';
    if (!this.isMessage(field.type)) return this.number(field, 0n, mode);
    if (field.nullable !== false) return 'null';
    if (field.stdtime) return '"0001-01-01T00:00:00Z"';
    return this.messageValue(field.type, NOTHING, mode);
  }
}

/** The sort key: the bytes of a text, the value of a number. */
function toRank(type: string, key: bigint | Uint8Array): string | bigint {
  if (key instanceof Uint8Array) return Buffer.from(key).toString('latin1');
  const json = numberJson(type, key).replaceAll('"', '');
  return type === 'bool' ? json : BigInt(json);
}
