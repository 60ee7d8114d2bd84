import { expect, it } from 'vitest';
import { hasMoreValues, readJson } from './json-node.js';

const exceeds = (json: string, max: number) => hasMoreValues(Buffer.from(json), max);

it.each([
  ['1', 1],
  ['[1,2,3]', 4],
  ['{"a":[],"b":{}}', 5],
  ['["a,b,[{", "\\",,,\\\\"]', 3],
])('hasMoreValues counts no more than %j has', (json, count) => {
  expect(exceeds(json, count)).toBe(false);
  if (count > 1) expect(exceeds(json, 1)).toBe(true);
});

it('readJson refuses a body of very many values', () => {
  const many = `[${'[],'.repeat(300_000)}[]]`;
  expect(() => readJson(Buffer.from(many))).toThrow('more than 10000 values');
  expect(() => readJson(Buffer.from('['.repeat(500_000)))).toThrow('more than 10000 values');
  expect(readJson(Buffer.from(`["${',[{'.repeat(20_000)}"]`))?.items).toHaveLength(1);
});
