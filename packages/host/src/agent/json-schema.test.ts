import { describeIssues, type JsonObject } from '@sibyl/protocol';
import { describe, expect, it, vi } from 'vitest';
import { z } from 'zod';
import { checkAnswer, checkJson } from './json-schema.js';

const findErrors = (schema: JsonObject | boolean, value: unknown) =>
  describeIssues(checkJson(schema, value).issues, 'input');
const fits = (schema: JsonObject | boolean, value: unknown) =>
  findErrors(schema, value).length === 0;

describe('checkJson', () => {
  it.each<[JsonObject, unknown, unknown]>([
    [{ type: 'string' }, 'a', 1],
    [{ type: 'number' }, 1.5, '1.5'],
    [{ type: 'integer' }, 2, 2.5],
    [{ type: 'boolean' }, false, 0],
    [{ type: 'null' }, null, false],
    [{ type: 'array' }, [], {}],
    [{ type: 'object' }, {}, []],
    [{ type: ['string', 'null'] }, null, 1],
    [{ type: 'string', nullable: true }, null, 1],
    [{ enum: ['a', 2, { b: [1], c: 1 }] }, { c: 1, b: [1] }, { c: 1 }],
    [{ const: null }, null, 0],
    [{ minLength: 2, maxLength: 3 }, 'ab', 'a'],
    [{ maxLength: 3 }, 'abc', 'abcd'],
    [{ minimum: 1 }, 1, 0],
    [{ exclusiveMinimum: 1 }, 2, 1],
    [{ minimum: 1, exclusiveMinimum: true }, 2, 1],
    [{ maximum: 1 }, 1, 2],
    [{ exclusiveMaximum: 1 }, 0, 1],
    [{ multipleOf: 0.1 }, 0.3, 0.35],
    [{ format: 'date' }, '2026-02-28', '2026-02-30'],
    [{ format: 'email' }, 'a@b.org', 'a'],
    [{ format: 'email' }, 'a@b.org', `${'a'.repeat(5000)}@b.org`],
    [{ format: 'uri' }, 'https://a.org/b', `https://${'ä'.repeat(600)}`],
    [{ format: 'uri' }, `urn:${'ä'.repeat(600)}`, 'a'],
    [{ minItems: 1, maxItems: 2 }, [1], []],
    [
      { uniqueItems: true },
      [{ a: 1, b: 2 }, { a: 1 }],
      [
        { a: 1, b: 2 },
        { b: 2, a: 1 },
      ],
    ],
    [{ items: { type: 'string' } }, ['a'], ['a', 1]],
    [{ prefixItems: [{ type: 'string' }], items: { type: 'number' } }, ['a', 1], ['a', 'b']],
    [{ items: [{ type: 'string' }], additionalItems: false }, ['a'], ['a', 'b']],
    [{ contains: { const: 1 }, maxContains: 1 }, [1, 2], [1, 1]],
    [{ contains: { const: 1 } }, [2, 1], [2]],
    [{ required: ['a'] }, { a: undefined }, {}],
    [{ properties: { a: { type: 'string' } } }, { a: 'x', b: 1 }, { a: 1 }],
    [{ properties: { a: {} }, additionalProperties: false }, { a: 1 }, { b: 1 }],
    [{ additionalProperties: { type: 'string' } }, { a: 'x' }, { a: 1 }],
    [{ propertyNames: { maxLength: 2 } }, { ab: 1 }, { abc: 1 }],
    [{ minProperties: 1, maxProperties: 1 }, { a: 1 }, { a: 1, b: 2 }],
    [{ allOf: [{ minimum: 1 }, { maximum: 3 }] }, 2, 4],
    [{ anyOf: [{ type: 'string' }, { type: 'number' }] }, 1, true],
    [{ oneOf: [{ minimum: 1 }, { maximum: 3 }] }, 4, 2],
    [{ not: { type: 'string' } }, 1, 'a'],
    [{ if: { type: 'number' }, else: { const: 'a' } }, 'a', 'b'],
  ])('%j accepts %j and rejects %j', (schema, good, bad) => {
    expect(findErrors(schema, good)).toEqual([]);
    expect(fits(schema, bad)).toBe(false);
  });

  it('agrees with zod on schemas that both support', () => {
    const schema = {
      type: 'object',
      properties: {
        name: { type: 'string', minLength: 1 },
        tags: { type: 'array', items: { enum: ['a', 'b'] }, maxItems: 2 },
        size: { anyOf: [{ type: 'integer', minimum: 0 }, { type: 'null' }] },
        place: {
          type: 'object',
          properties: { lat: { type: 'number' } },
          required: ['lat'],
          additionalProperties: false,
        },
      },
      required: ['name'],
    };
    const parser = z.fromJSONSchema(schema as never);
    const options = {
      name: ['x', '', 1, undefined],
      tags: [undefined, [], ['a'], ['c'], ['a', 'b', 'a'], 'a'],
      size: [undefined, 1, -1, 1.5, null, 'x'],
      place: [undefined, { lat: 1 }, {}, { lat: '1' }, { lat: 1, lon: 2 }, []],
    };
    const inputs = options.name
      .flatMap((name) => options.tags.map((tags) => ({ name, tags })))
      .flatMap((input) => options.size.map((size) => ({ ...input, size })))
      .flatMap((input) => options.place.map((place) => ({ ...input, place })))
      .map((input) => JSON.parse(JSON.stringify(input)));
    for (const input of inputs)
      expect([input, fits(schema, input)]).toEqual([input, parser.safeParse(input).success]);
  });

  it('fills in defaults at every level without changing the input', () => {
    const schema = {
      properties: {
        a: { default: [1] },
        b: { properties: { c: { type: 'string', default: 'x' } } },
        __proto__: {},
      },
    };
    const input = JSON.parse('{"b": {}, "__proto__": {"polluted": true}}');
    const { value } = checkJson(schema, input);
    expect(JSON.parse(JSON.stringify(value))).toMatchObject({ a: [1], b: { c: 'x' } });
    expect(Object.getPrototypeOf(value)).toBe(Object.prototype);
    expect(input.b).toEqual({});
  });

  it('stops a validation that would take millions of steps', () => {
    const anyOf = Array.from({ length: 400 }, (_, i) => ({ required: [`p${i}`] }));
    const many = Array.from({ length: 10_000 }, () => ({}));
    expect(() => checkJson({ items: { anyOf } }, many)).toThrow('too large to check');
    const bigDefault = { properties: { a: { default: 'x'.repeat(40_000) } } };
    expect(() => checkJson({ items: bigDefault }, many)).toThrow('too large to check');
    const bigEnum = { items: { enum: Array.from({ length: 5000 }, (_, i) => ({ i })) } };
    expect(() => checkJson(bigEnum, many)).toThrow('too large to check');
    const manyTypes = { items: { type: Array.from({ length: 9000 }, () => 'string') } };
    expect(() => checkJson(manyTypes, many)).toThrow('too large to check');
    const manyFields = Object.fromEntries(many.map((_, i) => [`f${i}`, i]));
    const counted = { allOf: many.slice(0, 490).map(() => ({ minProperties: 1 })) };
    expect(() => checkJson(counted, manyFields)).toThrow('too large to check');
    const defaults = many.slice(0, 240).map((_, i) => ({ properties: { [i]: { default: 1 } } }));
    expect(() => checkJson({ allOf: defaults }, manyFields)).toThrow('too large to check');
  });

  it('checks in little time whether very many numbers are multiples', () => {
    const many = Array.from({ length: 49_000 }, (_, i) => i);
    const before = process.threadCpuUsage();
    expect(checkJson({ items: { multipleOf: 2 } }, many).issues).toHaveLength(24_500);
    const { user, system } = process.threadCpuUsage(before);
    expect((user + system) / 1000).toBeLessThan(500);
  });

  it.each(['const', 'enum'])('writes a long %s once, however many values do not fit', (keyword) => {
    const written = vi.spyOn(JSON, 'stringify');
    const long = keyword === 'enum' ? ['x'.repeat(120_000)] : 'x'.repeat(120_000);
    const many = Array.from({ length: 10_000 }, () => 1);
    const { issues } = checkJson({ items: { [keyword]: long } }, many);
    const calls = written.mock.calls.length;
    written.mockRestore();
    expect(issues).toHaveLength(10_000);
    expect(calls).toBe(1);
  });
});

describe('checkAnswer', () => {
  const schema = {
    type: 'object',
    properties: { ok: { type: 'boolean' }, note: { type: 'string', default: '' } },
    required: ['ok'],
  };

  it('returns the answer with defaults', () => {
    expect(checkAnswer(schema, { ok: true })).toEqual({ ok: { ok: true, note: '' } });
    expect(checkAnswer({ type: 'boolean' }, false)).toEqual({ ok: false });
  });

  it('names what is wrong', () => {
    expect(checkAnswer(schema, { ok: 'yes' })).toEqual({ error: ['ok: expected boolean'] });
    expect(checkAnswer({ type: 'boolean' }, 1)).toEqual({ error: ['answer: expected boolean'] });
  });

  it('refuses an answer that is too large to validate', () => {
    const many = { type: 'array', items: { type: 'object', properties: { a: {}, b: {}, c: {} } } };
    const answer = Array.from({ length: 100_000 }, () => ({}));
    expect(checkAnswer(many, answer)).toHaveProperty('error');
  });
});
