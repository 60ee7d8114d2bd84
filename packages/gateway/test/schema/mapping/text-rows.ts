import { bytes, type Row, text, varint } from './row.js';

const int = 'cosmossdk.io/math.Int';
const dec = 'cosmossdk.io/math.LegacyDec';

export const TEXT_ROWS: readonly Row[] = [
  {
    title: 'string with Go escaping',
    field: { type: 'string' },
    full: [
      [text('plain'), '"plain"'],
      [text(''), '""'],
      [text('a"b\\c/d'), '"a\\"b\\\\c/d"'],
      [text('\b\f\n\r\t\u0000\u001f\u007f'), '"\\b\\f\\n\\r\\t\\u0000\\u001f\u007f"'],
      [text('<b>&</b>'), '"\\u003cb\\u003e\\u0026\\u003c/b\\u003e"'],
      [text('\u2027\u2028\u2029\u202a'), '"\u2027\\u2028\\u2029\u202a"'],
      [text('é€😀\ufffd'), '"é€😀\ufffd"'],
      [bytes(0x61, 0xff, 0x62), '"a\\ufffdb"'],
      [bytes(0xed, 0xa0, 0x80), '"\\ufffd\\ufffd\\ufffd"'],
      [bytes(0xc0, 0x80, 0xe2, 0x80), '"\\ufffd\\ufffd\\ufffd\\ufffd"'],
      [bytes(0xf4, 0x90, 0x80, 0x80), '"\\ufffd\\ufffd\\ufffd\\ufffd"'],
      [bytes(0xe2, 0x80, 0x41), '"\\ufffd\\ufffdA"'],
    ],
    absent: '""',
  },
  {
    title: 'bytes in padded base64',
    field: { type: 'bytes' },
    full: [
      [bytes(1), '"AQ=="'],
      [bytes(1, 2), '"AQI="'],
      [bytes(1, 2, 3), '"AQID"'],
      [bytes(0xfb, 0xff), '"+/8="'],
      [bytes(), '""'],
    ],
    absent: 'null',
  },
  {
    title: 'HexBytes in upper hex',
    field: { type: 'bytes', casttype: 'github.com/cometbft/cometbft/libs/bytes.HexBytes' },
    full: [
      [bytes(0, 0xab, 0xff), '"00ABFF"'],
      [bytes(), '""'],
    ],
    absent: '""',
  },
  {
    title: 'RawContractMessage inlined',
    field: { type: 'bytes', casttype: 'RawContractMessage' },
    full: [
      [text('{"a":1}'), '{"a":1}'],
      [
        text(' { "a" : [ 1 , 2.50 ] ,\n "b\\" c":"x <y>" } '),
        '{"a":[1,2.50],"b\\" c":"x \\u003cy\\u003e"}',
      ],
      [text('"\\\\"'), '"\\\\"'],
      [text('"\u2028"'), '"\\u2028"'],
      [text('null'), 'null'],
    ],
    absent: 'null',
  },
  {
    title: 'enum by name, unknown number bare',
    field: { type: 'test.Color' },
    full: [
      [varint(1), '"RED"'],
      [varint(0), '"NONE"'],
      [varint(9), '9'],
      [varint(-1), '-1'],
    ],
    absent: '"NONE"',
  },
  {
    title: 'wasm AccessType by its own names',
    field: { type: 'cosmwasm.wasm.v1.AccessType' },
    full: [
      [varint(1), '"Nobody"'],
      [varint(3), '"Everybody"'],
      [varint(4), '"AnyOfAddresses"'],
      [varint(0), '"Unspecified"'],
      [varint(8), '"Unspecified"'],
    ],
    absent: '"Unspecified"',
  },
  {
    title: 'math.Int',
    field: { type: 'string', customtype: int, nullable: false },
    full: [
      [
        text('115792089237316195423570985008687907853269984665640564039457584007913129639935'),
        '"115792089237316195423570985008687907853269984665640564039457584007913129639935"',
      ],
      [text('-5'), '"-5"'],
      [text(''), '"0"'],
      [text('-0'), '"0"'],
    ],
    absent: '"0"',
  },
  {
    title: 'nullable math.Int',
    field: { type: 'string', customtype: int },
    full: [[text('5'), '"5"']],
    absent: 'null',
  },
  {
    title: 'math.Uint',
    field: { type: 'string', customtype: 'cosmossdk.io/math.Uint', nullable: false },
    full: [[text('12'), '"12"']],
    absent: '"0"',
  },
  {
    title: 'math.LegacyDec with 18 decimals',
    field: { type: 'string', customtype: dec, nullable: false },
    full: [
      [text('1500000000000000000'), '"1.500000000000000000"'],
      [text('1'), '"0.000000000000000001"'],
      [text('-1'), '"-0.000000000000000001"'],
      [text('0'), '"0.000000000000000000"'],
      [text('-0'), '"0.000000000000000000"'],
      [text('123456789012345678'), '"0.123456789012345678"'],
      [text('-12345678901234567890'), '"-12.345678901234567890"'],
      [text(''), 'null'],
    ],
    absent: 'null',
  },
  {
    title: 'LegacyDec in bytes',
    field: { type: 'bytes', customtype: dec, nullable: false },
    full: [[text('70000000000000000'), '"0.070000000000000000"']],
    absent: 'null',
  },
  {
    title: 'older Dec',
    field: {
      type: 'string',
      customtype: 'github.com/cosmos/cosmos-sdk/types.Dec',
      nullable: false,
    },
    full: [[text('10'), '"0.000000000000000010"']],
    absent: 'null',
  },
  {
    title: 'a cast string is text',
    field: { type: 'string', casttype: 'github.com/x/iid/types.DIDFragment' },
    full: [[text('#key'), '"#key"']],
    absent: '""',
  },
  {
    title: 'optional string',
    field: { type: 'string', optional: true },
    full: [
      [text('x'), '"x"'],
      [text(''), '""'],
    ],
    absent: 'null',
  },
  {
    title: 'optional uint64',
    field: { type: 'uint64', optional: true },
    full: [[varint(0), '"0"']],
    absent: 'null',
  },
];
