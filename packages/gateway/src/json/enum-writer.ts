import type { DescEnum } from '@bufbuild/protobuf';
import { jsonBytes, type ValueWriter } from './value-writer.js';
import { writeInteger } from './values/numbers.js';
import { WIRE_TYPE } from './wire-reader.js';

const ZERO = jsonBytes('0');

/** Enums whose Go type has names of its own; any other number has the name that is given last. */
const OWN_NAMES = new Map<
  string,
  { readonly names: Readonly<Record<number, string>>; rest: string }
>([
  [
    'cosmwasm.wasm.v1.AccessType',
    { names: { 1: '"Nobody"', 3: '"Everybody"', 4: '"AnyOfAddresses"' }, rest: '"Unspecified"' },
  ],
  ['google.protobuf.NullValue', { names: {}, rest: 'null' }],
]);

/** Prints the name of an enum's value, or the bare number if it has none. */
export function enumWriter(type: DescEnum): ValueWriter {
  const own = OWN_NAMES.get(type.typeName);
  const texts: Uint8Array[] = [];
  for (const { number, name } of type.values) texts[number] ??= jsonBytes(`"${name}"`);
  for (const [number, text] of Object.entries(own?.names ?? {}))
    texts[Number(number)] = jsonBytes(text);
  const rest = own && jsonBytes(own.rest);
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

/** Prints an enum's number, as Go's own JSON does. */
export const ENUM_NUMBER: ValueWriter = {
  wireType: WIRE_TYPE.varint,
  write(wire, out) {
    wire.varint();
    writeInteger(out, wire.low);
  },
  zero: () => ZERO,
};
