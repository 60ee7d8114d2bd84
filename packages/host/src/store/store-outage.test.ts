import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { StoreOutage } from './store-outage.js';

beforeEach(() => void vi.useFakeTimers({ toFake: ['performance'] }));
afterEach(() => void vi.useRealTimers());

const full = Object.assign(new Error('full'), { code: 'ERR_SQLITE_ERROR', errcode: 13 });

function newOutage() {
  const lines: string[] = [];
  const write = (fields: object, text: string) =>
    void lines.push(`${text.slice(0, 25)} ${'failures' in fields ? fields.failures : ''}`.trim());
  return { lines, outage: new StoreOutage({ error: write, info: write } as never) };
}

it('StoreOutage logs once while small writes succeed between others that fail', () => {
  const { lines, outage } = newOutage();
  for (let i = 0; i < 100; i++) {
    outage.failed(full);
    vi.advanceTimersByTime(1_000);
    outage.succeeded();
  }
  expect(lines).toEqual(['the store is unavailable;']);
  vi.advanceTimersByTime(4_000);
  outage.succeeded();
  outage.succeeded();
  expect(lines).toEqual(['the store is unavailable;', 'the store is available ag 100']);
  outage.failed(full);
  expect(lines).toHaveLength(3);
});

it('StoreOutage leaves bugs to others', () => {
  const { lines, outage } = newOutage();
  outage.failed(new TypeError('x is undefined'));
  expect(lines).toEqual([]);
});
