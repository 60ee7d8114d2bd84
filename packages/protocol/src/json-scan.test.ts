import { describe, expect, it } from 'vitest';
import { scanJson } from './json-scan.js';

const NO_LIMITS = { values: 10_000_000, depth: 10_000_000 };
const scan = (text: string, limits = NO_LIMITS) => scanJson(Buffer.from(text), limits);

function countValues(value: unknown): { values: number; members: number } {
  if (typeof value !== 'object' || value === null) return { values: 1, members: 0 };
  const inner = Object.values(value).map(countValues);
  const add = (key: 'values' | 'members') => inner.reduce((sum, each) => sum + each[key], 0);
  const own = Array.isArray(value) ? 0 : inner.length;
  return { values: 1 + add('values'), members: own + add('members') };
}

describe('scanJson', () => {
  it.each([
    ['1'],
    ['"a"'],
    ['[]'],
    ['{ }'],
    ['[ [],\n\t{}, [1, 2], {"a": [ ]} ]'],
    ['{"a":{"b":[1,"2",null]},"c":"[{,:\\"}]","\\\\":"\\\\"}'],
    ['["\\\\\\"",":",",","{"]'],
    ['["é😀", "\\u0022,"]'],
    [JSON.stringify({ rows: Array.from({ length: 50 }, (_, i) => ({ i, t: ',"'.repeat(i) })) })],
  ])('counts the values and members of %s as they are', (text) => {
    const { values, members, excess } = scan(text);
    expect({ values, members }).toEqual(countValues(JSON.parse(text)));
    expect(excess).toBeUndefined();
    // As many are allowed, but not one fewer.
    expect(scanJson(Buffer.from(text), { values, members }).excess).toBeUndefined();
    if (values > 1)
      expect(scanJson(Buffer.from(text), { values: values - 1, members }).excess).toContain(
        'values',
      );
    if (members > 0)
      expect(scanJson(Buffer.from(text), { values, members: members - 1 }).excess).toContain(
        'members',
      );
  });

  it.each([
    ['names', `{${Array.from({ length: 70_000 }, (_, i) => `"k${i}":1`)}}`, '20000 members'],
    ['lists', `[${'[],'.repeat(150_000)}0]`, '100000 values'],
    ['numbers', `[${'1,'.repeat(150_000)}1]`, '100000 values'],
    ['levels', '['.repeat(900_000), '128 levels'],
    ['levels of objects', '{"a":'.repeat(200), '128 levels'],
    ['values after a string', `["${'\\"'.repeat(9)}",${'1,'.repeat(150_000)}1]`, '100000 values'],
  ])('stops at too many %s', (_, text, excess) => {
    expect(scanJson(Buffer.from(text), { values: 100_000, members: 20_000 }).excess).toBe(
      `more than ${excess.replace('members', 'members of objects')}`,
    );
  });

  it('allows more members below the upper levels, as far as a limit says so', () => {
    const names = (count: number) => `{${Array.from({ length: count }, (_, i) => `"k${i}":1`)}}`;
    const limits = { values: 100, members: 20, deepMembers: 10 };
    const find = (text: string) => scanJson(Buffer.from(text), limits).excess;
    expect(find(names(20))).toBeUndefined();
    expect(find(names(21))).toBe('more than 20 members of objects');
    expect(find(`[[[${names(21)}]]]`)).toBe('more than 20 members of objects');
    expect(find(`[[[[${names(30)}]]]]`)).toBeUndefined();
    expect(find(`[[[[${names(31)}]]]]`)).toBe('more than 20 members of objects');
  });

  it('counts nothing in a string, also if it does not end', () => {
    expect(scan(`["${',[{:'.repeat(50_000)}"]`)).toMatchObject({ values: 2, members: 0 });
    expect(scan(`["${',[{:'.repeat(50_000)}\\`)).toMatchObject({ values: 2, members: 0 });
    expect(scan('')).toMatchObject({ values: 1, members: 0 });
  });

  it('takes a small part of the time of the parser', () => {
    const json = Buffer.from(`{${Array.from({ length: 70_000 }, (_, i) => `"k${i}":1`)}}`);
    const measure = (run: () => unknown) => {
      const times = Array.from({ length: 3 }, () => {
        const { user, system } = process.cpuUsage();
        run();
        const now = process.cpuUsage();
        return now.user + now.system - user - system;
      });
      return Math.min(...times);
    };
    const parsing = measure(() => JSON.parse(json.toString()));
    expect(measure(() => scanJson(json, NO_LIMITS))).toBeLessThan(parsing / 2);
  });
});
