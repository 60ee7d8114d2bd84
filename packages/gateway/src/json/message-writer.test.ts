import { describe, expect, it } from 'vitest';
import { descriptorSet } from '../../test/schema/descriptor-set.js';
import type { Facts } from '../../test/schema/facts.js';
import { replyPrinter, replyWriters } from '../../test/schema/print-reply.js';
import { type Wire, wire } from '../../test/schema/wire.js';
import { LongJsonError } from './json-sink.js';

const facts: Facts = {
  messages: {
    'test.Choices': [
      { no: 1, name: 'first', type: 'string' },
      { no: 4, name: 'text', type: 'string', oneof: 'choice' },
      { no: 2, name: 'last', type: 'string' },
      { no: 3, name: 'choices', type: 'test.Choices', oneof: 'choice' },
      { no: 5, name: 'number', type: 'uint64', oneof: 'choice' },
    ],
    'test.OnlyChoice': [{ no: 1, name: 'text', type: 'string', oneof: 'choice' }],
    'test.Tree': [
      { no: 1, name: 'child', type: 'test.Tree' },
      { no: 2, name: 'any', type: 'google.protobuf.Any' },
    ],
    'test.Values': [
      { no: 1, name: 'dec', type: 'string', customtype: 'math.LegacyDec' },
      { no: 2, name: 'raw', type: 'bytes', casttype: 'RawContractMessage' },
      { no: 3, name: 'at', type: 'google.protobuf.Timestamp' },
      { no: 4, name: 'lasts', type: 'google.protobuf.Duration' },
      { no: 5, name: 'numbers', type: 'int32', repeated: true },
      { no: 6, name: 'std', type: 'google.protobuf.Duration', stdduration: true },
    ],
    'test.Page': [
      { no: 1, name: 'items', type: 'test.Choices', repeated: true },
      { no: 2, name: 'total', type: 'uint64' },
      { no: 3, name: 'ids', type: 'uint64', repeated: true },
    ],
    'test.Long': [
      { no: 1, name: 'page', type: 'test.Page' },
      { no: 2, name: 'pages', type: 'test.Page', repeated: true },
      { no: 3, name: 'one', type: 'test.Page', oneof: 'choice' },
      { no: 4, name: 'ids', type: 'uint64', repeated: true },
      { no: 5, name: 'names', type: 'map<string, string>' },
    ],
  },
};

const print = replyPrinter(facts);
const buildWriter = replyWriters(descriptorSet(facts));

describe('a oneof', () => {
  it('stands where its first member does', () => {
    const message = wire().text(2, 'z').varint(5, 7).text(1, 'a');
    expect(print('test.Choices', message)).toBe('{"first":"a","number":"7","last":"z"}');
  });

  it('MessageWriter omits a oneof without a value', () => {
    expect(print('test.Choices', wire())).toBe('{"first":"","last":""}');
    expect(print('test.OnlyChoice', wire())).toBe('{}');
  });

  it('is there with a zero', () => {
    expect(print('test.OnlyChoice', wire().text(1, ''))).toBe('{"text":""}');
    expect(print('test.Choices', wire().varint(5, 0))).toBe('{"first":"","number":"0","last":""}');
  });

  it('has the member that came last, whole', () => {
    const one = wire().text(4, 'a').message(3, wire().text(1, 'x'));
    expect(print('test.Choices', one)).toBe(
      '{"first":"","choices":{"first":"x","last":""},"last":""}',
    );
    const two = wire().message(3, wire().text(1, 'x')).message(3, wire().text(2, 'y'));
    expect(print('test.Choices', two)).toBe(
      '{"first":"","choices":{"first":"","last":"y"},"last":""}',
    );
  });
});

describe('wire that is not right', () => {
  const tag = (no: number, type: number) => [(no << 3) | type];
  const cases: [string, string, Wire | number[]][] = [
    ['a text truncated', 'truncated', [...tag(1, 2), 5, 0x61]],
    ['a tag truncated', 'truncated', [0x80]],
    ['a number truncated', 'truncated', [...tag(5, 0), 0xff]],
    ['a length beyond all bytes', 'truncated', [...tag(1, 2), 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]],
    [
      'a number of more than 64 bits',
      'more than 64 bits',
      [...tag(5, 0), ...new Array(11).fill(0xff)],
    ],
    ['field number 0', 'bad field tag', [0x02, 0x00]],
    ['wire type 6', 'bad wire type', tag(9, 6)],
    ['the end of no group', 'bad wire type', tag(9, 4)],
    ['a group without an end', 'truncated', tag(9, 3)],
    ['a group with the end of another', 'unterminated group', [...tag(9, 3), ...tag(8, 4)]],
    [
      'a declared field in another wire type',
      'field 1 of test.Choices in wire type 0',
      wire().varint(1, 1),
    ],
    ['a fixed number truncated', 'truncated', [...tag(9, 1), 1, 2, 3]],
  ];

  it.each(cases)('MessageWriter throws for %s', (_, reason, message) => {
    const bytes = Array.isArray(message) ? Uint8Array.from(message) : message.finish();
    expect(() => print('test.Choices', bytes)).toThrow(reason);
  });

  it('an embedded message may not reach beyond its end', () => {
    const inside = [...tag(3, 2), 2, ...tag(1, 2), 9, 0x61, 0x61, 0x61, 0x61];
    expect(() => print('test.Choices', Uint8Array.from(inside))).toThrow('truncated');
  });

  it('MessageWriter throws for endless nesting', () => {
    const nest = (depth: number): Wire =>
      depth === 0 ? wire() : wire().message(1, nest(depth - 1));
    expect(print('test.Tree', nest(90))).toContain('{"child":{"child":');
    expect(() => print('test.Tree', nest(101))).toThrow('nested too deep');
    const groups = Uint8Array.from(new Array(200).fill((9 << 3) | 3));
    expect(() => print('test.Tree', groups)).toThrow('nested too deep');
  });

  it.each([
    ['an Any of unknown type', wire().message(2, wire().text(1, '/test.Gone'))],
    ['an Any without a type', wire().message(2)],
  ])('MessageWriter throws for %s and names it', (_, message) => {
    expect(() => print('test.Tree', message)).toThrow(/Any of unknown type "(\/test\.Gone)?"/);
  });

  it.each([
    ['1.5 for a decimal', 'not decimal digits', wire().text(1, '1.5')],
    ['- for a decimal', 'not decimal digits', wire().text(1, '-')],
    ['007 for a decimal', 'not decimal digits', wire().text(1, '007')],
    ['half of a JSON', 'not JSON', wire().text(2, '{"a":')],
    ['no JSON', 'not JSON', wire().text(2, '')],
    ['the year 10000', 'time out of range', wire().message(3, wire().varint(1, 253_402_300_800))],
    ['negative nanoseconds', 'time out of range', wire().message(3, wire().varint(2, -1))],
    [
      'a duration of two signs',
      'out of range',
      wire().message(4, wire().varint(1, 1).varint(2, -1)),
    ],
    ['an endless duration', 'out of range', wire().message(4, wire().varint(1, 315_576_000_001))],
    ['a duration beyond Go', 'out of range', wire().message(6, wire().varint(1, 9_223_372_037))],
    ['a packed block truncated', 'truncated', wire().bytes(5, [1, 0x80])],
  ])('MessageWriter throws for %s', (_, reason, message) => {
    expect(() => print('test.Values', message)).toThrow(reason);
  });

  it('does not spoil the next reply', () => {
    expect(() => print('test.Tree', wire().message(2))).toThrow();
    expect(print('test.OnlyChoice', wire().text(1, 'a'))).toBe('{"text":"a"}');
  });
});

describe('writeInSteps', () => {
  const item = (i: number) => wire().text(1, `item ${i}`).text(4, 'x'.repeat(200));
  const page = (count: number) => {
    const message = wire();
    for (let i = 0; i < count; i += 1) message.message(1, item(i));
    return message.varint(2, count).packed(3, [1, 2]).finish();
  };

  const begin = (bytes: Uint8Array) => buildWriter('test.Page').writeInSteps(bytes);
  const finish = (steps: Generator<void, Buffer>, onPause = () => {}) => {
    for (;;) {
      const { done, value } = steps.next();
      if (done) return value.toString();
      onPause();
    }
  };

  it.each([0, 1, 10, 2000])('of %i items writes the whole text', (count) => {
    const bytes = page(count);
    expect(finish(begin(bytes))).toBe(buildWriter('test.Page').write(bytes).toString());
  });

  it('pauses every 64 KB, and others may be written in between', () => {
    const bytes = page(2000);
    let pauses = 0;
    const text = finish(begin(bytes), () => {
      pauses += 1;
      expect(print('test.OnlyChoice', wire().text(1, 'a'))).toBe('{"text":"a"}');
      if (pauses === 1) expect(JSON.parse(finish(begin(page(3)))).items).toHaveLength(3);
    });
    expect(pauses).toBe(Math.floor(text.length / (64 * 1024)));
    expect(JSON.parse(text).items).toHaveLength(2000);
  });

  const ids = Array.from({ length: 20_000 }, (_, i) => i);
  const entries = wire();
  for (const id of ids) entries.message(5, wire().text(1, `name ${id}`).text(2, 'x'.repeat(20)));

  it.each([
    ['a message', wire().bytes(1, page(2000))],
    ['the message of a oneof', wire().bytes(3, page(2000))],
    ['the only item of a list', wire().bytes(2, page(2000))],
    ['packed numbers', wire().packed(4, ids)],
    ['a map', entries],
  ])('pauses within %s', (_, message) => {
    const bytes = message.finish();
    const writer = buildWriter('test.Long');
    let pauses = 0;
    const text = finish(writer.writeInSteps(bytes), () => {
      pauses += 1;
    });
    expect(text).toBe(writer.write(bytes).toString());
    expect(pauses).toBeGreaterThanOrEqual(Math.floor(text.length / (64 * 1024)));
    expect(pauses).toBeGreaterThan(0);
  });

  it('throws for JSON of more than the allowed bytes, and at once for more than 2 MB', () => {
    const bytes = new Uint8Array(200_000).fill(0).map((_, i) => (i % 2 === 0 ? 0x12 : 0));
    const writer = buildWriter('test.Long');
    expect(() => writer.write(bytes)).toThrow(LongJsonError);
    expect(() => finish(writer.writeInSteps(bytes, 3_000_000))).toThrow(LongJsonError);
    expect(JSON.parse(finish(writer.writeInSteps(bytes, 8_000_000))).pages).toHaveLength(100_000);
  });

  it('throws for a broken reply, and the next one is whole', () => {
    const bytes = page(2000);
    expect(() => finish(begin(bytes.subarray(0, bytes.length - 1)))).toThrow('truncated');
    expect(JSON.parse(finish(begin(page(3)))).items).toHaveLength(3);
  });
});
