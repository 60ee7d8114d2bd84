import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import * as mini from 'zod/mini';
import * as z3 from 'zod/v3';
import { toJsonSchema } from './schema.js';

describe('toJsonSchema', () => {
  it('converts schemas of zod/mini', () => {
    const { $schema: _, ...json } = toJsonSchema(mini.object({ text: mini.string() }));
    expect(json).toEqual({
      type: 'object',
      properties: { text: { type: 'string' } },
      required: ['text'],
    });
  });

  it('names the fix for a schema of zod 3', () => {
    expect(() => toJsonSchema(z3.object({}))).toThrow('import z from zod 4');
  });

  it.each([
    ['from', z.object({ from: z.date() }), 'z.iso.datetime() or z.coerce.date()'],
    ['to', z.object({ to: z.date().optional() }), 'z.coerce.date()'],
    ['list/items', z.object({ list: z.array(z.set(z.string())) }), 'z.array()'],
    ['big', z.object({ big: z.bigint() }), 'z.coerce.bigint()'],
    ['all', z.object({ all: z.map(z.string(), z.string()) }), 'z.record()'],
  ])('refuses a type that no input from JSON fits, at %s', (path, schema, fix) => {
    expect(() => toJsonSchema(schema)).toThrow(`${path}: JSON has no value of the type`);
    expect(() => toJsonSchema(schema)).toThrow(fix);
  });

  it('accepts such a type where a value is converted, or may have another type', () => {
    const toDate = (value: unknown) => new Date(String(value));
    const { properties } = toJsonSchema(
      z.object({
        coerced: z.coerce.date(),
        big: z.coerce.bigint(),
        preprocessed: z.preprocess(toDate, z.date()),
        piped: z.string().transform(toDate).pipe(z.date()),
        either: z.union([z.date(), z.string()]),
        custom: z.instanceof(URL),
      }),
    );
    expect(properties).toMatchObject({ coerced: { type: 'string', format: 'date-time' } });
  });
});
