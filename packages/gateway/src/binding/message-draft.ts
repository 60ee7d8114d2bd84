import type { DescField, DescMessage } from '@bufbuild/protobuf';
import { type BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import { FeatureSet_FieldPresence } from '@bufbuild/protobuf/wkt';
import { ValueError } from './bind-error.js';

/** An encodable value, without its tag. */
export interface WireValue {
  readonly wireType: WireType;
  /** Whether it is the zero of its type, which is often omitted. */
  readonly isZero: boolean;
  write(writer: BinaryWriter): void;
}

/** A message under construction, ordered by field number, so that equal requests have equal bytes. */
export class MessageDraft {
  readonly type: DescMessage;
  private readonly values = new Map<number, WireValue[]>();
  private readonly children = new Map<number, MessageDraft>();

  constructor(type: DescMessage) {
    this.type = type;
  }

  has(field: DescField): boolean {
    return this.values.has(field.number) || this.children.has(field.number);
  }

  /** Sets a single field; omits a zero in fields without presence. */
  set(field: DescField, value: WireValue): void {
    this.chooseInOneof(field);
    this.clear(field);
    if (value.isZero && field.presence === FeatureSet_FieldPresence.IMPLICIT) return;
    this.values.set(field.number, [value]);
  }

  add(field: DescField, value: WireValue): void {
    const values = this.values.get(field.number);
    if (values) values.push(value);
    else this.values.set(field.number, [value]);
  }

  clear(field: DescField): void {
    this.values.delete(field.number);
    this.children.delete(field.number);
  }

  /** Returns the draft of a message field, creating it if absent. */
  child(field: DescField & { readonly message: DescMessage }): MessageDraft {
    const known = this.children.get(field.number);
    if (known) return known;
    this.chooseInOneof(field);
    const child = new MessageDraft(field.message);
    this.children.set(field.number, child);
    return child;
  }

  write(writer: BinaryWriter): void {
    const numbers = [...this.values.keys(), ...this.children.keys()].sort((a, b) => a - b);
    for (const number of numbers) {
      const child = this.children.get(number);
      if (child) writeTagged(writer, number, asValue(child));
      else this.writeValues(writer, number);
    }
  }

  private writeValues(writer: BinaryWriter, number: number): void {
    const values = this.values.get(number) ?? [];
    const field = this.type.fields.find((field) => field.number === number);
    if (field?.fieldKind === 'list' && field.packed) writePacked(writer, number, values);
    else for (const value of values) writeTagged(writer, number, value);
  }

  private chooseInOneof(field: DescField): void {
    const other = field.oneof?.fields.find((one) => one !== field && this.has(one));
    if (other)
      throw new ValueError(`${other.name} is already set, and only one of them is allowed`);
  }
}

/** A draft as the value of a field. */
export function asValue(draft: MessageDraft): WireValue {
  return {
    wireType: WireType.LengthDelimited,
    isZero: false,
    write(writer) {
      writer.fork();
      draft.write(writer);
      writer.join();
    },
  };
}

function writeTagged(writer: BinaryWriter, number: number, value: WireValue): void {
  writer.tag(number, value.wireType);
  value.write(writer);
}

function writePacked(writer: BinaryWriter, number: number, values: readonly WireValue[]): void {
  writer.tag(number, WireType.LengthDelimited).fork();
  for (const value of values) value.write(writer);
  writer.join();
}

/** The fields a dotted path names, outermost first. */
export type FieldPath = readonly [DescField, ...DescField[]];

const names = new WeakMap<DescMessage, ReadonlyMap<string, DescField>>();

/** A message's field by its name or its lowerCamel name. */
export function findField(type: DescMessage, name: string): DescField | undefined {
  let fields = names.get(type);
  if (!fields) {
    fields = new Map([
      ...type.fields.map((field) => [field.jsonName, field] as const),
      ...type.fields.map((field) => [field.name, field] as const),
    ]);
    names.set(type, fields);
  }
  return fields.get(name);
}

/** Resolves a dotted path in a message; undefined if a field does not exist. */
export function findFieldPath(type: DescMessage, path: string): FieldPath | undefined {
  const found: DescField[] = [];
  let within: DescMessage | undefined = type;
  for (const name of path.split('.')) {
    const field: DescField | undefined = within && findField(within, name);
    if (!field) return undefined;
    found.push(field);
    within = field.fieldKind === 'message' ? field.message : undefined;
  }
  const [first, ...rest] = found;
  return first && [first, ...rest];
}
