import { expect, it } from 'vitest';
import { encodeHead, type FrameHead, FrameReader, removePadding } from './frames.js';
import { Flag, FrameType } from './protocol.js';

const FRAMES: readonly (readonly [FrameHead, Buffer])[] = [
  [{ type: FrameType.settings, flags: 0, streamId: 0 }, Buffer.alloc(0)],
  [{ type: FrameType.headers, flags: Flag.endHeaders, streamId: 1 }, Buffer.from('headers')],
  [{ type: FrameType.data, flags: 0, streamId: 0x7fffffff }, Buffer.alloc(100, 7)],
  [{ type: FrameType.data, flags: Flag.endStream, streamId: 3 }, Buffer.from('end')],
];
const BYTES = Buffer.concat(
  FRAMES.flatMap(([head, payload]) => [encodeHead(head, payload.length), payload]),
);

/** Reads the bytes in chunks of one size, all in the same buffer. */
function readInChunks(size: number): unknown[] {
  const frames: unknown[] = [];
  const reader = new FrameReader(100, (head, payload) => {
    frames.push([head, Buffer.from(payload)]);
  });
  const memory = Buffer.alloc(size);
  for (let at = 0; at < BYTES.length; at += size) {
    reader.read(memory.subarray(0, BYTES.copy(memory, 0, at, at + size)));
    memory.fill(0xee);
  }
  return frames;
}

it('FrameReader finds the same frames for every chunk size', () => {
  for (let size = 1; size <= BYTES.length; size++) expect(readInChunks(size)).toEqual(FRAMES);
});

it('FrameReader rejects a frame over the limit before its payload arrives', () => {
  const reader = new FrameReader(100, () => {});
  const head = encodeHead({ type: FrameType.data, flags: 0, streamId: 1 }, 101);
  expect(() => reader.read(head)).toThrow('a frame of 101 bytes is too large');
});

it('removePadding removes padding and rejects padding that exceeds the payload', () => {
  expect(removePadding(Buffer.from([2, 1, 2, 3, 0, 0]), Flag.padded)).toEqual(
    Buffer.from([1, 2, 3]),
  );
  expect(removePadding(Buffer.from([2, 1]), 0)).toEqual(Buffer.from([2, 1]));
  expect(() => removePadding(Buffer.from([2, 0]), Flag.padded)).toThrow('exceeds its payload');
  expect(() => removePadding(Buffer.alloc(0), Flag.padded)).toThrow('exceeds its payload');
});
