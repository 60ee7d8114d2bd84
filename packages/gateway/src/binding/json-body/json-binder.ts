import type { DescField, DescMessage, Registry } from '@bufbuild/protobuf';
import { messageForm } from '../../descriptors/message-form.js';
import { BindFault, namingField, quote } from '../bind-fault.js';
import { fieldNamed } from '../field-path.js';
import { asValue, MessageDraft, type WireValue } from '../message-draft.js';
import { scalarFromText } from '../scalars.js';
import { parseDuration, parseTimestamp } from '../text/times.js';
import { timeValue } from '../time-value.js';
import { anyValue, mapEntryValue } from './composite-values.js';
import { fillNonNullable } from './fill-non-nullable.js';
import { type JsonNode, stringOf } from './json-node.js';
import { leafFromJson } from './leaf-from-json.js';
import { expectString } from './scalar-from-json.js';

/** Puts protobuf's JSON into messages. A path is only there to name the field in a fault. */
export class JsonBinder {
  readonly #registry: Registry;

  constructor(registry: Registry) {
    this.#registry = registry;
  }

  bindMembers(draft: MessageDraft, json: JsonNode, path: string): void {
    for (const [name, value] of expectMembers(json, path)) {
      const field = fieldNamed(draft.type, name);
      if (!field) throw new BindFault(join(path, name), `is not a field of ${draft.type.typeName}`);
      this.bindField(draft, field, value, join(path, name));
    }
    fillNonNullable(draft);
  }

  bindField(draft: MessageDraft, field: DescField, json: JsonNode, path: string): void {
    if (json.text === 'null' && !takesNull(field)) return;
    if (field.fieldKind === 'list') this.#bindList(draft, field, json, path);
    else if (field.fieldKind === 'map') this.#bindMap(draft, field, json, path);
    else {
      const value = this.#value(field, json, path);
      namingField(path, () => draft.set(field, value));
    }
  }

  #bindList(draft: MessageDraft, field: DescField, json: JsonNode, path: string): void {
    if (!json.items) throw new BindFault(path, `${quote(json.text)} is not a list`);
    draft.clear(field);
    for (const [i, item] of json.items.entries())
      draft.add(field, this.#value(field, item, `${path}[${i}]`));
  }

  #bindMap(
    draft: MessageDraft,
    field: DescField & { readonly fieldKind: 'map' },
    json: JsonNode,
    path: string,
  ): void {
    draft.clear(field);
    for (const [name, item] of expectMembers(json, path)) {
      const at = join(path, name);
      const key = namingField(at, () => scalarFromText(field.mapKey, name, 'tolerant'));
      draft.add(field, mapEntryValue(key, this.#value(field, item, at)));
    }
  }

  #value(field: DescField, json: JsonNode, path: string): WireValue {
    if (field.message) return this.#message(field.message, json, path);
    return namingField(path, () => leafFromJson(field, json));
  }

  #message(type: DescMessage, json: JsonNode, path: string): WireValue {
    const form = messageForm(type);
    switch (form) {
      case 'timestamp':
        return namingField(path, () => timeValue(parseTimestamp(expectString(json))));
      case 'duration':
        return namingField(path, () => timeValue(parseDuration(expectString(json))));
      case 'any':
        return this.#any(json, path);
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

  #any(json: JsonNode, path: string): WireValue {
    const members = expectMembers(json, path);
    const url = members.find(([name]) => name === '@type')?.[1];
    const typeUrl = url && stringOf(url);
    if (typeUrl === undefined) throw new BindFault(join(path, '@type'), 'is missing');
    const type = this.#registry.getMessage(typeUrl.slice(typeUrl.lastIndexOf('/') + 1));
    if (!type)
      throw new BindFault(join(path, '@type'), `${quote(typeUrl)} is no type of this chain`);
    const others = members.filter(([name]) => name !== '@type');
    if (messageForm(type) === 'fields')
      return anyValue(typeUrl, this.#message(type, { text: json.text, members: others }, path));
    const special = others.find(([name]) => name === 'value')?.[1];
    if (!special) throw new BindFault(join(path, 'value'), 'is missing');
    return anyValue(typeUrl, this.#message(type, special, join(path, 'value')));
  }
}

function expectMembers(json: JsonNode, path: string): NonNullable<JsonNode['members']> {
  if (!json.members) throw new BindFault(path, `${quote(json.text)} is not an object`);
  return json.members;
}

function join(path: string, name: string): string {
  return path === '' ? name : `${path}.${name}`;
}

/** In a dynamic value null is a value like any other. */
function takesNull(field: DescField): boolean {
  return (
    field.message?.typeName === 'google.protobuf.Value' ||
    field.enum?.typeName === 'google.protobuf.NullValue'
  );
}

/** The field of a wrapper, or the one that a dynamic value is of. */
function onlyMember(type: DescMessage, json: JsonNode): DescField {
  const name = type.fields.length === 1 ? type.fields[0]?.name : dynamicField(json);
  const field = fieldNamed(type, name ?? '');
  if (!field) throw new BindFault('', `${type.typeName} is not as it should be`);
  return field;
}

function dynamicField(json: JsonNode): string {
  if (json.members) return 'struct_value';
  if (json.items) return 'list_value';
  if (json.text === 'null') return 'null_value';
  if (json.text === 'true' || json.text === 'false') return 'bool_value';
  return json.text.startsWith('"') ? 'string_value' : 'number_value';
}
