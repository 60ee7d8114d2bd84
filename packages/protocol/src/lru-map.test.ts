import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { describe, expect, it } from 'vitest';
import { LruMap, textBytes } from './lru-map.js';

const ENTRY = 100;
const texts = (maxBytes: number, maxEntries?: number) =>
  new LruMap<string, string>({ maxBytes, maxEntries, measure: (value) => value.length });

describe('LruMap', () => {
  it('drops the least recently used entries once they exceed maxBytes', () => {
    const map = texts(3 * (ENTRY + 10));
    for (const key of ['a', 'b', 'c']) map.set(key, 'x'.repeat(10));
    map.get('a');
    map.set('d', 'x'.repeat(10));
    expect(['a', 'b', 'c', 'd'].map((key) => map.get(key) !== undefined)).toEqual([
      true,
      false,
      true,
      true,
    ]);
    map.set('e', 'x'.repeat(200));
    expect(map.size).toBe(1);
    expect(map.bytes).toBe(ENTRY + 200);
  });

  it('never stores a value larger than maxBytes, and forgets the one it would have replaced', () => {
    const map = texts(ENTRY + 10);
    expect(map.set('a', 'small')).toBe(true);
    expect(map.set('a', 'x'.repeat(11))).toBe(false);
    expect(map.get('a')).toBeUndefined();
    expect(map.bytes).toBe(0);
  });

  it('counts a replaced and a deleted entry once', () => {
    const map = texts(1000);
    map.set('a', 'x');
    map.set('a', 'xyz');
    expect(map.bytes).toBe(ENTRY + 3);
    map.set('b', 'x');
    expect(map.deleteWhere((value) => value === 'xyz')).toBe(1);
    expect(map.delete('a')).toBe(false);
    expect(map.bytes).toBe(ENTRY + 1);
  });

  it('keeps the order of use through any sequence of calls', () => {
    const limit = 5;
    const map = texts(1_000_000, limit);
    let expected: string[] = [];
    for (let i = 0; i < 2_000; i++) {
      const key = `k${(i * 7919) % 11}`;
      const others = expected.filter((other) => other !== key);
      if (i % 5 === 0) {
        expect(map.delete(key)).toBe(expected.includes(key));
        expected = others;
      } else if (i % 3 === 0) {
        expect(map.get(key) !== undefined).toBe(expected.includes(key));
        expected = [...others, ...expected.filter((other) => other === key)];
      } else {
        map.set(key, 'x');
        expected = [...others, key].slice(-limit);
      }
      expect(map.bytes).toBe(expected.length * (ENTRY + 1));
    }
    const kept: string[] = [];
    map.deleteWhere((_, key) => kept.push(key) > 0);
    expect(kept.toSorted()).toEqual(expected.toSorted());
    map.set('new', 'x');
    expect([map.size, map.get('new')]).toEqual([1, 'x']);
  });

  it('finds a key that is used often as fast among many entries as among few', () => {
    const measureGets = (entries: number) => {
      const map = texts(100_000_000);
      for (let i = 0; i < entries; i++) map.set(`key ${i}`, '');
      const before = process.cpuUsage().user;
      for (let i = 0; i < 20_000; i++) {
        map.get('key 0');
        map.get('key 1');
      }
      return process.cpuUsage().user - before + 1_000;
    };
    measureGets(2);
    expect(measureGets(50_000) / measureGets(2)).toBeLessThan(20);
  });

  it('holds at most maxEntries', () => {
    const map = texts(1_000_000, 2);
    for (const key of ['a', 'b', 'c']) map.set(key, '');
    expect(map.size).toBe(2);
    expect(map.get('a')).toBeUndefined();
  });

  it('takes no more heap than maxBytes says', () => {
    const maxBytes = 4 * 1024 * 1024;
    const map = new LruMap<string, string>({
      maxBytes,
      measure: (value, key) => textBytes(key) + textBytes(value),
    });
    const before = heapUsed();
    for (let i = 0; i < 100_000; i++) map.set(`key ${i}`, `value ${i} ${'é€'.repeat(i % 50)}`);
    expect(map.size).toBeLessThan(100_000);
    expect(heapUsed() - before).toBeLessThan(1.5 * maxBytes);
  });
});

function heapUsed(): number {
  setFlagsFromString('--expose-gc');
  runInNewContext('gc')();
  return process.memoryUsage().heapUsed;
}
