import { describe, expect, it } from 'vitest';
import { descriptorSet } from '../../test/schema/descriptor-set.js';
import type { Facts } from '../../test/schema/facts.js';
import { REQUEST_FACTS } from '../../test/schema/request-facts.js';
import { type Wire, wire } from '../../test/schema/wire.js';
import { loadSchema } from '../schema/schema.js';

const facts: Facts = {
  enums: REQUEST_FACTS.enums ?? {},
  messages: {
    ...REQUEST_FACTS.messages,
    'test.Coin': [
      { no: 1, name: 'denom', type: 'string' },
      { no: 2, name: 'amount', type: 'string', customtype: 'math.Int', nullable: false },
    ],
    'test.Execute': [
      { no: 1, name: 'sender', type: 'string' },
      { no: 2, name: 'msg', type: 'bytes', casttype: 'RawContractMessage' },
      { no: 3, name: 'hash', type: 'bytes', casttype: 'x.HexBytes' },
      { no: 4, name: 'fee', type: 'test.Coin', nullable: false },
      { no: 5, name: 'until', type: 'google.protobuf.Timestamp', stdtime: true, nullable: false },
    ],
    'test.Tx': [
      { no: 1, name: 'messages', type: 'google.protobuf.Any', repeated: true },
      { no: 2, name: 'coins', type: 'test.Coin', repeated: true, nullable: false },
      { no: 3, name: 'meta', type: 'google.protobuf.Struct' },
    ],
  },
  services: {
    'test.Query': {
      ...REQUEST_FACTS.services?.['test.Query'],
      Encode: {
        request: 'test.Tx',
        response: 'test.Reply',
        path: '/test/tx',
        verb: 'post',
        body: '*',
      },
    },
  },
};

const schema = loadSchema(descriptorSet(facts));

function bind(path: string, body: string | undefined): Uint8Array {
  const match = schema.match('POST', path);
  if (match.kind !== 'route') throw new Error(`${path}: ${match.kind}`);
  const bytes = body === undefined ? undefined : Buffer.from(body);
  return match.route.bind({
    params: match.params,
    query: new URLSearchParams('height=9'),
    body: bytes,
  }).message;
}

const hex = (message: Wire | Uint8Array) =>
  Buffer.from(message instanceof Uint8Array ? message : message.finish()).toString('hex');

describe('the body of a POST', () => {
  it.each<[string, string | undefined, Wire]>([
    ['nothing', undefined, wire()],
    ['an empty text', '', wire()],
    ['an empty object', ' {} ', wire()],
    ['null', '{"id":null,"events":null,"packet_id":null}', wire()],
    ['proto names', '{"id":"x","is_open":true}', wire().text(1, 'x').varint(5, 1)],
    [
      'lowerCamel names',
      '{"isOpen":true,"packetId":{"portId":"p"}}',
      wire().varint(5, 1).message(11, wire().text(1, 'p')),
    ],
    [
      'numbers in quotes or not',
      '{"height":"-5","big":18446744073709551615,"small":7}',
      wire()
        .varint(2, -5)
        .varint(3, 7)
        .varint(4, 2n ** 64n - 1n),
    ],
    [
      'enums by name or number',
      '{"status":"STATUS_OPEN","statuses":[2,"STATUS_OPEN"]}',
      wire().varint(6, 1).packed(21, [2, 1]),
    ],
    ['bytes', '{"data":"+/8="}', wire().bytes(7, [0xfb, 0xff])],
    ['floats', '{"ratio":1.5,"share":"0.5"}', wire().double(8, 1.5).float(24, 0.5)],
    [
      'lists',
      '{"events":["a","b"],"sequences":["1",2]}',
      wire().text(9, 'a').text(9, 'b').packed(10, [1, 2]),
    ],
    [
      'times',
      '{"at":"2020-01-02T03:04:05Z","lasts":"1.5s"}',
      wire()
        .message(12, wire().varint(1, 1_577_934_245))
        .message(13, wire().varint(1, 1).varint(2, 500_000_000)),
    ],
    ['wrappers', '{"maybe":"7"}', wire().message(14, wire().varint(1, 7))],
    [
      'big numbers',
      '{"amount":"100","price":"1.5"}',
      wire().text(15, '100').text(16, '1500000000000000000'),
    ],
    ['maps', '{"labels":{"a":"1"}}', wire().message(17, wire().text(1, 'a').text(2, '1'))],
    ['escaped text', '{"id":"\\u00e9\\n\\"{,}"}', wire().text(1, 'é\n"{,}')],
    ['the last of two', '{"id":"a","id":"b"}', wire().text(1, 'b')],
  ])('%s', (_, body, message) => {
    expect(hex(bind('/test/send', body))).toBe(hex(message));
  });

  it('may be one field, with the path and the query for the others', () => {
    const message = wire().text(1, 'x').varint(2, 9).message(11, wire().text(1, 'p'));
    expect(hex(bind('/test/send/x', '{"port_id":"p"}'))).toBe(hex(message));
  });

  it('holds messages of any type, with the bytes that Go makes of them', () => {
    const zeroFee = wire().text(2, '0');
    const yearOne = wire().varint(1, -62_135_596_800);
    const execute = wire()
      .text(1, 's')
      .text(2, '{ "a": [1.50] }')
      .bytes(3, [0xab])
      .message(4, zeroFee)
      .message(5, yearOne);
    const body =
      '{"messages":[{"@type":"/test.Execute","sender":"s","msg":{ "a": [1.50] },"hash":"AB"}]}';
    expect(hex(bind('/test/tx', body))).toBe(
      hex(wire().message(1, wire().text(1, '/test.Execute').message(2, execute))),
    );
  });

  it('holds special types and dynamic values', () => {
    const any = '{"@type":"/google.protobuf.StringValue","value":"x"}';
    const text = wire().text(1, '/google.protobuf.StringValue').message(2, wire().text(1, 'x'));
    expect(hex(bind('/test/tx', `{"messages":[${any}]}`))).toBe(hex(wire().message(1, text)));
    const meta = wire()
      .message(1, wire().text(1, 'a').message(2, wire().varint(1, 0)))
      .message(
        1,
        wire()
          .text(1, 'b')
          .message(
            2,
            wire().message(
              6,
              wire().message(1, wire().varint(4, 1)).message(1, wire().double(2, 2)),
            ),
          ),
      );
    expect(hex(bind('/test/tx', '{"meta":{"a":null,"b":[true,2]}}'))).toBe(
      hex(wire().message(3, meta)),
    );
  });

  it.each([
    ['/test/send', '{', 'The body is not valid JSON'],
    ['/test/send', '[1]', '"[1]" is not an object'],
    ['/test/send', '{"nothing":1}', 'nothing: is not a field of test.Request'],
    [
      '/test/send',
      '{"packet_id":{"nothing":1}}',
      'packet_id.nothing: is not a field of test.PacketId',
    ],
    ['/test/send', '{"id":5}', 'id: "5" is not a string'],
    ['/test/send', '{"is_open":"true"}', 'is_open: "\\"true\\"" is neither true nor false'],
    ['/test/send', '{"big":1.5}', 'big: "1.5" is not a valid number'],
    ['/test/send', '{"big":-1}', 'big: "-1" is not a whole number'],
    ['/test/send', '{"events":"a"}', 'events: "\\"a\\"" is not a list'],
    ['/test/send', '{"sequences":[1,"x"]}', 'sequences[1]: "x" is not a valid number'],
    ['/test/send', '{"labels":{"a":1}}', 'labels.a: "1" is not a string'],
    ['/test/send', '{"share":1e39}', 'share: "1e39" is not a number'],
    ['/test/send', '{"at":5}', 'at: "5" is not a string'],
    [
      '/test/send',
      '{"text_choice":"a","number_choice":1}',
      'number_choice: text_choice is already set',
    ],
    ['/test/tx', '{"messages":[{"a":1}]}', 'messages[0].@type: is missing'],
    [
      '/test/tx',
      '{"messages":[{"@type":"/test.Gone"}]}',
      'messages[0].@type: "/test.Gone" is not a type of this chain',
    ],
    ['/test/tx', '{"coins":[{"amount":"x"}]}', 'coins[0].amount: "x" is not a whole number'],
    ['/test/tx', `{"meta":${'{"a":'.repeat(70)}1${'}'.repeat(70)}}`, 'more than 64 levels'],
  ])('%s %s is refused', (path, body, message) => {
    expect(() => bind(path, body)).toThrow(message);
  });

  it('that is not UTF-8 is refused', () => {
    const match = schema.match('POST', '/test/send');
    if (match.kind !== 'route') throw new Error(match.kind);
    const input = { params: match.params, query: new URLSearchParams(), body: Uint8Array.of(0xff) };
    expect(() => match.route.bind(input)).toThrow('not valid JSON');
  });
});
