import { type DescField, type DescMessage, ScalarType } from '@bufbuild/protobuf';
import type { TypeRegistry } from '../schema/descriptors.js';
import { getFieldForm, getMessageForm, isNullable } from '../schema/options.js';
import { BindError, quote, UnknownTypeBindError, ValueError, withFieldName } from './bind-error.js';
import { type JsonNode, readJson, readString } from './json-node.js';
import { asValue, findField, MessageDraft, type WireValue } from './message-draft.js';
import {
  parseDecimalText,
  parseDuration,
  parseHex,
  parseIntegerText,
  parseTimestamp,
} from './parse-values.js';
import {
  anyValue,
  boolValue,
  bytesValue,
  enumNumber,
  enumValue,
  mapEntryValue,
  scalarFromText,
  textValue,
  timeValue,
} from './wire-values.js';

export interface BodyRules {
  /** Any types that a body may hold. */
  readonly registry: TypeRegistry;
  /** `node` ignores unknown members and reads bytes as strictly as a node. */
  readonly compat: 'node' | undefined;
}

/** Binds the JSON of a body to the message, or to its body field. */
export function bindBody(
  draft: MessageDraft,
  target: string,
  body: Uint8Array | undefined,
  rules: BodyRules,
): void {
  const json = body && readJson(body, rules.compat);
  if (!json || (rules.compat && json.text === 'null')) return;
  const binder = new JsonBinder(rules);
  if (target === '*') {
    binder.bindMembers(draft, json, '');
    return;
  }
  const field = findField(draft.type, target);
  if (!field) throw new BindError(target, `takes the body, but is not in ${draft.type.typeName}`);
  binder.bindField(draft, field, json, target);
}

/** Binds protobuf's JSON to messages. Paths only name the field in an error. */
export class JsonBinder {
  constructor(private readonly rules: BodyRules) {}

  bindMembers(draft: MessageDraft, json: JsonNode, path: string): void {
    for (const [name, value] of expectMembers(json, path)) {
      const field = findField(draft.type, name);
      if (!field && this.rules.compat) continue;
      if (!field) throw new BindError(join(path, name), `is not a field of ${draft.type.typeName}`);
      this.bindField(draft, field, value, join(path, name));
    }
    fillNonNullable(draft);
  }

  bindField(draft: MessageDraft, field: DescField, json: JsonNode, path: string): void {
    if (json.text === 'null' && !takesNull(field)) return;
    if (field.fieldKind === 'list') this.bindList(draft, field, json, path);
    else if (field.fieldKind === 'map') this.bindMap(draft, field, json, path);
    else {
      const value = this.value(field, json, path);
      withFieldName(path, () => draft.set(field, value));
    }
  }

  private bindList(draft: MessageDraft, field: DescField, json: JsonNode, path: string): void {
    if (!json.items) throw new BindError(path, `${quote(json.text)} is not a list`);
    draft.clear(field);
    for (const [i, item] of json.items.entries())
      draft.add(field, this.value(field, item, `${path}[${i}]`));
  }

  private bindMap(
    draft: MessageDraft,
    field: DescField & { readonly fieldKind: 'map' },
    json: JsonNode,
    path: string,
  ): void {
    draft.clear(field);
    for (const [name, item] of expectMembers(json, path)) {
      const at = join(path, name);
      const key = withFieldName(at, () => scalarFromText(field.mapKey, name, 'tolerant'));
      draft.add(field, mapEntryValue(key, this.value(field, item, at)));
    }
  }

  private value(field: DescField, json: JsonNode, path: string): WireValue {
    if (field.message) return this.message(field.message, json, path);
    return withFieldName(path, () => leafFromJson(field, json, this.rules.compat));
  }

  private message(type: DescMessage, json: JsonNode, path: string): WireValue {
    const form = getMessageForm(type);
    switch (form) {
      case 'timestamp':
        return withFieldName(path, () => timeValue(parseTimestamp(expectString(json))));
      case 'duration':
        return withFieldName(path, () => timeValue(parseDuration(expectString(json))));
      case 'any':
        return this.any(json, path);
      case 'fields':
      case 'only_member': {
        const draft = new MessageDraft(type);
        if (form === 'fields') this.bindMembers(draft, json, path);
        else this.bindField(draft, onlyMember(type, json), json, path);
        return asValue(draft);
      }
      default:
        return form satisfies never;
    }
  }

  private any(json: JsonNode, path: string): WireValue {
    const members = expectMembers(json, path);
    const url = members.find(([name]) => name === '@type')?.[1];
    const typeUrl = url && readString(url);
    if (typeUrl === undefined) throw new BindError(join(path, '@type'), 'is missing');
    const typeName = typeUrl.slice(typeUrl.lastIndexOf('/') + 1);
    const type = this.rules.registry.findMessage(typeName);
    if (!type) throw new UnknownTypeBindError(join(path, '@type'), typeName, typeUrl);
    const others = members.filter(([name]) => name !== '@type');
    if (getMessageForm(type) === 'fields')
      return anyValue(typeUrl, this.message(type, { text: json.text, members: others }, path));
    const special = others.find(([name]) => name === 'value')?.[1];
    if (!special) throw new BindError(join(path, 'value'), 'is missing');
    return anyValue(typeUrl, this.message(type, special, join(path, 'value')));
  }
}

function expectMembers(json: JsonNode, path: string): NonNullable<JsonNode['members']> {
  if (!json.members) throw new BindError(path, `${quote(json.text)} is not an object`);
  return json.members;
}

function join(path: string, name: string): string {
  return path === '' ? name : `${path}.${name}`;
}

/** In a dynamic value, null is a value. */
function takesNull(field: DescField): boolean {
  return (
    field.message?.typeName === 'google.protobuf.Value' ||
    field.enum?.typeName === 'google.protobuf.NullValue'
  );
}

/** The field of a wrapper, or the field for the type of a dynamic value. */
function onlyMember(type: DescMessage, json: JsonNode): DescField {
  const name = type.fields.length === 1 ? type.fields[0]?.name : dynamicField(json);
  const field = findField(type, name ?? '');
  if (!field) throw new BindError('', `${type.typeName} has an unexpected definition`);
  return field;
}

function dynamicField(json: JsonNode): string {
  if (json.members) return 'struct_value';
  if (json.items) return 'list_value';
  if (json.text === 'null') return 'null_value';
  if (json.text === 'true' || json.text === 'false') return 'bool_value';
  return json.text.startsWith('"') ? 'string_value' : 'number_value';
}

/** Reads one value of a field that is not a message. */
export function leafFromJson(field: DescField, json: JsonNode, compat?: 'node'): WireValue {
  if (field.message) throw new TypeError(`${field.name} is a message`);
  if (field.enum) return enumFromJson(field.enum, json);
  switch (getFieldForm(field)) {
    case 'integer':
      return textValue(parseIntegerText(readString(json) ?? json.text));
    case 'decimal':
      return textValue(parseDecimalText(readString(json) ?? json.text));
    case 'hex':
      return bytesValue(parseHex(expectString(json)));
    case 'raw_json':
      return bytesValue(Buffer.from(json.text));
    default:
      return scalarFromJson(field.scalar, json, compat);
  }
}

function enumFromJson(type: NonNullable<DescField['enum']>, json: JsonNode): WireValue {
  if (json.text === 'null') return enumValue(0);
  return enumValue(enumNumber(type, readString(json) ?? json.text));
}

const FLOATS = new Set([ScalarType.FLOAT, ScalarType.DOUBLE]);
const NOT_FINITE = new Set(['NaN', 'Infinity', '-Infinity']);
const WHOLE = /^-?(0|[1-9]\d*)$/;
const NUMBER = /^-?\d/;

/** Reads a scalar from protobuf's JSON, where numbers may be quoted. */
export function scalarFromJson(type: ScalarType, json: JsonNode, compat?: 'node'): WireValue {
  const text = readString(json);
  switch (type) {
    case ScalarType.STRING:
      return textValue(expectString(json));
    case ScalarType.BYTES:
      return bytesFromJson(expectString(json), compat);
    case ScalarType.BOOL:
      if (json.text !== 'true' && json.text !== 'false')
        throw new ValueError(`${quote(json.text)} is neither true nor false`);
      return boolValue(json.text === 'true');
    default:
      return numberFromJson(type, text ?? json.text);
  }
}

/** In a body, a node accepts only the standard alphabet. */
function bytesFromJson(text: string, compat: 'node' | undefined): WireValue {
  if (compat && /[-_]/.test(text)) throw new ValueError(`${quote(text)} is not base64`);
  return scalarFromText(ScalarType.BYTES, text, compat ?? 'tolerant');
}

export function expectString(json: JsonNode): string {
  const text = readString(json);
  if (text === undefined) throw new ValueError(`${quote(json.text)} is not a string`);
  return text;
}

function numberFromJson(type: ScalarType, text: string): WireValue {
  const isRight = FLOATS.has(type) ? NUMBER.test(text) || NOT_FINITE.has(text) : WHOLE.test(text);
  if (!isRight) throw new ValueError(`${quote(text)} is not a valid number`);
  return scalarFromText(type, text, 'tolerant');
}

/** Go's zero time, in the year 1. */
const YEAR_1 = { seconds: -62_135_596_800n, nanos: 0 };

/**
 * Adds what Go sends even when it is not set. The bytes of a message inside an Any are kept unchanged
 * and are signed, so they have to equal those that Go encodes.
 */
export function fillNonNullable(draft: MessageDraft): void {
  for (const field of draft.type.fields) {
    if (field.fieldKind === 'list' || field.fieldKind === 'map' || field.oneof) continue;
    if (draft.has(field) || isNullable(field)) continue;
    const zero = buildZero(field);
    if (zero) draft.set(field, zero);
  }
}

function buildZero(field: DescField): WireValue | undefined {
  switch (getFieldForm(field)) {
    case 'std_time':
      return timeValue(YEAR_1);
    case 'integer':
    case 'decimal':
      return textValue('0');
    default:
      if (!field.message) return undefined;
      return emptyMessage(field.message);
  }
}

function emptyMessage(type: NonNullable<DescField['message']>): WireValue {
  const draft = new MessageDraft(type);
  fillNonNullable(draft);
  return asValue(draft);
}
