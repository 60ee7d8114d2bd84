import { describe, expect, it } from 'vitest';
import { parseWords, toWords, WORD_COUNT } from './words.js';

const seed = Uint8Array.from({ length: 32 }, (_, i) => i * 7);

describe('toWords', () => {
  it('parseWords reads the words as people write them down', () => {
    const words = toWords(seed);
    expect(words).toHaveLength(WORD_COUNT);
    const numbered = words.map((word, i) => `${i + 1}. ${word.toUpperCase()}`).join(',\n');
    expect(parseWords(numbered)).toEqual({ seed });
  });

  it('parseWords names what is wrong', () => {
    const words = toWords(seed);
    expect(parseWords(words.slice(2).join(' '))).toEqual({ problem: 'count', count: 22 });
    expect(parseWords([...words.slice(1), 'sibyl'].join(' '))).toEqual({
      problem: 'unknown',
      word: 'sibyl',
    });
    const swapped = [words[1], words[0], ...words.slice(2)].join(' ');
    expect(parseWords(swapped)).toEqual({ problem: 'checksum' });
  });
});
