import { describe, expect, it, vi } from 'vitest';
import { JsonTextLimit } from './json.js';

const encode = (text: string) => new TextEncoder().encode(text);

/** Whether text passes a limit of 1,000 values, in pieces of some length. */
function passes(text: string, length = text.length): boolean {
  const limit = new JsonTextLimit({ max: 1_000, perSecond: 0 });
  const bytes = encode(text);
  try {
    for (let at = 0; at < bytes.length; at += length) limit.add(bytes.subarray(at, at + length));
    return true;
  } catch (error) {
    expect(error).toEqual(new RangeError('It has more than 1000 JSON values at once'));
    return false;
  }
}

describe('JsonTextLimit', () => {
  it.each([
    ['a long text', JSON.stringify({ text: '{[,"\\'.repeat(5_000) })],
    ['escaped quotes', JSON.stringify(Array(400).fill('"\\",{'))],
    ['values below the limit', JSON.stringify(Array(900).fill(0))],
    ['indented JSON', JSON.stringify(Array(900).fill(0), null, 2).replaceAll('\n', '\r\n')],
    ['indented objects', JSON.stringify(Array(30).fill({ a: [1, { b: 2 }] }), null, 2)],
    ['lines of one value each', '1,\n'.repeat(990)],
    ['a few events', `data: {"text": "${',\\n'.repeat(2_000)}"}\r\n\r\n`.repeat(20)],
  ])('lets %s pass, in one piece or many', (_, text) => {
    expect([passes(text), passes(text, 7)]).toEqual([true, true]);
  });

  it.each([
    ['many values', JSON.stringify(Array(1_100).fill(0))],
    ['many small values', `{"a": [${'[],'.repeat(1_000)}0]}`],
    [
      'many names',
      JSON.stringify(Object.fromEntries(Array.from({ length: 600 }, (_, i) => [i, 0]))),
    ],
    ['many messages in a list', JSON.stringify(Array(60).fill({}))],
    ['many events without JSON', 'data:1\n\n'.repeat(60)],
    ['many events that end lines with CR', 'data:1\r\r'.repeat(60)],
    ['many comments', ':\n'.repeat(1_100)],
    ['many comments that end with CR', ':\r'.repeat(1_100)],
    ['many comments inside of a value', `data: {\n${': no value\r\n'.repeat(1_100)}`],
    ['many unknown fields', `${'x\n'.repeat(1_100)}\r`],
    ['many values after a quote that nothing closes', `data: "\n\ndata: [${'0,'.repeat(1_100)}0]`],
  ])('refuses %s, in one piece or many', (_, text) => {
    expect([passes(text), passes(text, 7)]).toEqual([false, false]);
  });

  it('admits more as time passes, but never more than its maximum at once', () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    const limit = new JsonTextLimit({ max: 10, perSecond: 5 });
    const add = (count: number) => limit.add(encode(','.repeat(count)));
    add(10);
    expect(() => add(1)).toThrow();
    vi.advanceTimersByTime(2_000);
    add(9);
    vi.advanceTimersByTime(60_000);
    expect(() => add(11)).toThrow();
  });
});
