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
