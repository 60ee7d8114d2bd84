import { describe, expect, it } from 'vitest';
import { descriptorSet } from '../../test/schema/descriptor-set.js';
import { REQUEST_FACTS } from '../../test/schema/request-facts.js';
import { type Wire, wire } from '../../test/schema/wire.js';
import { loadSchema, type SchemaOptions } from '../schema/schema.js';

const descriptors = descriptorSet(REQUEST_FACTS);

function bind(url: string, options: SchemaOptions = {}): Uint8Array {
  const [path = '', query = ''] = url.split('?');
  const match = loadSchema(descriptors, options).match('GET', path);
  if (match.kind !== 'route') throw new Error(`${path}: ${match.kind}`);
  return match.route.bind({ params: match.params, query: new URLSearchParams(query) }).message;
}

const hex = (message: Wire | Uint8Array) =>
  Buffer.from(message instanceof Uint8Array ? message : message.finish()).toString('hex');

describe('a query', () => {
  const time = wire().varint(1, 1_577_934_245);
  const cases: [string, Wire][] = [
    ['', wire()],
    ['id=a%20b%2Fc', wire().text(1, 'a b/c')],
    ['id=first&id=second', wire().text(1, 'first')],
    ['height=1&height=x&height=', wire().varint(2, 1)],
    ['height=5&id=x', wire().text(1, 'x').varint(2, 5)],
    ['height=-5', wire().varint(2, -5)],
    ['height=0x1F&small=010&big=0b11', wire().varint(2, 31).varint(3, 8).varint(4, 3)],
    ['big=1_000', wire().varint(4, 1000)],
    ['big=18446744073709551615', wire().varint(4, 2n ** 64n - 1n)],
    ['small=%2B7', wire().varint(3, 7)],
    ['is_open=T', wire().varint(5, 1)],
    ['isOpen=true', wire().varint(5, 1)],
    ['is_open=0', wire()],
    ['status=STATUS_OPEN', wire().varint(6, 1)],
    ['status=2', wire().varint(6, 2)],
    ['status=9', wire().varint(6, 9)],
    ['data=%2B%2F8%3D', wire().bytes(7, [0xfb, 0xff])],
    ['data=-_8%3D', wire().bytes(7, [0xfb, 0xff])],
    ['data=+/8', wire().bytes(7, [0xfb, 0xff])],
    ['ratio=1.5', wire().double(8, 1.5)],
    ['events=a&events=b', wire().text(9, 'a').text(9, 'b')],
    ['sequences=1&sequences=2', wire().packed(10, [1, 2])],
    [
      'packet_id.port_id=p&packetId.sequence=7',
      wire().message(11, wire().text(1, 'p').varint(3, 7)),
    ],
    ['at=2020-01-02T03:04:05Z', wire().message(12, time)],
    [
      'at=2020-01-02T05:04:05.5%2B02:00',
      wire().message(12, wire().varint(1, 1_577_934_245).varint(2, 500_000_000)),
    ],
    ['at=null', wire().message(12)],
    ['lasts=1h30m', wire().message(13, wire().varint(1, 5400))],
    ['lasts=-1.5s', wire().message(13, wire().varint(1, -1).varint(2, -500_000_000))],
    ['maybe=0', wire().message(14)],
    ['maybe=7', wire().message(14, wire().varint(1, 7))],
    ['amount=100', wire().text(15, '100')],
    ['price=1.5', wire().text(16, '1500000000000000000')],
    ['price=-0.000000000000000001', wire().text(16, '-1')],
    ['textChoice=', wire().text(18, '')],
    ['fields=a.b,c', wire().message(20, wire().text(1, 'a.b').text(1, 'c'))],
    ['statuses=STATUS_CLOSED&statuses=1', wire().packed(21, [2, 1])],
    ['zig=-1&fixed=7', wire().varint(22, 1).fixed32(23, 7)],
    ['share=0.5', wire().float(24, 0.5)],
    ['share=inf', wire().float(24, Number.POSITIVE_INFINITY)],
    ['share=3.4028235e38', wire().float(24, 3.4028234663852886e38)],
    ['maybe_text=', wire().text(25, '')],
    ['unknown=1&packet_id.unknown=2&events.x=3', wire()],
  ];

  it.each(cases)('%s', (query, message) => {
    expect(hex(bind(`/test/get?${query}`))).toBe(hex(message));
  });

  it.each<SchemaOptions>([{}, { compat: 'node' }])(
    'RequestBinder takes linear time for many keys with %j',
    (options) => {
      const match = loadSchema(descriptors, options).match('GET', '/test/get');
      if (match.kind !== 'route') throw new Error(match.kind);
      const { route, params } = match;
      const measure = (keys: string): number => {
        const query = new URLSearchParams(keys);
        const startedAt = process.cpuUsage();
        route.bind({ params, query });
        const { user, system } = process.cpuUsage(startedAt);
        return user + system;
      };
      const least = (keys: string) => Math.min(...Array.from({ length: 5 }, () => measure(keys)));
      // Sixteen times as many keys; quadratic time would be 256 times as much. Short times vary most.
      const few = Math.max(least('a&'.repeat(8_000)), 1_000);
      expect(least('a&'.repeat(128_000))).toBeLessThan(100 * few);
    },
  );

  it('gives the same bytes in any order', () => {
    const one = bind('/test/get?big=4&packet_id.sequence=2&id=x&packet_id.port_id=p');
    const other = bind('/test/get?packet_id.port_id=p&id=x&packet_id.sequence=2&big=4');
    expect(hex(one)).toBe(hex(other));
  });

  it.each([
    [
      'height=x',
      'height: "x" is not a whole number from -9223372036854775808 to 9223372036854775807',
    ],
    ['height=9223372036854775808', 'height: "9223372036854775808" is not a whole number'],
    ['big=-1', 'big: "-1" is not a whole number from 0'],
    ['small=2147483648', 'small: "2147483648" is not a whole number'],
    ['big=', 'big: "" is not a whole number'],
    ['big=08', 'big: "08" is not'],
    ['big=1__0', 'big: "1__0" is not'],
    [`big=${'9'.repeat(5000)}`, 'is not a whole number'],
    ['isOpen=yes', 'isOpen: "yes" is neither true nor false'],
    [
      'status=OPEN',
      'status: "OPEN" is not a number or one of STATUS_NONE, STATUS_OPEN, STATUS_CLOSED',
    ],
    ['data=a*b', 'data: "a*b" is not base64'],
    ['data=a', 'data: "a" is not base64'],
    ['ratio=1e999', 'ratio: "1e999" is not a number'],
    ['share=1e39', 'share: "1e39" is not a number'],
    ['at=yesterday', 'at: "yesterday" is not a time such as'],
    ['at=2020-02-30T00:00:00Z', 'is not a time'],
    ['lasts=5', 'lasts: "5" is not a duration such as'],
    ['lasts=9999999h', 'is not a duration'],
    ['amount=1.5', 'amount: "1.5" is not a whole number'],
    ['price=0.0000000000000000001', 'with at most 18 decimals'],
    ['packet_id=x', 'packet_id: is a message; set one of its fields, separated by a dot'],
    ['labels=x', 'labels: is a map, which a URL cannot contain'],
    ['text_choice=a&number_choice=1', 'number_choice: text_choice is already set'],
    ['packet_id.sequence=x', 'packet_id.sequence: "x" is not'],
  ])('%s is refused', (query, message) => {
    expect(() => bind(`/test/get?${query}`)).toThrow(message);
  });
});

describe('a path', () => {
  it.each<[string, Wire]>([
    ['/test/id/did:ixo:entity:1', wire().text(1, 'did:ixo:entity:1')],
    ['/test/id/a%2Fb%20c', wire().text(1, 'a/b c')],
    ['/test/id/a+b', wire().text(1, 'a+b')],
    ['/test/id/path?id=query&height=2', wire().text(1, 'path').varint(2, 2)],
    ['/test/status/STATUS_OPEN/7', wire().varint(4, 7).varint(6, 1)],
    ['/test/status/2/0x10', wire().varint(4, 16).varint(6, 2)],
    [
      '/test/channel-0/9/of/1,2,3?packet_id.port_id=p&packetId.channelId=other&sequences=4',
      wire()
        .packed(10, [1, 2, 3])
        .message(11, wire().text(1, 'p').text(2, 'channel-0').varint(3, 9)),
    ],
    ['/test/deep/ibc/ABC%2FD/e', wire().text(1, 'ibc/ABC/D/e')],
  ])('%s', (url, message) => {
    expect(hex(bind(url))).toBe(hex(message));
  });

  it.each([
    ['/test/status/OPEN/1', 'status: "OPEN" is not a number or one of'],
    ['/test/status/STATUS_OPEN/x', 'big: "x" is not a whole number'],
    ['/test/c/1/of/1,x', 'sequences: "x" is not a whole number'],
  ])('%s is refused', (url, message) => {
    expect(() => bind(url)).toThrow(message);
  });
});

describe('a page', () => {
  const page = (inner: Wire) => wire().text(1, 'o').message(2, inner);

  it.each<[string, SchemaOptions, Wire]>([
    ['', {}, wire().text(1, 'o')],
    ['pagination.limit=7', {}, page(wire().varint(3, 7))],
    ['pagination.limit=0', {}, page(wire())],
    ['pagination.limit=99999999', {}, page(wire().varint(3, 1000))],
    ['pagination.limit=60', { maxPageLimit: 50 }, page(wire().varint(3, 50))],
    ['pagination.count_total=true', {}, page(wire().varint(4, 1))],
    ['pagination.countTotal=false', {}, page(wire())],
    ['pagination.key=+-_%2F', {}, page(wire().bytes(1, [0xfb, 0xef, 0xff]))],
    ['', { compat: 'node' }, wire().text(1, 'o')],
    ['pagination.limit=99999999', { compat: 'node' }, page(wire().varint(3, 99_999_999))],
  ])('%s with %j', (query, options, message) => {
    expect(hex(bind(`/test/list/o?${query}`, options))).toBe(hex(message));
  });

  it('RequestBinder with compat=node accepts only padded base64', () => {
    expect(() => bind('/test/list/o?pagination.key=AQ', { compat: 'node' })).toThrow('not base64');
    expect(() => bind('/test/list/o?pagination.key=A+==', { compat: 'node' })).toThrow(
      'not base64',
    );
  });
});

describe('query keys', () => {
  it('are taken if they name a field that the path does not bind', () => {
    const schema = loadSchema(descriptors);
    const byId = schema.findRoute('/test.Query/ById');
    const keys = ['id', 'height', 'isOpen', 'packet_id.sequence', 'nothing', 'packet_id.nothing'];
    expect(keys.filter((key) => byId?.takesQueryKey(key))).toEqual([
      'height',
      'isOpen',
      'packet_id.sequence',
    ]);
    expect(schema.findRoute('/test.Query/Send')?.takesQueryKey('height')).toBe(false);
  });
});
