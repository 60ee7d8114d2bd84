import { expect, it } from 'vitest';
import { splitMessage } from './split-message.js';

it('leaves a short message whole, and an empty one out', () => {
  expect(splitMessage('short\nmessage', 100)).toEqual(['short\nmessage']);
  expect(splitMessage(' \n ', 100)).toEqual([]);
});

it('splits at lines', () => {
  const lines = Array.from({ length: 20 }, (_, i) => `line ${i} ${'x'.repeat(20)}`);
  const parts = splitMessage(lines.join('\n'), 100);
  expect(parts.length).toBeGreaterThan(5);
  expect(parts.every(({ length }) => length <= 100)).toBe(true);
  expect(parts.join('\n')).toBe(lines.join('\n'));
});

it('goes on with code in the next message', () => {
  const code = Array.from({ length: 20 }, (_, i) => `code ${i}`);
  const parts = splitMessage(['before', '```', ...code, '```', 'after'].join('\n'), 60);
  for (const part of parts) {
    expect(part.length).toBeLessThanOrEqual(60);
    expect(part.split('\n').filter((line) => line === '```').length % 2).toBe(0);
  }
  const lines = parts.flatMap((part) => part.split('\n')).filter((line) => line !== '```');
  expect(lines).toEqual(['before', ...code, 'after']);
});

it('cuts long lines at spaces, never within links, entities or characters', () => {
  const text = Array.from({ length: 60 }, (_, i) => `w${i} <https://a.b/${i}|label ${i}> &amp; 😀`);
  const parts = splitMessage(text.join(' '), 120);
  for (const part of parts) {
    expect(part.length).toBeLessThanOrEqual(120);
    expect(part.replace(/<[^<>]*>|&amp;/g, '')).not.toMatch(/[<>&]/);
    expect(part.isWellFormed()).toBe(true);
  }
  expect(parts.join(' ')).toBe(text.join(' '));
});

it('cuts even what has no place to cut', () => {
  const parts = splitMessage('x'.repeat(1000), 100);
  expect(parts.every(({ length }) => length <= 100)).toBe(true);
  expect(parts.join('')).toBe('x'.repeat(1000));
});
