import { describe, expect, it } from 'vitest';
import { blocksOf } from './blocks-of.js';

describe('blocksOf', () => {
  it('splits paragraphs and headings', () => {
    expect(blocksOf('# A\n\none\ntwo\n\nthree')).toEqual(['# A\n', 'one\ntwo\n', 'three']);
  });

  it.each([
    ['a list', '- a\n\n- b\n\n  more of b\n\n1. c'],
    ['a quote', '> a\n\n> b'],
    ['a fence with blank lines', '```ts\na\n\nb\n```'],
    ['a fence inside a longer one', '````md\n```\n\n```\n\nx\n````'],
    ['a fence that is not closed yet', '~~~\na\n\nb'],
  ])('keeps %s whole', (_, text) => {
    expect(blocksOf(text)).toEqual([text]);
  });

  it('loses nothing', () => {
    const text = 'a\n\n\n```\nx\n\n```\n\n- l\n\nend\n';
    expect(blocksOf(text).join('\n')).toBe(text);
  });

  it('changes only the last block while text is added', () => {
    const before = blocksOf('one\n\ntwo\n\nthr');
    const after = blocksOf('one\n\ntwo\n\nthree and more');
    expect(after.slice(0, 2)).toEqual(before.slice(0, 2));
  });
});
