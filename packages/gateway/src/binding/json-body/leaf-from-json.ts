import type { DescField } from '@bufbuild/protobuf';
import { formOf } from '../../descriptors/field-form.js';
import { enumNumber } from '../enum-numbers.js';
import type { WireValue } from '../message-draft.js';
import { bytesValue, enumValue, textValue } from '../scalars.js';
import { parseDecimalText, parseIntegerText } from '../text/big-numbers.js';
import { parseHex } from '../text/bytes.js';
import { type JsonNode, stringOf } from './json-node.js';
import { expectString, scalarFromJson } from './scalar-from-json.js';

/** Reads one value of a field that is no message. */
export function leafFromJson(field: DescField, json: JsonNode): WireValue {
  if (field.message) throw new TypeError(`${field.name} is a message`);
  if (field.enum) return enumFromJson(field.enum, json);
  switch (formOf(field)) {
    case 'integer':
      return textValue(parseIntegerText(stringOf(json) ?? json.text));
    case 'decimal':
      return textValue(parseDecimalText(stringOf(json) ?? json.text));
    case 'hex':
      return bytesValue(parseHex(expectString(json)));
    case 'raw_json':
      return bytesValue(Buffer.from(json.text));
    default:
      return scalarFromJson(field.scalar, json);
  }
}

function enumFromJson(type: NonNullable<DescField['enum']>, json: JsonNode): WireValue {
  if (json.text === 'null') return enumValue(0);
  return enumValue(enumNumber(type, stringOf(json) ?? json.text));
}
