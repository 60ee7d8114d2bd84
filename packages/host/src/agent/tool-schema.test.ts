import type { JsonObject } from '@sibyl/protocol';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import type { AgentTool } from './agent.js';
import { type ToolDefinition, toAgentTool } from './tool-schema.js';

function define(inputSchema: ToolDefinition['inputSchema'], changes: Partial<ToolDefinition> = {}) {
  return toAgentTool({
    name: 'look',
    description: 'Looks.',
    inputSchema,
    run: async (input) => input,
    ...changes,
  });
}

function made(inputSchema: ToolDefinition['inputSchema']): AgentTool {
  const { ok, error } = define(inputSchema);
  if (!ok) throw new Error(error);
  return ok.tool;
}

function defineBadly(inputSchema: JsonObject): string {
  return define(inputSchema).error ?? '';
}

it('toAgentTool keeps name, description, timeout and run', () => {
  const run = async () => 1;
  expect(define({}, { timeoutMs: 5, run }).ok?.tool).toMatchObject({
    name: 'look',
    description: 'Looks.',
    timeoutMs: 5,
    run,
  });
  expect(made({}).timeoutMs).toBe(60_000);
});

it.each(['', 'two words', 'a.b', 'ünlaut', 'x'.repeat(65)])(
  'toAgentTool rejects the name "%s"',
  (name) => {
    expect(define({}, { name })).toHaveProperty('error');
  },
);

describe('toAgentTool with a zod schema', () => {
  const Place = z.object({ lat: z.number() }).meta({ id: 'test.Place' });
  const schema = z.object({
    city: z.string().min(1).describe('Where'),
    days: z.number().int().max(7).default(3),
    from: Place,
    to: Place.optional(),
    when: z.coerce.date().optional(),
  });

  it('returns plain JSON Schema without references', () => {
    const { inputSchema } = made(schema);
    const place = { type: 'object', properties: { lat: { type: 'number' } }, required: ['lat'] };
    expect(inputSchema).toEqual({
      type: 'object',
      properties: {
        city: { type: 'string', minLength: 1, description: 'Where' },
        days: expect.objectContaining({ type: 'integer', maximum: 7, default: 3 }),
        from: expect.objectContaining(place),
        to: expect.objectContaining(place),
        when: { type: 'string', format: 'date-time' },
      },
      required: ['city', 'from'],
    });
    expect(JSON.stringify(inputSchema)).not.toMatch(/\$ref|\$schema|definitions|~standard/);
  });

  it('validates, fills in defaults and converts', async () => {
    expect(await made(schema).check({ city: 'Nairobi', from: { lat: 1 } })).toEqual({
      ok: { city: 'Nairobi', days: 3, from: { lat: 1 } },
    });
    const upper = z.object({ a: z.string().transform((text) => text.toUpperCase()) });
    expect(await made(upper).check({ a: 'x' })).toEqual({ ok: { a: 'X' } });
  });

  it('names the invalid field', async () => {
    expect(await made(schema).check({ city: '', days: 9, from: { lat: 'x' } })).toEqual({
      error: [
        expect.stringMatching(/^city: /),
        expect.stringMatching(/^days: /),
        expect.stringMatching(/^from\.lat: .*number/),
      ],
    });
  });

  it('merges alternatives at the root for the model, and still validates them separately', async () => {
    const union = z.discriminatedUnion('kind', [
      z.object({ kind: z.literal('circle'), radius: z.number() }),
      z.object({ kind: z.literal('square'), side: z.number() }),
    ]);
    const { inputSchema, check } = made(union);
    expect(inputSchema).toEqual({
      type: 'object',
      properties: {
        kind: {
          anyOf: [
            { type: 'string', const: 'circle' },
            { type: 'string', const: 'square' },
          ],
        },
        radius: { type: 'number' },
        side: { type: 'number' },
      },
      required: ['kind'],
    });
    expect(await check({ kind: 'circle', radius: 1 })).toHaveProperty('ok');
    expect(await check({ kind: 'circle', side: 1 })).toEqual({
      error: [expect.stringMatching(/^radius: /)],
    });
  });

  it('accepts a recursive schema', async () => {
    const Node = z.object({
      name: z.string(),
      get children() {
        return z.array(Node).optional();
      },
    });
    const { inputSchema, check } = made(Node);
    expect(inputSchema).toMatchObject({ properties: { children: { items: {} } } });
    expect(await check({ name: 'a', children: [{ name: 3 }] })).toHaveProperty('error');
  });

  it('rejects a schema that is not an object', () => {
    expect(define(z.string())).toEqual({ error: expect.stringContaining('an object') });
  });

  it('reads a schema once', () => {
    expect(made(schema).inputSchema).toBe(made(schema).inputSchema);
  });
});

describe('toAgentTool with a JSON Schema', () => {
  it.each([{}, { $schema: 'https://json-schema.org/draft/2020-12/schema' }, { type: 'object' }])(
    '%j means any object',
    (schema) => {
      const { inputSchema, check } = made(schema);
      expect(inputSchema).toEqual({ type: 'object', properties: {} });
      expect(check({ a: [1] })).toEqual({ ok: { a: [1] } });
      expect(check([])).toHaveProperty('error');
    },
  );

  it('validates known fields and keeps unknown ones', () => {
    const { check } = made({
      type: 'object',
      properties: { n: { type: 'integer' }, kind: { enum: ['a', 'b'] } },
      required: ['n', 'undescribed'],
    });
    expect(check({ n: 1, undescribed: 2, more: 3 })).toEqual({
      ok: { n: 1, undescribed: 2, more: 3 },
    });
    expect(check({ n: 1 })).toEqual({ error: ['undescribed: is required'] });
    expect(check({ n: 'x', kind: 'c', undescribed: 0 })).toEqual({
      error: [expect.stringMatching(/^n: /), expect.stringMatching(/^kind: /)],
    });
  });

  it('reports what each alternative expects', () => {
    const { check } = made({
      type: 'object',
      properties: { id: { anyOf: [{ type: 'string' }, { type: 'number' }] } },
    });
    expect(check({ id: true })).toEqual({
      error: [expect.stringMatching(/^id: .*expected string.*or.*expected number/)],
    });
  });

  it('limits the number of errors', () => {
    const names = Array.from({ length: 30 }, (_, i) => `f${i}`);
    const properties = Object.fromEntries(names.map((name) => [name, { type: 'string' }]));
    const input = Object.fromEntries(names.map((name) => [name, 1]));
    const checked = made({ type: 'object', properties }).check(input);
    expect(checked).toMatchObject({ error: { length: 21, 20: 'and 10 more' } });
  });

  it('resolves references by any path, with their own descriptions', () => {
    const { inputSchema, check } = made({
      $defs: { 'a/b': { type: 'string', description: 'Inner' } },
      definitions: { Old: { type: 'number' } },
      type: 'object',
      properties: {
        a: { $ref: '#/$defs/a~1b', description: 'Outer' },
        b: { allOf: [{ $ref: '#/definitions/Old' }], description: 'Wrapped' },
        c: { $ref: '#/properties/a' },
        $ref: { type: 'boolean' },
      },
    });
    expect(inputSchema).toEqual({
      type: 'object',
      properties: {
        a: { type: 'string', description: 'Outer' },
        b: { type: 'number', description: 'Wrapped' },
        c: { type: 'string', description: 'Outer' },
        $ref: { type: 'boolean' },
      },
    });
    expect(check({ b: 'x' })).toHaveProperty('error');
    expect(check({ c: 1 })).toHaveProperty('error');
  });

  it('accepts a recursive schema; deeper levels accept anything', () => {
    const { inputSchema, check } = made({
      type: 'object',
      properties: { name: { type: 'string' }, child: { $ref: '#' } },
    });
    expect(inputSchema).toMatchObject({ properties: { child: {} } });
    expect(check({ name: 'a', child: { name: 1 } })).toHaveProperty('ok');
  });

  it('keeps patterns but never runs them', () => {
    const pattern = '^(a+)+$';
    const { inputSchema, check } = made({
      type: 'object',
      properties: { word: { type: 'string', pattern }, pattern: { type: 'string' } },
      patternProperties: { '^x-': { type: 'string' } },
      additionalProperties: false,
    });
    expect(inputSchema).toMatchObject({ properties: { word: { pattern } } });
    // With the pattern, this one would take longer than the universe has.
    expect(check({ word: `${'a'.repeat(100)}!`, 'x-y': 'z' })).toHaveProperty('ok');
    expect(check({ pattern: 1 })).toHaveProperty('error');
  });

  it.each([
    ['another type', { type: 'string' }, 'an object'],
    ['an unknown type', { type: 'object', properties: { a: { type: 'banana' } } }, 'banana'],
    ['fields that are none', { type: 'object', properties: 3 }, 'not a schema'],
    ['a field that is none', { type: 'object', properties: { a: null } }, 'not a schema'],
    ['a field elsewhere', { properties: { a: { $ref: 'https://x.y/z' } } }, 'another document'],
    ['a field nowhere', { properties: { a: { $ref: '#/$defs/none' } } }, 'missing definition'],
    ['a broken reference', { properties: { a: { $ref: '#/%E0%A4%A' } } }, 'cannot be used'],
    ['what cannot be checked', { properties: { a: { unevaluatedItems: false } } }, 'not supported'],
  ])('rejects a schema with %s', (_, schema, message) => {
    expect(defineBadly(schema)).toContain(message);
  });

  it('rejects a schema that is not JSON', () => {
    const schema: JsonObject = { type: 'object' };
    schema.properties = { self: schema };
    expect(defineBadly(schema)).toContain('cannot be used');
  });

  it('rejects a schema that expands to billions of parts without delay', () => {
    const levels = Array.from({ length: 40 }, (_, n) => {
      const next = { $ref: `#/$defs/l${n + 1}` };
      return [`l${n}`, { allOf: [next, next] }];
    });
    const $defs = { ...Object.fromEntries(levels), l40: { type: 'string' } };
    const schema = { $defs, properties: { a: { $ref: '#/$defs/l0' } } };
    expect(defineBadly(schema)).toContain('too large');
  });

  it('keeps a schema with an id separate from others', () => {
    made({ type: 'object', properties: { a: { id: 'test.Foreign', type: 'string' } } });
    expect(Object.keys(z.toJSONSchema(z.globalRegistry).schemas)).not.toContain('test.Foreign');
  });
});

const defineWithSchema = (inputSchema: JsonObject) =>
  toAgentTool({ name: 'look', description: '', inputSchema, run: async (input) => input });

describe('toAgentTool with a JSON Schema', () => {
  it.each<[string, JsonObject]>([
    ['texts', { $defs: { a: { description: 'x'.repeat(1000) } } }],
    ['values', { $defs: { a: { enum: Array.from({ length: 1000 }, (_, i) => i) } } }],
    [
      'keywords',
      { $defs: { a: Object.fromEntries(Array.from({ length: 100 }, (_, i) => [`x${i}`, 1])) } },
    ],
  ])('rejects references that multiply %s', (_, defs) => {
    const names = Array.from({ length: 200 }, (__, i) => `f${i}`);
    const properties = Object.fromEntries(names.map((name) => [name, { $ref: '#/$defs/a' }]));
    expect(Object(defineWithSchema({ ...defs, properties })).error).toMatch(
      /may hold at most|too large/,
    );
  });

  it('rejects alternatives at the root that multiply what they refer to', () => {
    const required = Array.from({ length: 1000 }, (_, i) => `f${i}`);
    const anyOf = Array.from({ length: 40 }, () => ({ $ref: '#/$defs/a' }));
    const schema = { $defs: { a: { type: 'object', required } }, anyOf };
    expect(Object(defineWithSchema(schema)).error).toMatch(/may hold at most/);
  });

  it('returns the approximate length of the schema', () => {
    const schema = { properties: { a: { type: 'string', description: 'x'.repeat(1000) } } };
    const result = defineWithSchema(schema);
    const { tool, characters } = result.ok ?? {};
    const { length } = JSON.stringify(tool?.inputSchema);
    expect(Math.abs(length - Number(characters))).toBeLessThan(30);
  });
});
