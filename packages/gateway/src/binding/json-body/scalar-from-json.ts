import { ScalarType } from '@bufbuild/protobuf';
import { quote, ValueFault } from '../bind-fault.js';
import type { WireValue } from '../message-draft.js';
import { boolValue, scalarFromText, textValue } from '../scalars.js';
import { type JsonNode, stringOf } from './json-node.js';

const FLOATS = new Set([ScalarType.FLOAT, ScalarType.DOUBLE]);
const NOT_FINITE = new Set(['NaN', 'Infinity', '-Infinity']);
const WHOLE = /^-?(0|[1-9]\d*)$/;
const NUMBER = /^-?\d/;

/** Reads a scalar from protobuf's JSON, where numbers may stand in quotes. */
export function scalarFromJson(type: ScalarType, json: JsonNode): WireValue {
  const text = stringOf(json);
  switch (type) {
    case ScalarType.STRING:
      return textValue(expectString(json));
    case ScalarType.BYTES:
      return scalarFromText(type, expectString(json), 'tolerant');
    case ScalarType.BOOL:
      if (json.text !== 'true' && json.text !== 'false')
        throw new ValueFault(`${quote(json.text)} is neither true nor false`);
      return boolValue(json.text === 'true');
    default:
      return numberFromJson(type, text ?? json.text);
  }
}

export function expectString(json: JsonNode): string {
  const text = stringOf(json);
  if (text === undefined) throw new ValueFault(`${quote(json.text)} is not a string`);
  return text;
}

function numberFromJson(type: ScalarType, text: string): WireValue {
  const isRight = FLOATS.has(type) ? NUMBER.test(text) || NOT_FINITE.has(text) : WHOLE.test(text);
  if (!isRight) throw new ValueFault(`${quote(text)} is not a number of this kind`);
  return scalarFromText(type, text, 'tolerant');
}
