import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { describe, expect, it } from 'vitest';
import { Reply, ReplyCache } from './reply-cache.js';

const MAX_BYTES = 100_000;
const buildReply = (length: number) =>
  new Reply({ body: Buffer.alloc(length, 'x'), etag: 'W/"x"', height: 1 });

it('ReplyCache returns stored replies', () => {
  const cache = new ReplyCache(MAX_BYTES);
  const reply = buildReply(100);
  cache.set('a', reply);
  expect(cache.get('a')).toBe(reply);
  expect(cache.get('b')).toBeUndefined();
  expect(cache.size).toBe(1);
});

it('never holds more than it may, however much comes', () => {
  const cache = new ReplyCache(MAX_BYTES);
  for (let i = 0; i < 5000; i++) {
    cache.set(`key ${i}`, buildReply((i * 7919) % 24_000));
    cache.get(`key ${Math.floor(i / 2)}`);
    expect(cache.bytes).toBeLessThanOrEqual(MAX_BYTES);
  }
  expect(cache.bytes).toBeGreaterThan(0);
});

it('ReplyCache evicts the least recently used replies', () => {
  const cache = new ReplyCache(MAX_BYTES);
  cache.set('asked', buildReply(500));
  cache.set('forgotten', buildReply(500));
  for (let i = 0; i < 500; i++) {
    cache.set(`key ${i}`, buildReply(500));
    if (i % 20 === 0) expect(cache.get('asked')).toBeDefined();
  }
  expect(cache.get('asked')).toBeDefined();
  expect(cache.get('forgotten')).toBeUndefined();
  expect(cache.get('key 499')).toBeDefined();
});

it('counts bytes right however entries come, go and come again', () => {
  const cache = new ReplyCache(MAX_BYTES);
  for (let i = 0; i < 300; i++) cache.set(`key ${i % 7}`, buildReply(i));
  expect(cache.size).toBe(7);
  const before = cache.bytes;
  for (let i = 0; i < 7; i++) cache.set(`key ${i}`, buildReply(0));
  expect(cache.bytes).toBeLessThan(before);
  cache.clear();
  expect([cache.bytes, cache.size]).toEqual([0, 0]);
});

it('ReplyCache drops expired replies', () => {
  const cache = new ReplyCache(MAX_BYTES);
  cache.set('a', buildReply(10), 0);
  expect(cache.get('a')).toBeUndefined();
  expect([cache.bytes, cache.size]).toEqual([0, 0]);
});

describe('a reply that grows', () => {
  it('is counted with its compressed forms while it is kept', async () => {
    const cache = new ReplyCache(MAX_BYTES);
    const reply = buildReply(20_000);
    cache.set('a', reply);
    const before = cache.bytes;
    const compressed = await reply.as('gzip');
    expect(cache.bytes).toBe(before + compressed.length);
    cache.clear();
    await reply.as('br');
    expect(cache.bytes).toBe(0);
  });
});

it('ReplyCache rejects replies larger than a quarter of its size, and all replies with size 0', () => {
  const cache = new ReplyCache(MAX_BYTES);
  cache.set('large', buildReply(MAX_BYTES / 4));
  expect(cache.get('large')).toBeUndefined();
  const none = new ReplyCache(0);
  none.set('a', buildReply(0));
  expect(none.get('a')).toBeUndefined();
});

it('ReplyCache uses no more memory than it reports, even for small buffers of larger slabs', () => {
  const maxBytes = 8 * 1024 * 1024;
  const cache = new ReplyCache(maxBytes);
  const before = usedMemory();
  const noise: Buffer[] = [];
  for (let i = 0; i < 30_000; i++) {
    const body = Buffer.from(`{"number":"${i}"}`);
    cache.set(`key ${i}`, new Reply({ body, etag: `W/"${i}"`, height: 1 }));
    // What a call allocates besides, from the same memory.
    noise[i % 10] = Buffer.from('x'.repeat(3000));
  }
  noise.length = 0;
  expect(cache.size).toBeGreaterThan(5000);
  expect(usedMemory() - before).toBeLessThan(1.5 * maxBytes);
});

function usedMemory(): number {
  setFlagsFromString('--expose-gc');
  runInNewContext('gc')();
  runInNewContext('gc')();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}
