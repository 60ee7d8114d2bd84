import { type Row, varint } from './row.js';

export const NUMBER_ROWS: readonly Row[] = [
  {
    title: 'int32 bare',
    field: { type: 'int32' },
    full: [
      [varint(7), '7'],
      [varint(-1), '-1'],
      [varint(2n ** 40n + 3n), '3'],
      [varint(-(2n ** 31n)), '-2147483648'],
    ],
    absent: '0',
  },
  {
    title: 'uint32 bare',
    field: { type: 'uint32' },
    full: [[varint(4294967295), '4294967295']],
    absent: '0',
  },
  {
    title: 'sint32 bare',
    field: { type: 'sint32' },
    full: [
      [varint(1), '-1'],
      [varint(4294967295), '-2147483648'],
    ],
    absent: '0',
  },
  {
    title: 'fixed32 bare',
    field: { type: 'fixed32' },
    full: [[(m) => m.fixed32(5, -1), '4294967295']],
    absent: '0',
  },
  {
    title: 'sfixed32 bare',
    field: { type: 'sfixed32' },
    full: [[(m) => m.fixed32(5, -1), '-1']],
    absent: '0',
  },
  {
    title: 'int64 quoted',
    field: { type: 'int64' },
    full: [
      [varint(7), '"7"'],
      [varint(-1), '"-1"'],
      [varint(2n ** 53n + 1n), '"9007199254740993"'],
      [varint(2n ** 63n - 1n), '"9223372036854775807"'],
      [varint(-(2n ** 63n)), '"-9223372036854775808"'],
    ],
    absent: '"0"',
  },
  {
    title: 'uint64 quoted',
    field: { type: 'uint64' },
    full: [
      [varint(2n ** 64n - 1n), '"18446744073709551615"'],
      [varint(2n ** 32n), '"4294967296"'],
      [varint(0), '"0"'],
    ],
    absent: '"0"',
  },
  {
    title: 'sint64 quoted',
    field: { type: 'sint64' },
    full: [
      [varint(2n ** 64n - 1n), '"-9223372036854775808"'],
      [varint(3), '"-2"'],
      [varint(4), '"2"'],
    ],
    absent: '"0"',
  },
  {
    title: 'fixed64 quoted',
    field: { type: 'fixed64' },
    full: [[(m) => m.fixed64(5, -1n), '"18446744073709551615"']],
    absent: '"0"',
  },
  {
    title: 'sfixed64 quoted',
    field: { type: 'sfixed64' },
    full: [[(m) => m.fixed64(5, -2n), '"-2"']],
    absent: '"0"',
  },
  {
    title: 'bool bare',
    field: { type: 'bool' },
    full: [
      [varint(1), 'true'],
      [varint(2n ** 40n), 'true'],
      [varint(0), 'false'],
    ],
    absent: 'false',
  },
  {
    title: 'double',
    field: { type: 'double' },
    full: [
      [(m) => m.double(5, 1.5), '1.5'],
      [(m) => m.double(5, -0), '-0'],
      [(m) => m.double(5, 1e21), '1e+21'],
      [(m) => m.double(5, 1e20), '100000000000000000000'],
      [(m) => m.double(5, 1e-7), '1e-7'],
      [(m) => m.double(5, Number.NaN), '"NaN"'],
      [(m) => m.double(5, Number.NEGATIVE_INFINITY), '"-Infinity"'],
    ],
    absent: '0',
  },
  {
    title: 'float',
    field: { type: 'float' },
    full: [
      [(m) => m.float(5, 0.1), '0.1'],
      [(m) => m.float(5, 16777216), '16777216'],
      [(m) => m.float(5, 3.4028235e38), '3.4028235e+38'],
      [(m) => m.float(5, 123456.79), '123456.79'],
      [(m) => m.float(5, -0), '-0'],
      [(m) => m.float(5, Number.POSITIVE_INFINITY), '"Infinity"'],
    ],
    absent: '0',
  },
];
