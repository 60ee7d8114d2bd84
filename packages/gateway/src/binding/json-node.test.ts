import { expect, it } from 'vitest';
import { readJson } from './json-node.js';

it('readJson refuses a body of very many values', () => {
  const many = `[${'[],'.repeat(300_000)}[]]`;
  expect(() => readJson(Buffer.from(many))).toThrow('more than 10000 values');
  expect(() => readJson(Buffer.from('['.repeat(500_000)))).toThrow('more than 64 levels');
  expect(readJson(Buffer.from(`["${',[{'.repeat(20_000)}"]`))?.items).toHaveLength(1);
});
