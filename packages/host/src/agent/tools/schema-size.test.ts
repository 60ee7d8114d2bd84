import type { JsonObject } from '@sibyl/protocol';
import { describe, expect, it } from 'vitest';
import { toAgentTool } from './to-agent-tool.js';

const define = (inputSchema: JsonObject) =>
  toAgentTool({ name: 'look', description: '', inputSchema, run: async (input) => input });

describe('a JSON Schema', () => {
  it.each<[string, JsonObject]>([
    ['texts', { $defs: { a: { description: 'x'.repeat(1000) } } }],
    ['values', { $defs: { a: { enum: Array.from({ length: 1000 }, (_, i) => i) } } }],
    [
      'keywords',
      { $defs: { a: Object.fromEntries(Array.from({ length: 100 }, (_, i) => [`x${i}`, 1])) } },
    ],
  ])('whose references multiply %s is refused by toAgentTool', (_, defs) => {
    const names = Array.from({ length: 200 }, (__, i) => `f${i}`);
    const properties = Object.fromEntries(names.map((name) => [name, { $ref: '#/$defs/a' }]));
    expect(Object(define({ ...defs, properties })).fault).toMatch(/may hold at most|too large/);
  });

  it('toAgentTool reports about how long the schema is that models are sent', () => {
    const schema = { properties: { a: { type: 'string', description: 'x'.repeat(1000) } } };
    const result = define(schema);
    const length = JSON.stringify(Object(define(schema)).ok.inputSchema).length;
    expect(result).toMatchObject({ characters: expect.any(Number) });
    expect(Math.abs(length - Number(Object(result).characters))).toBeLessThan(30);
  });
});
