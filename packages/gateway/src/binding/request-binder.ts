import { type DescField, type DescMessage, ScalarType } from '@bufbuild/protobuf';
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import { FeatureSet_FieldPresence } from '@bufbuild/protobuf/wkt';
import type { TypeRegistry } from '../schema/descriptors.js';
import { getFieldForm, getMessageForm } from '../schema/options.js';
import { BindError, ValueError, withFieldName } from './bind-error.js';
import type { QueryValues } from './go-url.js';
import { bindBody } from './json-binder.js';
import {
  asValue,
  type FieldPath,
  findField,
  findFieldPath,
  MessageDraft,
  type WireValue,
} from './message-draft.js';
import {
  type Base64Reading,
  parseDecimalText,
  parseDuration,
  parseInteger,
  parseIntegerText,
  parseTimestamp,
  UINT64,
} from './parse-values.js';
import { enumNumber, enumValue, scalarFromText, textValue, timeValue } from './wire-values.js';

/** The parts of an HTTP request that make a gRPC request. */
export interface BindInput {
  /** Decoded values of the path template's variables, by their dotted field path. */
  readonly params: ReadonlyMap<string, string>;
  readonly query: QueryValues;
  /** The JSON text of a POST. */
  readonly body?: Uint8Array | undefined;
}

/** A request as it goes to a node. */
export interface BoundRequest {
  readonly message: Uint8Array;
  /** Whether the limit of the page was lowered to the largest that is allowed. */
  readonly isPageCapped: boolean;
}

export interface BindRules {
  /** Any types that a body may hold. */
  readonly registry: TypeRegistry;
  /** `node` reads requests exactly as a node does. */
  readonly compat: 'node' | undefined;
  readonly maxPageLimit: number;
}

export interface BoundMessage {
  readonly type: DescMessage;
  readonly variables: readonly string[];
  /** `*` for the whole message, the name of a field, or empty for none. */
  readonly body: string;
}

/** Turns HTTP requests of one route into request messages on the wire. */
export class RequestBinder {
  private readonly message: BoundMessage;
  private readonly rules: BindRules;
  private readonly variables: ReadonlyMap<string, FieldPath>;
  /** Set if the path binds only texts: most requests are that simple, and are encoded without a draft. */
  private readonly plainFields: readonly PlainField[] | undefined;

  constructor(message: BoundMessage, rules: BindRules) {
    this.message = message;
    this.rules = rules;
    this.variables = new Map(
      message.variables.map((name) => [name, variablePath(message.type, name)]),
    );
    this.plainFields = message.body === '' ? findPlainFields(this.variables) : undefined;
  }

  /** Whether a query key names a field that neither the path nor the body binds. */
  takesQueryKey(key: string): boolean {
    return this.queryField(key) !== undefined;
  }

  bind({ params, query, body }: BindInput): BoundRequest {
    if (this.plainFields && query.size === 0)
      return { message: encodePlain(this.plainFields, params), isPageCapped: false };
    const draft = new MessageDraft(this.message.type);
    if (this.message.body !== '') bindBody(draft, this.message.body, body, this.rules);
    this.bindParams(draft, params);
    const isPageCapped = this.bindQuery(draft, query);
    return { message: encodeDraft(draft), isPageCapped };
  }

  private bindParams(draft: MessageDraft, params: ReadonlyMap<string, string>): void {
    for (const [name, path] of this.variables) {
      const text = params.get(name) ?? '';
      const texts = path.at(-1)?.fieldKind === 'list' ? text.split(',') : [text];
      withFieldName(name, () => bindTexts(draft, path, texts, this.base64));
    }
  }

  /** Whether a node looks at the query at all: it does not if path and body bind every field. */
  get readsQuery(): boolean {
    const { type, body, variables } = this.message;
    const isBound = (name: string) => name === body || variables.includes(name);
    return body !== '*' && type.fields.some(({ name }) => !isBound(name));
  }

  /** Returns whether the limit of a page was lowered. */
  private bindQuery(draft: MessageDraft, query: QueryValues): boolean {
    if (query.size === 0) return false;
    if (this.rules.compat === 'node') return this.bindNodeQuery(draft, query);
    let isPageCapped = false;
    for (const [key, values] of groupValues(query)) {
      const { name, texts } = readKey(key, values);
      const path = this.queryField(name);
      if (!path) continue;
      const capped = withFieldName(key, () => this.capPage(path, texts));
      isPageCapped ||= capped !== texts;
      withFieldName(key, () => bindTexts(draft, path, capped, this.base64));
    }
    return isPageCapped;
  }

  private bindNodeQuery(draft: MessageDraft, query: QueryValues): boolean {
    if (!this.readsQuery) return false;
    const { type, body, variables } = this.message;
    const bound = [...variables, body].filter((name) => name !== '').map((name) => name.split('.'));
    for (const [key, values] of groupValues(query)) {
      const { name, texts } = readKey(key, values);
      const names = name.split('.');
      // A node compares names, so a field that the path binds can be set by its other name.
      if (bound.some((path) => path.every((one, i) => one === names[i]))) continue;
      const path = withFieldName(key, () => walkPath(draft, type, names));
      if (path) withFieldName(key, () => bindTexts(draft, path, texts, 'node'));
    }
    return false;
  }

  private capPage(path: FieldPath, texts: readonly string[]): readonly string[] {
    const { maxPageLimit } = this.rules;
    if (!isPageLimit(path)) return texts;
    const isAbove = parseInteger(texts[0] ?? '', UINT64) > BigInt(maxPageLimit);
    return isAbove ? [String(maxPageLimit)] : texts;
  }

  /** Unknown keys are ignored, as a node does. */
  private queryField(key: string): FieldPath | undefined {
    if (this.message.body === '*') return undefined;
    const path = findFieldPath(this.message.type, key);
    if (!path || path[0].name === this.message.body) return undefined;
    return [...this.variables.values()].some((bound) => beginsWith(path, bound)) ? undefined : path;
  }

  private get base64() {
    return this.rules.compat ?? 'tolerant';
  }
}

interface PlainField {
  readonly name: string;
  readonly number: number;
}

/** The variables in order of their numbers; undefined if one is not a text of the message itself. */
function findPlainFields(variables: ReadonlyMap<string, FieldPath>): PlainField[] | undefined {
  const fields: PlainField[] = [];
  for (const [name, [field, ...rest]] of variables) {
    const isPlain =
      rest.length === 0 &&
      field.fieldKind === 'scalar' &&
      field.scalar === ScalarType.STRING &&
      field.presence === FeatureSet_FieldPresence.IMPLICIT &&
      getFieldForm(field) === 'plain' &&
      field.number <= MAX_SHORT_NUMBER;
    if (!isPlain) return undefined;
    fields.push({ name, number: field.number });
  }
  return fields.sort((a, b) => a.number - b.number);
}

/** Tags up to this field number, and lengths below the limit, take one byte. */
const MAX_SHORT_NUMBER = 15;
const SHORT_LENGTH = 0x80;
const NOTHING = new Uint8Array();

function encodePlain(
  fields: readonly PlainField[],
  params: ReadonlyMap<string, string>,
): Uint8Array {
  if (fields.length === 0) return NOTHING;
  const [only, ...others] = fields;
  const text = params.get(only?.name ?? '') ?? '';
  if (only && others.length === 0 && text.length < SHORT_LENGTH && ASCII.test(text)) {
    if (text === '') return NOTHING;
    const message = Buffer.allocUnsafe(2 + text.length);
    message[0] = (only.number << 3) | WireType.LengthDelimited;
    message[1] = text.length;
    message.write(text, 2, 'latin1');
    return message;
  }
  const writer = new BinaryWriter();
  for (const { name, number } of fields) {
    const value = textValue(params.get(name) ?? '');
    if (!value.isZero) value.write(writer.tag(number, value.wireType));
  }
  return writer.finish();
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: these are the characters of one byte.
const ASCII = /^[\x00-\x7f]*$/;

/** Reused for the next request unless writing fails, since its buffer is expensive. */
let idle: BinaryWriter | undefined;

function encodeDraft(draft: MessageDraft): Uint8Array {
  const writer = idle ?? new BinaryWriter();
  idle = undefined;
  draft.write(writer);
  const bytes = writer.finish();
  idle = writer;
  return bytes;
}

/** The values of each key. To ask for each key would take quadratic time, which a caller could exploit. */
function groupValues(query: QueryValues): Map<string, string[]> {
  const groups = new Map<string, string[]>();
  query.forEach((value, key) => {
    const known = groups.get(key);
    if (known) known.push(value);
    else groups.set(key, [value]);
  });
  return groups;
}

/** The name and values of a key; a text in brackets is the first value, as for a map. */
function readKey(
  key: string,
  texts: readonly string[],
): { name: string; texts: readonly string[] } {
  if (!key.endsWith(']')) return { name: key, texts };
  const [, name, index] = /^(.*)\[(.*)\]$/s.exec(key) ?? [];
  if (name === undefined || index === undefined) return { name: key, texts };
  return { name, texts: [index, ...texts] };
}

/** Finds a field as a node does: it creates the messages on the way, and refuses to look into other values. */
function walkPath(
  draft: MessageDraft,
  type: DescMessage,
  names: readonly string[],
): FieldPath | undefined {
  const found: DescField[] = [];
  let [parent, within] = [draft, type];
  for (const [i, name] of names.entries()) {
    const field = findField(within, name);
    if (!field) return undefined;
    found.push(field);
    if (i === names.length - 1) break;
    if (field.fieldKind !== 'message' || getFieldForm(field) !== 'plain')
      throw new ValueError(`${field.name} has no fields`);
    parent = parent.child(field);
    within = field.message;
  }
  const [first, ...rest] = found;
  return first && [first, ...rest];
}

function beginsWith(path: FieldPath, bound: FieldPath): boolean {
  return bound.every((field, i) => field === path[i]);
}

function variablePath(type: DescMessage, name: string): FieldPath {
  const path = findFieldPath(type, name);
  if (!path) throw new BindError(name, `is in the path, but not in ${type.typeName}`);
  return path;
}

/** Sets the field at the end of a path from texts of a URL; a single field takes the first. */
export function bindTexts(
  draft: MessageDraft,
  path: FieldPath,
  texts: readonly string[],
  base64: Base64Reading,
): void {
  const field = path.at(-1) as DescField;
  const parent = path.slice(0, -1).reduce((parent, step) => {
    // All but the last field of a path are messages.
    return parent.child(step as DescField & { message: DescMessage });
  }, draft);
  if (field.fieldKind !== 'list') {
    // The others may be anything.
    parent.set(field, valueFromText(field, texts[0] ?? '', base64));
    return;
  }
  const values = texts.map((text) => valueFromText(field, text, base64));
  parent.clear(field);
  for (const value of values) parent.add(field, value);
}

/** Reads one value of a field from a URL. */
function valueFromText(field: DescField, text: string, base64: Base64Reading): WireValue {
  if (field.fieldKind === 'map') throw new ValueError('is a map, which a URL cannot contain');
  if (field.message) return messageFromText(field.message, text, base64);
  if (field.enum) return enumValue(enumNumber(field.enum, text, toCompat(base64)));
  switch (getFieldForm(field)) {
    case 'integer':
      if (base64 === 'node') throw new ValueError('is a number that a node does not accept here');
      return textValue(parseIntegerText(text));
    case 'decimal':
      if (base64 === 'node') throw new ValueError('is a number that a node does not accept here');
      return textValue(parseDecimalText(text));
    default:
      return scalarFromText(field.scalar, text, base64);
  }
}

const toCompat = (reading: Base64Reading) => (reading === 'node' ? 'node' : undefined);

function messageFromText(type: DescMessage, text: string, base64: Base64Reading): WireValue {
  switch (getMessageForm(type)) {
    case 'timestamp':
      return timeValue(text === 'null' ? NO_TIME : parseTimestamp(text));
    case 'duration':
      return timeValue(text === 'null' ? NO_TIME : parseDuration(text));
    case 'only_member':
      return wrapTexts(type, [text], base64);
    default:
      if (type.typeName === 'google.protobuf.FieldMask')
        return wrapTexts(type, text.split(','), base64);
      throw new ValueError('is a message; set one of its fields, separated by a dot');
  }
}

/** A message whose one field holds the texts. */
function wrapTexts(type: DescMessage, texts: readonly string[], base64: Base64Reading): WireValue {
  const [field] = type.fields;
  if (!field || type.fields.length > 1)
    throw new ValueError('is a message that a URL cannot contain');
  const draft = new MessageDraft(type);
  bindTexts(draft, [field], texts, base64);
  return asValue(draft);
}

const NO_TIME = { seconds: 0n, nanos: 0 };

const PAGE_REQUEST = 'cosmos.base.query.v1beta1.PageRequest';

type PageField = DescField & { readonly fieldKind: 'message'; readonly message: DescMessage };

/** The pagination field of a request, if it has one. */
export function findPageField(type: DescMessage): PageField | undefined {
  return type.fields.find(
    (field): field is PageField =>
      field.fieldKind === 'message' && field.message.typeName === PAGE_REQUEST && !field.deprecated,
  );
}

function isPageLimit(path: FieldPath): boolean {
  const field = path.at(-1);
  return field?.name === 'limit' && field.parent.typeName === PAGE_REQUEST;
}
