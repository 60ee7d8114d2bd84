import {
  type DescField,
  type DescMessage,
  type DescOneof,
  type Registry,
  ScalarType,
} from '@bufbuild/protobuf';
import { formOf, isNullable, isPointer } from '../descriptors/field-form.js';
import { messageForm } from '../descriptors/message-form.js';
import { type AnyContent, anyWriter } from './any-writer.js';
import { type Dialect, GO_DIALECT, PROTO_DIALECT } from './dialects.js';
import { EmbeddedWriter } from './embedded-writer.js';
import { isGoPrinted } from './go-printed.js';
import { ListWriter } from './members/list-writer.js';
import { MapWriter } from './members/map-writer.js';
import type { MemberWriter } from './members/member-writer.js';
import { OneofWriter } from './members/oneof-writer.js';
import { SingleWriter } from './members/single-writer.js';
import { MessageWriter } from './message-writer.js';
import { jsonBytes, type ValueWriter } from './value-writer.js';

const NULL = jsonBytes('null');
const EMPTY_TEXT = jsonBytes('""');

/** The writers of a schema's messages, each made when it is first needed. */
export class JsonWriters {
  readonly #registry: Registry;
  readonly #dialect: Dialect;
  readonly #any: ValueWriter;
  readonly #messages = new Map<string, MessageWriter>();
  readonly #embedded = new Map<string, ValueWriter>();
  #goPrinted: JsonWriters | undefined;

  constructor(registry: Registry, dialect: Dialect = PROTO_DIALECT) {
    this.#registry = registry;
    this.#dialect = dialect;
    this.#any = anyWriter((typeName) => this.#anyContent(typeName));
  }

  message(type: DescMessage): MessageWriter {
    const known = this.#messages.get(type.typeName);
    if (known) return known;
    const writer = new MessageWriter(
      type,
      type.members.map((member) => this.#member(member)),
    );
    this.#messages.set(type.typeName, writer);
    return writer;
  }

  #member(member: DescField | DescOneof): MemberWriter {
    if (member.kind === 'oneof')
      return new OneofWriter(
        member.fields.map((field) => ({ ...nameOf(field), value: this.#value(field) })),
      );
    const value = this.#value(member);
    if (member.fieldKind === 'map') return this.#map(member, value);
    if (member.fieldKind === 'list')
      return new ListWriter(value, { ...nameOf(member), empty: this.#dialect.emptyList(member) });
    return new SingleWriter(value, {
      ...nameOf(member),
      isNullable: isPointer(member),
      omitsZero: this.#dialect.omitsZero(member),
    });
  }

  #map(field: DescField & { fieldKind: 'map' }, value: ValueWriter): MapWriter {
    return new MapWriter({
      ...nameOf(field),
      keyType: field.mapKey,
      key: this.#dialect.scalar(field.mapKey),
      value,
      absent: () => absentMapValue(field, value),
    });
  }

  #value(field: DescField): ValueWriter {
    const special = this.#dialect.form(formOf(field));
    if (special) return special;
    if (field.message) return this.#messageValue(field.message);
    if (field.enum) return this.#dialect.enum(field.enum);
    return this.#dialect.scalar(field.scalar);
  }

  #messageValue(type: DescMessage): ValueWriter {
    if (isGoPrinted(type) && this.#dialect !== GO_DIALECT) {
      this.#goPrinted ??= new JsonWriters(this.#registry, GO_DIALECT);
      return this.#goPrinted.#messageValue(type);
    }
    const known = this.#embedded.get(type.typeName);
    if (known) return known;
    const value = this.#newMessageValue(type);
    this.#embedded.set(type.typeName, value);
    return value;
  }

  #newMessageValue(type: DescMessage): ValueWriter {
    const form = messageForm(type);
    // Made on first use: a message may hold itself.
    let made: MessageWriter | undefined;
    const message = () => {
      made ??= this.message(type);
      return made;
    };
    switch (form) {
      case 'any':
        return this.#any;
      case 'timestamp':
        return this.#dialect.timestamp;
      case 'duration':
        return this.#dialect.duration;
      case 'only_member':
        return new EmbeddedWriter((wire, out) => message().writeOnlyValue(wire, out));
      case 'fields':
        return new EmbeddedWriter((wire, out) => message().writeBody(wire, out));
      default:
        return form satisfies never;
    }
  }

  #anyContent(typeName: string): AnyContent | undefined {
    const type = this.#registry.getMessage(typeName);
    if (!type) return undefined;
    if (messageForm(type) === 'fields')
      return { isInline: true, print: (wire, out) => this.message(type).writeMembers(wire, out) };
    const value = this.#messageValue(type);
    return { isInline: false, print: (wire, out) => value.writeBody?.(wire, out) };
  }
}

function nameOf(field: DescField) {
  return { name: field.name, number: field.number };
}

/** Go keeps no message for an entry without one, unless it may not be null, but bytes it does keep. */
function absentMapValue(field: DescField & { fieldKind: 'map' }, value: ValueWriter): Uint8Array {
  if (field.mapKind === 'message' && isNullable(field)) return NULL;
  return field.scalar === ScalarType.BYTES ? EMPTY_TEXT : value.zero();
}
