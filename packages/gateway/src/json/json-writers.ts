import { type DescField, type DescMessage, type DescOneof, ScalarType } from '@bufbuild/protobuf';
import type { TypeRegistry } from '../schema/descriptors.js';
import { getFieldForm, getMessageForm, isNullable, isPointer } from '../schema/options.js';
import { type Dialect, GO_DIALECT, PROTO_DIALECT } from './dialects.js';
import {
  EmbeddedWriter,
  JsonSink,
  jsonBytes,
  Label,
  type PrintBody,
  type ValueWriter,
} from './json-sink.js';
import {
  ListWriter,
  MapWriter,
  type MemberWriter,
  OneofWriter,
  SingleWriter,
} from './member-writers.js';
import { MessageWriter } from './message-writer.js';
import { writeText } from './text.js';
import { WIRE_TYPE, WireError, WireReader } from './wire-reader.js';

/** Printing more takes longer than others should wait. */
const MAX_BYTES_AT_ONCE = 2 * 1024 * 1024;
/** Shared by all replies that are printed at once. */
const wire = new WireReader();
const sink = new JsonSink(MAX_BYTES_AT_ONCE);

/** For those printed in steps, several at a time: growing a new one takes as long as a quarter of the printing. */
const idleSinks: JsonSink[] = [];
/** Each has at most 1 MB. */
const MAX_IDLE_SINKS = 16;

/** Prints the replies of one method. */
export class ReplyWriter {
  private readonly writers: JsonWriters;
  private readonly type: DescMessage;
  private message: MessageWriter | undefined;

  constructor(writers: JsonWriters, type: DescMessage) {
    this.writers = writers;
    this.type = type;
  }

  /** Throws `LongJsonError` if the JSON must be printed in steps. */
  write(reply: Uint8Array): Buffer {
    wire.reset(reply);
    sink.at = 0;
    this.writer().writeBody(wire, sink);
    return sink.take();
  }

  /** Throws `LongJsonError` if the JSON is longer than `maxBytes`. */
  *writeInSteps(reply: Uint8Array, maxBytes?: number): Generator<void, Buffer> {
    const out = idleSinks.pop() ?? new JsonSink();
    out.maxBytes = maxBytes ?? Number.POSITIVE_INFINITY;
    try {
      yield* this.writer().writeInSteps(new WireReader(reply), out);
      return out.take();
    } finally {
      out.clear();
      if (idleSinks.length < MAX_IDLE_SINKS) idleSinks.push(out);
    }
  }

  /** Created on first use, which keeps the start fast. */
  private writer(): MessageWriter {
    this.message ??= this.writers.message(this.type);
    return this.message;
  }
}

const NULL = jsonBytes('null');
const EMPTY_TEXT = jsonBytes('""');

/** The writers of a schema's messages, created on first use. */
export class JsonWriters {
  private readonly registry: TypeRegistry;
  private readonly dialect: Dialect;
  private readonly any: ValueWriter;
  private readonly messages = new Map<string, MessageWriter>();
  private readonly embedded = new Map<string, ValueWriter>();
  private goPrinted: JsonWriters | undefined;

  constructor(registry: TypeRegistry, dialect: Dialect = PROTO_DIALECT) {
    this.registry = registry;
    this.dialect = dialect;
    this.any = anyWriter((typeName) => this.anyContent(typeName));
  }

  message(type: DescMessage): MessageWriter {
    const known = this.messages.get(type.typeName);
    if (known) return known;
    const writer = new MessageWriter(
      type,
      type.members.map((member) => this.member(member)),
    );
    this.messages.set(type.typeName, writer);
    return writer;
  }

  private member(member: DescField | DescOneof): MemberWriter {
    if (member.kind === 'oneof')
      return new OneofWriter(
        member.fields.map((field) => ({ ...pickName(field), value: this.value(field) })),
      );
    const value = this.value(member);
    if (member.fieldKind === 'map') return this.map(member, value);
    if (member.fieldKind === 'list')
      return new ListWriter(value, { ...pickName(member), empty: this.dialect.emptyList(member) });
    return new SingleWriter(value, {
      ...pickName(member),
      isNullable: isPointer(member),
      omitsZero: this.dialect.omitsZero(member),
    });
  }

  private map(field: DescField & { fieldKind: 'map' }, value: ValueWriter): MapWriter {
    return new MapWriter({
      ...pickName(field),
      keyType: field.mapKey,
      key: this.dialect.scalar(field.mapKey),
      value,
      absent: () => absentMapValue(field, value),
    });
  }

  private value(field: DescField): ValueWriter {
    const special = this.dialect.form(getFieldForm(field));
    if (special) return special;
    if (field.message) return this.messageValue(field.message);
    if (field.enum) return this.dialect.enum(field.enum);
    return this.dialect.scalar(field.scalar);
  }

  private messageValue(type: DescMessage): ValueWriter {
    if (isGoPrinted(type) && this.dialect !== GO_DIALECT) {
      this.goPrinted ??= new JsonWriters(this.registry, GO_DIALECT);
      return this.goPrinted.messageValue(type);
    }
    const known = this.embedded.get(type.typeName);
    if (known) return known;
    const value = this.newMessageValue(type);
    this.embedded.set(type.typeName, value);
    return value;
  }

  private newMessageValue(type: DescMessage): ValueWriter {
    const form = getMessageForm(type);
    // Created on first use: a message may contain itself.
    let made: MessageWriter | undefined;
    const message = () => {
      made ??= this.message(type);
      return made;
    };
    switch (form) {
      case 'any':
        return this.any;
      case 'timestamp':
        return this.dialect.timestamp;
      case 'duration':
        return this.dialect.duration;
      case 'only_member':
        return new EmbeddedWriter((wire, out) => message().writeOnlyValue(wire, out));
      case 'fields':
        return new EmbeddedWriter(
          (wire, out) => message().writeBody(wire, out),
          (wire, out) => message().writeBodyInSteps(wire, out),
        );
      default:
        return form satisfies never;
    }
  }

  private anyContent(typeName: string): AnyContent | undefined {
    const type = this.registry.getMessage(typeName);
    if (!type) return undefined;
    if (getMessageForm(type) === 'fields')
      return { isInline: true, print: (wire, out) => this.message(type).writeMembers(wire, out) };
    const value = this.messageValue(type);
    return { isInline: false, print: (wire, out) => value.writeBody?.(wire, out) };
  }
}

function pickName(field: DescField) {
  return { name: field.name, number: field.number };
}

/** For an entry without a value, Go keeps nil messages if they are nullable, and empty bytes. */
function absentMapValue(field: DescField & { fieldKind: 'map' }, value: ValueWriter): Uint8Array {
  if (field.mapKind === 'message' && isNullable(field)) return NULL;
  return field.scalar === ScalarType.BYTES ? EMPTY_TEXT : value.zero();
}

/** How the message inside an Any is printed: its members inline, or its special form as a `value`. */
export interface AnyContent {
  readonly isInline: boolean;
  readonly print: PrintBody;
}

const TYPE_URL_TAG = (1 << 3) | WIRE_TYPE.lengthDelimited;
const VALUE_TAG = (2 << 3) | WIRE_TYPE.lengthDelimited;
const TYPE_LABEL = new Label('@type');
const VALUE_LABEL = new Label('value');

/** Prints an Any by the type it names. */
export function anyWriter(findContent: (typeName: string) => AnyContent | undefined): ValueWriter {
  const embedded = new EmbeddedWriter((wire, out) => {
    const span = readAny(wire);
    const url = Buffer.from(wire.bytes.subarray(span.urlStart, span.urlEnd)).toString();
    const typeName = url.slice(url.lastIndexOf('/') + 1);
    const content = findContent(typeName);
    if (!content) throw new UnknownTypeError(typeName, url);
    const start = out.at;
    out.label(TYPE_LABEL);
    writeText(out, wire.bytes, span.urlStart, span.urlEnd);
    if (!content.isInline) out.label(VALUE_LABEL);
    const outer = wire.narrow(span.valueStart, span.valueEnd);
    content.print(wire, out);
    wire.leave(outer);
    out.closeObject(start);
  });
  return {
    wireType: embedded.wireType,
    write: (wire, out) => embedded.write(wire, out),
    writeBody: embedded.writeBody,
    zero: () => NULL,
  };
}

/** A reply contains an Any whose type is not known; it may be looked up. */
export class UnknownTypeError extends WireError {
  constructor(
    readonly typeName: string,
    url: string,
  ) {
    super(`The reply contains an Any of unknown type ${JSON.stringify(url)}`);
  }
}

function readAny(wire: WireReader) {
  const span = { urlStart: 0, urlEnd: 0, valueStart: 0, valueEnd: 0 };
  while (wire.at < wire.end) {
    const tag = wire.tag();
    wire.skip(tag);
    if (tag !== TYPE_URL_TAG && tag !== VALUE_TAG) continue;
    // The length was read last, as part of skipping.
    const start = wire.at - wire.low;
    if (tag === TYPE_URL_TAG) Object.assign(span, { urlStart: start, urlEnd: wire.at });
    else Object.assign(span, { valueStart: start, valueEnd: wire.at });
  }
  return span;
}

const GO_PRINTED = new Set([
  'cosmos.staking.v1beta1.DelegationResponse',
  'cosmos.staking.v1beta1.RedelegationResponse',
]);

/** Whether a message's Go type prints itself by `encoding/json` when it is the value of a field. */
export function isGoPrinted(type: DescMessage): boolean {
  return GO_PRINTED.has(type.typeName);
}
