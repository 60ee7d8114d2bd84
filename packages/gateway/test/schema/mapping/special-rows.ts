import { wire } from '../wire.js';
import { any, inner, type Row } from './row.js';

const leaf = () => wire().text(1, 'x').varint(2, 3);

export const SPECIAL_ROWS: readonly Row[] = [
  {
    title: 'Any, fields inline',
    field: { type: 'google.protobuf.Any' },
    full: [
      [any('/test.Leaf', leaf), '{"@type":"/test.Leaf","id":"x","count":"3"}'],
      [any('type.googleapis.com/test.Empty', wire), '{"@type":"type.googleapis.com/test.Empty"}'],
      [
        any('/google.protobuf.Timestamp', () => wire().varint(1, 1)),
        '{"@type":"/google.protobuf.Timestamp","value":"1970-01-01T00:00:01Z"}',
      ],
      [
        any('/google.protobuf.StringValue', () => wire().text(1, 'a')),
        '{"@type":"/google.protobuf.StringValue","value":"a"}',
      ],
      [
        any('/google.protobuf.Any', () => wire().text(1, '/test.Leaf').message(2, leaf())),
        '{"@type":"/google.protobuf.Any","value":{"@type":"/test.Leaf","id":"x","count":"3"}}',
      ],
    ],
    absent: 'null',
  },
  {
    title: 'StringValue',
    field: { type: 'google.protobuf.StringValue' },
    full: [
      [inner(() => wire().text(1, 'a')), '"a"'],
      [inner(wire), '""'],
    ],
    absent: 'null',
  },
  {
    title: 'UInt64Value',
    field: { type: 'google.protobuf.UInt64Value' },
    full: [
      [inner(() => wire().varint(1, 5)), '"5"'],
      [inner(wire), '"0"'],
    ],
    absent: 'null',
  },
  {
    title: 'BytesValue',
    field: { type: 'google.protobuf.BytesValue' },
    full: [
      [inner(() => wire().bytes(1, [1])), '"AQ=="'],
      [inner(wire), 'null'],
    ],
    absent: 'null',
  },
  {
    title: 'Struct, ListValue and Value',
    field: { type: 'google.protobuf.Struct' },
    full: [
      [
        inner(() =>
          wire()
            .message(1, wire().text(1, 'z').message(2, wire().varint(1, 0)))
            .message(1, wire().text(1, 'n').message(2, wire().double(2, 1.5)))
            .message(
              1,
              wire()
                .text(1, 'l')
                .message(
                  2,
                  wire().message(
                    6,
                    wire().message(1, wire().varint(4, 1)).message(1, wire().text(3, 's')),
                  ),
                ),
            ),
        ),
        '{"l":[true,"s"],"n":1.5,"z":null}',
      ],
      [inner(wire), '{}'],
    ],
    absent: 'null',
  },
  {
    title: 'FieldMask as any message',
    field: { type: 'google.protobuf.FieldMask' },
    full: [[inner(() => wire().text(1, 'a.b')), '{"paths":["a.b"]}']],
    absent: 'null',
  },
  {
    title: 'undeclared fields are skipped',
    field: { type: 'string' },
    full: [
      [(m) => m.varint(100, 5).fixed32(101, 1).fixed64(102, 1n).text(103, 'x').text(5, 'a'), '"a"'],
      [(m) => m.group(104, wire().varint(1, 1).group(2, wire().text(3, 'x'))).text(5, 'a'), '"a"'],
      [(m) => m.varint(2_000_000, 1).text(5, 'a'), '"a"'],
    ],
    absent: '""',
  },
  {
    title: 'a name in camel case stays',
    field: { type: 'test.Camel' },
    full: [[inner(() => wire().text(1, 'x')), '{"nextPageKey":"x","snake_case":""}']],
    absent: 'null',
  },
  {
    title: 'staking DelegationResponse by Go itself',
    field: { type: 'cosmos.staking.v1beta1.DelegationResponse' },
    full: [
      [
        inner(() =>
          wire()
            .message(1, wire().text(1, 'ixo1').text(2, 'val1').text(3, '1500000000000000000'))
            .message(2, wire().text(1, 'uixo').text(2, '7')),
        ),
        '{"delegation":{"delegator_address":"ixo1","validator_address":"val1","shares":"1.500000000000000000"},"balance":{"denom":"uixo","amount":"7"}}',
      ],
      [inner(wire), '{"delegation":{"shares":null},"balance":{"amount":"0"}}'],
      [
        inner(() => wire().message(1, wire().text(1, '')).message(2)),
        '{"delegation":{"shares":null},"balance":{"amount":"0"}}',
      ],
    ],
    absent: 'null',
  },
  {
    title: 'staking RedelegationResponse by Go itself',
    field: { type: 'cosmos.staking.v1beta1.RedelegationResponse', nullable: false },
    full: [
      [
        inner(() =>
          wire()
            .message(
              1,
              wire()
                .text(1, 'd')
                .message(
                  4,
                  wire()
                    .varint(1, 9)
                    .message(2, wire().varint(1, 1).varint(2, 120_000_000))
                    .text(3, '5')
                    .text(4, '1'),
                ),
            )
            .message(2, wire().message(1, wire().varint(5, 4)).text(4, '6')),
        ),
        '{"redelegation":{"delegator_address":"d","entries":[{"creation_height":9,"completion_time":"1970-01-01T00:00:01.12Z","initial_balance":"5","shares_dst":"0.000000000000000001"}]},' +
          '"entries":[{"redelegation_entry":{"completion_time":"0001-01-01T00:00:00Z","initial_balance":"0","shares_dst":null,"unbonding_id":4},"balance":"6"}]}',
      ],
    ],
    absent: '{"redelegation":{"entries":null},"entries":null}',
  },
];
