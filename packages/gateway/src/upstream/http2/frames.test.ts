import { expect, it } from 'vitest';
import { type FrameHead, FrameSplitter, headOf, unpadded } from './frames.js';
import { Flag, FrameType } from './protocol.js';

const FRAMES: readonly (readonly [FrameHead, Buffer])[] = [
  [{ type: FrameType.settings, flags: 0, streamId: 0 }, Buffer.alloc(0)],
  [{ type: FrameType.headers, flags: Flag.endHeaders, streamId: 1 }, Buffer.from('headers')],
  [{ type: FrameType.data, flags: 0, streamId: 0x7fffffff }, Buffer.alloc(100, 7)],
  [{ type: FrameType.data, flags: Flag.endStream, streamId: 3 }, Buffer.from('end')],
];
const BYTES = Buffer.concat(
  FRAMES.flatMap(([head, payload]) => [headOf(head, payload.length), payload]),
);

/** What is made of the bytes when they come in pieces of a size, all in the same memory. */
function framesOf(size: number): unknown[] {
  const frames: unknown[] = [];
  const splitter = new FrameSplitter(100, (head, payload) => {
    frames.push([head, Buffer.from(payload)]);
  });
  const memory = Buffer.alloc(size);
  for (let at = 0; at < BYTES.length; at += size) {
    splitter.take(memory.subarray(0, BYTES.copy(memory, 0, at, at + size)));
    memory.fill(0xee);
  }
  return frames;
}

it('finds the same frames however they are cut', () => {
  for (let size = 1; size <= BYTES.length; size++) expect(framesOf(size)).toEqual(FRAMES);
});

it('refuses a frame over the limit before it has come', () => {
  const splitter = new FrameSplitter(100, () => {});
  const head = headOf({ type: FrameType.data, flags: 0, streamId: 1 }, 101);
  expect(() => splitter.take(head)).toThrow('a frame of 101 bytes is too large');
});

it('takes padding off', () => {
  expect(unpadded(Buffer.from([2, 1, 2, 3, 0, 0]), Flag.padded)).toEqual(Buffer.from([1, 2, 3]));
  expect(unpadded(Buffer.from([2, 1]), 0)).toEqual(Buffer.from([2, 1]));
  expect(() => unpadded(Buffer.from([2, 0]), Flag.padded)).toThrow('padded with more than it has');
  expect(() => unpadded(Buffer.alloc(0), Flag.padded)).toThrow('padded with more than it has');
});
