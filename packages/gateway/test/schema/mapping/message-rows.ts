import { wire } from '../wire.js';
import { inner, type Row } from './row.js';

const ZERO_LEAF = '{"id":"","count":"0"}';
const leaf = () => wire().text(1, 'x').varint(2, 3);
const LEAF = '{"id":"x","count":"3"}';
const entry = (key: number, value: number) => wire().varint(1, key).varint(2, value);

export const MESSAGE_ROWS: readonly Row[] = [
  {
    title: 'nullable message',
    field: { type: 'test.Leaf' },
    full: [
      [inner(leaf), LEAF],
      [inner(wire), ZERO_LEAF],
    ],
    absent: 'null',
  },
  {
    title: 'non-nullable message',
    field: { type: 'test.Leaf', nullable: false },
    full: [[inner(leaf), LEAF]],
    absent: ZERO_LEAF,
  },
  {
    title: 'non-nullable message, zero-filled all the way',
    field: { type: 'test.Branch', nullable: false },
    full: [[inner(() => wire().message(1, leaf())), `{"leaf":${LEAF},"maybe":null,"leaves":[]}`]],
    absent: `{"leaf":${ZERO_LEAF},"maybe":null,"leaves":[]}`,
  },
  {
    title: 'message in parts is merged',
    field: { type: 'test.Branch' },
    full: [
      [
        (m) =>
          m
            .message(5, wire().message(1, wire().text(1, 'a').varint(2, 1)).message(3, leaf()))
            .text(9, 'between')
            .message(5, wire().message(1, wire().text(1, 'b')).message(3)),
        `{"leaf":{"id":"b","count":"1"},"maybe":null,"leaves":[${LEAF},${ZERO_LEAF}]}`,
      ],
    ],
    absent: 'null',
  },
  {
    title: 'last scalar wins',
    field: { type: 'string' },
    full: [[(m) => m.text(5, 'a').text(5, 'b'), '"b"']],
    absent: '""',
  },
  {
    title: 'repeated message',
    field: { type: 'test.Leaf', repeated: true, nullable: false },
    full: [[(m) => m.message(5, leaf()).message(5), `[${LEAF},${ZERO_LEAF}]`]],
    absent: '[]',
  },
  {
    title: 'repeated, with other fields in between',
    field: { type: 'string', repeated: true },
    full: [[(m) => m.text(5, 'a').text(9, 'z').varint(77, 1).text(5, 'b'), '["a","b"]']],
    absent: '[]',
  },
  {
    title: 'repeated numbers, packed, single and mixed',
    field: { type: 'uint64', repeated: true },
    full: [
      [(m) => m.packed(5, [1, 300, 2n ** 60n]), '["1","300","1152921504606846976"]'],
      [(m) => m.varint(5, 1).varint(5, 2), '["1","2"]'],
      [(m) => m.packed(5, []).varint(5, 1).packed(5, [2, 3]), '["1","2","3"]'],
      [(m) => m.packed(5, []), '[]'],
    ],
    absent: '[]',
  },
  {
    title: 'repeated bytes',
    field: { type: 'bytes', repeated: true },
    full: [[(m) => m.bytes(5, [1]).bytes(5, []), '["AQ==",""]']],
    absent: '[]',
  },
  {
    title: 'repeated enum',
    field: { type: 'test.Color', repeated: true },
    full: [[(m) => m.packed(5, [1, 0, 9]), '["RED","NONE",9]']],
    absent: '[]',
  },
  {
    title: 'repeated Int',
    field: { type: 'string', repeated: true, customtype: 'cosmossdk.io/math.Int', nullable: false },
    full: [[(m) => m.text(5, '7').text(5, '8'), '["7","8"]']],
    absent: '[]',
  },
  {
    title: 'map sorted by text',
    field: { type: 'map<string, string>' },
    full: [
      [
        (m) =>
          m
            .message(5, wire().text(1, 'b').text(2, '2'))
            .message(5, wire().text(1, 'a<').text(2, '1'))
            .message(5, wire().text(1, 'b').text(2, '3')),
        '{"a\\u003c":"1","b":"3"}',
      ],
      [(m) => m.message(5).message(5, wire().text(1, 'Z')), '{"":"","Z":""}'],
    ],
    absent: '{}',
  },
  {
    title: 'map sorted by number',
    field: { type: 'map<int32, int64>' },
    full: [
      [
        (m) => m.message(5, entry(10, 1)).message(5, entry(-1, 2)).message(5, entry(9, 3)),
        '{"-1":"2","9":"3","10":"1"}',
      ],
    ],
    absent: '{}',
  },
  {
    title: 'map sorted by truth',
    field: { type: 'map<bool, int32>' },
    full: [[(m) => m.message(5, entry(1, 1)).message(5, entry(0, 2)), '{"false":2,"true":1}']],
    absent: '{}',
  },
  {
    title: 'map of messages',
    field: { type: 'map<string, test.Leaf>' },
    full: [
      [
        (m) => m.message(5, wire().text(1, 'a').message(2, leaf())).message(5, wire().text(1, 'b')),
        `{"a":${LEAF},"b":null}`,
      ],
    ],
    absent: '{}',
  },
  {
    title: 'map of non-nullable messages',
    field: { type: 'map<string, test.Leaf>', nullable: false },
    full: [[(m) => m.message(5, wire().text(1, 'b')), `{"b":${ZERO_LEAF}}`]],
    absent: '{}',
  },
];
