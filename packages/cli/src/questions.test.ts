import { describe, expect, it, vi } from 'vitest';
import { parseAnswer, printQuestion } from './questions.js';
import type { Output } from './terminal.js';

const object = (properties: object, required = Object.keys(properties)) => ({
  type: 'object',
  properties,
  required,
});

const text = { type: 'string' };
const MIXED = { enum: ['a', 2] };
const NULLABLE = { anyOf: [{ type: 'string', enum: ['x', 'y'] }, { type: 'null' }] };
const TITLED = {
  oneOf: [
    { const: 'r', title: 'Red' },
    { const: 'g', title: 'Green' },
  ],
};

describe('a question', () => {
  it.each<[string, object, string, string, unknown]>([
    ['yes or no', { type: 'boolean' }, '/answer yes, or /answer no', 'no', false],
    ['one switch', object({ ok: { type: 'boolean' } }), '/answer yes', 'YES', { ok: true }],
    ['one text', object({ city: { type: 'string' } }), '/answer <city>', '007', { city: '007' }],
    ['one number', object({ people: { type: 'number' } }), '/answer <people>', '4', { people: 4 }],
    [
      'one choice',
      object({ place: { type: 'string', enum: ['aisle', 'window'] } }),
      '/answer aisle, or /answer window',
      'aisle',
      { place: 'aisle' },
    ],
    [
      'one field, as JSON',
      object({ city: { type: 'string' } }),
      '/answer <city>',
      '{"city":"Bern"}',
      { city: 'Bern' },
    ],
    [
      'several fields',
      object({ a: { type: 'string' }, b: { type: 'integer' } }),
      '/answer {"a": <string>, "b": <integer>}',
      '{"a":"x","b":1}',
      { a: 'x', b: 1 },
    ],
    [
      'a list and an optional field',
      object({ a: { type: 'array', items: { enum: ['x', 'y'] } }, b: { type: 'integer' } }, ['a']),
      '/answer {"a": [<x or y>]}, optionally with "b": <integer>',
      '{"a":["x"]}',
      { a: ['x'] },
    ],
    ['any field', object({ a: true }), '/answer <JSON>;', '1', { a: 1 }],
    ['any union', object({ a: { anyOf: [true, null] } }), '/answer <JSON>;', '1', { a: 1 }],
    [
      'a list of anything',
      object({ a: { type: 'array', items: true } }),
      '/answer [<value>];',
      '[1]',
      { a: [1] },
    ],
    ['one text or null', object({ a: { type: ['string', 'null'] } }), '<a>', 'x', { a: 'x' }],
    ['anything', {}, '/answer <JSON>', '[1]', [1]],
    [
      'one object',
      object({ home: object({ street: text, city: text }) }),
      '/answer {"street": <string>, "city": <string>};',
      '{"street":"Main St","city":"Bern"}',
      { home: { street: 'Main St', city: 'Bern' } },
    ],
    [
      'one object, as JSON of all',
      object({ home: object({ city: text }) }),
      '/answer {"city": <string>};',
      '{"home":{"city":"Bern"}}',
      { home: { city: 'Bern' } },
    ],
    [
      'one object with a field of its name',
      object({ city: object({ city: text }) }),
      '/answer {"city": <string>};',
      '{"city":"Bern"}',
      { city: { city: 'Bern' } },
    ],
    ['a text like JSON', object({ city: text }), '/answer <city>', '{hi}', { city: '{hi}' }],
    ['JSON as a text', object({ city: text }), '/answer <city>', '{"a":1}', { city: '{"a":1}' }],
    ['an optional choice, left out', object({ a: { enum: ['x'] } }, []), '/answer x;', '{}', {}],
    ['choices without a type', object({ a: MIXED }), '/answer a, or /answer 2;', 'a', { a: 'a' }],
    ['a number as a choice', object({ a: MIXED }), '/answer a, or /answer 2;', '2', { a: 2 }],
    ['one constant', object({ a: { const: 'x' } }), '/answer x;', 'x', { a: 'x' }],
    ['choices or null', object({ a: NULLABLE }), '/answer x, or /answer y;', 'y', { a: 'y' }],
    ['null', object({ a: NULLABLE }), '/answer x, or /answer y;', 'null', { a: null }],
    [
      'choices of a union',
      object({ a: { anyOf: [{ type: 'string', const: 'x' }, { enum: [2, true] }] } }),
      '/answer x, or /answer 2, or /answer true;',
      'true',
      { a: true },
    ],
    [
      'choices with titles',
      object({ a: TITLED }),
      '/answer r (Red), or /answer g (Green);',
      'g',
      { a: 'g' },
    ],
    [
      'a list of choices',
      object({ a: { type: 'array', items: TITLED } }),
      '/answer [<r or g>];',
      '["r"]',
      { a: ['r'] },
    ],
    [
      'several fields with choices or null',
      object({ a: NULLABLE, b: { type: ['string', 'null'] } }),
      '/answer {"a": <x or y>, "b": <string>};',
      '{"a":"x","b":null}',
      { a: 'x', b: null },
    ],
    [
      'a choice or any text',
      object({ a: { anyOf: [{ const: 'x' }, text] } }),
      '/answer <JSON>;',
      '"z"',
      { a: 'z' },
    ],
  ])('with %s shows what to write, and parseAnswer reads it', (_, schema, hint, text, value) => {
    let printed = '';
    const output = { write: (shown: string) => (printed += shown), dim: (shown: string) => shown };
    printQuestion({ data: 'Which?', schema } as never, output as unknown as Output);
    expect(printed).toMatch(/^\? Which\?\n/);
    expect(printed).toContain(hint);
    expect(parseAnswer(text, schema as never)).toEqual(value);
  });

  it('that parseAnswer cannot read an answer to says what to write', () => {
    const schema = object({ ok: { type: 'boolean' } });
    expect(() => parseAnswer('perhaps', schema)).toThrow('Write /answer yes, or /answer no');
    expect(() => parseAnswer('', object({ city: text }))).toThrow('Write /answer <city>');
    expect(() => parseAnswer('z', object({ a: NULLABLE }))).toThrow('/answer x, or /answer y');
  });

  it('without a text shows the name or the description of what it asks', () => {
    const print = (schema: object, data?: unknown) => {
      const write = vi.fn();
      printQuestion({ data, schema } as never, { write, dim: String } as never);
      return write.mock.calls[0];
    };
    for (const data of [undefined, null, '', {}])
      expect(print(object({ isInsured: { type: 'boolean' } }), data)).toEqual([
        '? A tool asks you a question: isInsured\n',
      ]);
    expect(print({ type: 'boolean', description: 'Are you sure?' })).toEqual([
      '? A tool asks you a question: Are you sure?\n',
    ]);
  });
});
