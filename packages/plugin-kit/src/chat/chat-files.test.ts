import { describe, expect, it } from 'vitest';
import { findMedia } from './chat-files.js';

describe('findMedia', () => {
  const image = { mediaType: 'image/png', data: new Uint8Array(3) };

  it.each([
    ['alone', image],
    ['in a list', [1, null, image]],
    ['in an object', { text: 'x', image }],
    ['in a list in an object', { images: [{ mediaType: 'image/png', data: 'text' }, image] }],
  ])('finds an image %s', (_, result) => {
    expect(findMedia(result)).toEqual([image]);
  });

  it('finds no other files', () => {
    expect(findMedia([{ ...image, mediaType: 'text/plain' }, 'text', undefined])).toEqual([]);
    expect(findMedia('text')).toEqual([]);
  });

  it('findMedia parses no parts without bytes, and no more than are sent', () => {
    let parsed = 0;
    const toPart = (data: unknown) => ({
      get mediaType() {
        parsed += 1;
        return 'image/png';
      },
      data,
    });
    const rows = Array.from({ length: 1000 }, () => toPart('text'));
    const images = Array.from({ length: 1000 }, () => toPart(new Uint8Array(3)));
    expect(findMedia({ rows, images })).toHaveLength(5);
    expect(parsed).toBe(5);
  });
});
