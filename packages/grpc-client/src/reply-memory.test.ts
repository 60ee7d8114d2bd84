import { expect, it } from 'vitest';
import { GrpcCode } from './grpc-error.js';
import { ReplyMemory } from './message-framing.js';

it('ReplyMemory refuses large replies when it is full, never small ones, and forgets released ones', () => {
  const memory = new ReplyMemory(100_000);
  const [first, second, small] = [memory.reserve(), memory.reserve(), memory.reserve()];
  first.grow(90_000);
  expect(() => second.grow(20_000)).toThrow(
    expect.objectContaining({ code: GrpcCode.unavailable, origin: 'node' }),
  );
  small.grow(1000);
  second.release();
  second.release();
  first.release();
  memory.reserve().grow(99_000);
});

it('ReplyMemory leaves room for others when the large replies of one owner exceed its part', () => {
  const memory = new ReplyMemory(400_000, 100_000);
  const [first, second, small] = [memory.reserve('a'), memory.reserve('a'), memory.reserve('a')];
  first.grow(90_000);
  expect(() => second.grow(20_000)).toThrow(
    expect.objectContaining({ code: GrpcCode.resourceExhausted, origin: 'node' }),
  );
  small.grow(10_000);
  memory.reserve('b').grow(100_000);
  memory.reserve().grow(150_000);
  for (const one of [second, second, first]) one.release();
  memory.reserve('a').grow(100_000);
});

it('ReplyMemory reuses the memory of large messages that were recycled, once', () => {
  const memory = new ReplyMemory(10_000_000);
  const reserved = memory.reserve();
  const [first, second] = [reserved.allocate(150_000), reserved.allocate(160_000)];
  expect(second.buffer).not.toBe(first.buffer);
  for (const _ of [1, 2]) memory.recycle(first);
  memory.recycle(new Uint8Array(150_000));
  const [third, fourth] = [reserved.allocate(140_000), reserved.allocate(140_000)];
  expect(third.buffer).toBe(first.buffer);
  expect(third).toHaveLength(140_000);
  expect([first.buffer, second.buffer]).not.toContain(fourth.buffer);
});
