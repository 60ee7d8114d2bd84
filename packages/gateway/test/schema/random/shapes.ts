import type { Facts, FieldFact } from '../facts.js';
import { MAPPING_FACTS } from '../mapping/mapping-facts.js';

const SCALARS = [
  'int32',
  'int64',
  'uint32',
  'uint64',
  'sint32',
  'sint64',
  'fixed32',
  'fixed64',
  'sfixed32',
  'sfixed64',
  'bool',
  'float',
  'double',
  'string',
  'bytes',
];

const TIMESTAMP = 'google.protobuf.Timestamp';
const DURATION = 'google.protobuf.Duration';
const dec = { type: 'string', customtype: 'cosmossdk.io/math.LegacyDec' };
const int = { type: 'string', customtype: 'cosmossdk.io/math.Int' };

/** Numbers the fields in order. */
function numbered(fields: readonly Omit<FieldFact, 'no'>[]): FieldFact[] {
  return fields.map((field, i) => ({ no: i + 1, ...field }));
}

function named(
  types: readonly string[],
  options: Partial<FieldFact> = {},
): Omit<FieldFact, 'no'>[] {
  return types.map((type, i) => ({ name: `field_${i}`, type, ...options }));
}

/** Message types that together use every rule of the mapping. */
export const SHAPES: Facts = {
  enums: MAPPING_FACTS.enums,
  messages: {
    ...MAPPING_FACTS.messages,
    'shapes.Scalars': numbered(named(SCALARS)),
    'shapes.Optionals': numbered(named(SCALARS, { optional: true })),
    'shapes.Lists': numbered(named([...SCALARS, 'test.Color', 'test.Leaf'], { repeated: true })),
    'shapes.Choices': [
      { no: 3, name: 'first', type: 'string' },
      { no: 7, name: 'text', type: 'string', oneof: 'choice' },
      { no: 2, name: 'between', type: 'uint64' },
      { no: 1, name: 'leaf', type: 'test.Leaf', oneof: 'choice' },
      { no: 9, name: 'raw', type: 'bytes', oneof: 'choice' },
      { no: 20, name: 'number', type: 'int64', oneof: 'other' },
      { no: 500, name: 'color', type: 'test.Color', oneof: 'other' },
    ],
    'shapes.Forms': numbered([
      { name: 'dec', ...dec, nullable: false },
      { name: 'maybe_dec', ...dec },
      { name: 'decs', ...dec, repeated: true, nullable: false },
      { name: 'int', ...int, nullable: false },
      { name: 'maybe_int', ...int },
      { name: 'hex', type: 'bytes', casttype: 'x/bytes.HexBytes' },
      { name: 'raw', type: 'bytes', casttype: 'RawContractMessage' },
      { name: 'access', type: 'cosmwasm.wasm.v1.AccessType' },
      { name: 'color', type: 'test.Color' },
    ]),
    'shapes.Times': numbered([
      { name: 'at', type: TIMESTAMP },
      { name: 'at_value', type: TIMESTAMP, nullable: false },
      { name: 'std', type: TIMESTAMP, stdtime: true },
      { name: 'std_value', type: TIMESTAMP, stdtime: true, nullable: false },
      { name: 'times', type: TIMESTAMP, stdtime: true, nullable: false, repeated: true },
      { name: 'lasts', type: DURATION },
      { name: 'lasts_value', type: DURATION, nullable: false },
      { name: 'std_lasts', type: DURATION, stdduration: true, nullable: false },
    ]),
    'shapes.Tree': [
      { no: 16, name: 'id', type: 'string' },
      { no: 1, name: 'branch', type: 'test.Branch' },
      { no: 2, name: 'value', type: 'test.Branch', nullable: false },
      { no: 3, name: 'children', type: 'shapes.Tree', repeated: true, nullable: false },
      { no: 4, name: 'parent', type: 'shapes.Tree' },
    ],
    'shapes.Maps': numbered(
      named([
        'map<string, string>',
        'map<string, bytes>',
        'map<int32, int64>',
        'map<uint64, test.Color>',
        'map<bool, double>',
        'map<sint64, test.Leaf>',
      ]),
    ),
    'shapes.Anys': numbered([
      { name: 'any', type: 'google.protobuf.Any' },
      { name: 'list', type: 'google.protobuf.Any', repeated: true },
    ]),
    'shapes.Delegations': numbered([
      { name: 'one', type: 'cosmos.staking.v1beta1.DelegationResponse' },
      {
        name: 'many',
        type: 'cosmos.staking.v1beta1.DelegationResponse',
        repeated: true,
        nullable: false,
      },
      { name: 'moved', type: 'cosmos.staking.v1beta1.RedelegationResponse', nullable: false },
    ]),
  },
};
