import type { DescEnum } from '@bufbuild/protobuf';
import { jsonBytes, type ValueWriter } from './value-writer.js';
import { writeInteger } from './values/numbers.js';
import { WIRE_TYPE } from './wire-reader.js';

const ZERO = jsonBytes('0');

/** Enums whose Go type has names of its own, and one for all other numbers. */
const OWN_NAMES: ReadonlyMap<string, EnumNames> = new Map([
  [
    'cosmwasm.wasm.v1.AccessType',
    {
      names: [
        [1, '"Nobody"'],
        [3, '"Everybody"'],
        [4, '"AnyOfAddresses"'],
      ],
      rest: '"Unspecified"',
    },
  ],
  ['google.protobuf.NullValue', { names: [], rest: 'null' }],
]);

interface EnumNames {
  readonly names: readonly (readonly [number: number, json: string])[];
  readonly rest?: string;
}

/** Prints the name of an enum's value, or the bare number if it has none. */
export function enumWriter(type: DescEnum): ValueWriter {
  const { names, rest: restName } = OWN_NAMES.get(type.typeName) ?? declaredNames(type);
  const texts: Uint8Array[] = [];
  for (const [number, json] of names) texts[number] ??= jsonBytes(json);
  const rest = restName === undefined ? undefined : jsonBytes(restName);
  const zero = texts[0] ?? rest ?? ZERO;
  return {
    wireType: WIRE_TYPE.varint,
    write(wire, out) {
      wire.varint();
      const text = texts[wire.low] ?? rest;
      if (text) out.raw(text);
      else writeInteger(out, wire.low);
    },
    zero: () => zero,
  };
}

/** The JSON of all values that have a name. */
export function enumJson(type: DescEnum): unknown[] {
  const { names, rest } = OWN_NAMES.get(type.typeName) ?? declaredNames(type);
  return [...names.map(([, json]) => json), ...(rest ? [rest] : [])].map((json) =>
    JSON.parse(json),
  );
}

function declaredNames(type: DescEnum): EnumNames {
  return { names: type.values.map(({ number, name }) => [number, `"${name}"`]) };
}

/** Prints an enum's number, as Go's own JSON does. */
export const ENUM_NUMBER: ValueWriter = {
  wireType: WIRE_TYPE.varint,
  write(wire, out) {
    wire.varint();
    writeInteger(out, wire.low);
  },
  zero: () => ZERO,
};
