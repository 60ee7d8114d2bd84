import type { JsonObject } from '@sibyl/client';
import { beforeAll, describe, expect, it } from 'vitest';
import { CreateSchedule, describeIssues } from '../../../../protocol/src/index.js';
import { loadArea } from '../../i18n/i18n.js';
import {
  applyEdits,
  explainInvalid,
  formatArgument,
  humanize,
  InvalidField,
  listFields,
} from './arguments.js';

const schema = {
  type: 'object',
  properties: {
    to: { type: 'string', title: 'Recipient', description: 'Who gets it' },
    amount: { type: 'number' },
    speed: { enum: ['slow', 'fast'] },
    isUrgent: { type: 'boolean' },
    note: { type: 'string' },
  },
  required: ['to', 'amount'],
};
const args = { to: 'bob', amount: 50, speed: 'slow', isUrgent: false, tags: ['a'] };

describe('listFields', () => {
  it('labels arguments with the schema, and keeps those that it lacks', () => {
    const fields = listFields(args, schema);
    expect(fields.map(({ label, kind }) => [label, kind])).toEqual([
      ['Recipient', 'text'],
      ['Amount', 'number'],
      ['Speed', 'choice'],
      ['Is urgent', 'switch'],
      ['Note', 'text'],
      ['Tags', 'json'],
    ]);
    expect(fields[0]).toMatchObject({ hint: 'Who gets it', isRequired: true });
  });
});

describe('listFields of a question', () => {
  const kinds = (properties: JsonObject, required: string[] = []) =>
    listFields({}, { properties, required }).map(({ kind, initial }) => [kind, initial]);

  it('starts with the defaults, since the host would fill them in for what is left out', () => {
    const properties = {
      isPublic: { type: 'boolean', default: true },
      city: { type: 'string', default: 'Kitui' },
      size: { enum: ['S', 'M'], default: 'M' },
    };
    expect(kinds(properties)).toEqual([
      ['switch', true],
      ['text', 'Kitui'],
      ['choice', 'M'],
    ]);
    const fields = listFields({}, { properties });
    const initial = { isPublic: true, city: 'Kitui', size: 'M' };
    expect(applyEdits(initial, fields, { isPublic: 'false', city: '' })).toEqual({
      isPublic: false,
      city: '',
      size: 'M',
    });
  });

  it('finds the control of values that may be null, of numbers to choose from, and of any value', () => {
    const properties = {
      name: { anyOf: [{ type: 'string' }, { type: 'null' }] },
      age: { type: ['integer', 'null'] },
      level: { anyOf: [{ const: 1, title: 'Low' }, { const: 2 }] },
      either: { anyOf: [{ type: 'string' }, { type: 'number' }] },
      any: {},
      when: { type: 'string', format: 'date' },
    };
    expect(kinds(properties, ['name', 'age', 'level'])).toEqual([
      ['text', null],
      ['number', null],
      ['choice', 1],
      ['text', undefined],
      ['text', undefined],
      ['date', undefined],
    ]);
    const required = ['name', 'age', 'level'];
    const fields = listFields({}, { properties, required });
    expect(fields[2]?.choices.map(({ label }) => label)).toEqual(['Low', '2']);
    const initial = { name: 'Bo', age: 3, level: 1 };
    expect(applyEdits(initial, fields, { age: '', level: '2', any: 'hello' })).toEqual({
      name: 'Bo',
      age: null,
      level: 2,
      any: 'hello',
    });
  });

  it('offers a choice for a boolean that may be null, as a switch cannot show that', () => {
    const isTrusted = { anyOf: [{ type: 'boolean' }, { type: 'null' }] };
    expect(kinds({ isTrusted }, ['isTrusted'])).toEqual([['choice', null]]);
    const fields = listFields({}, { properties: { isTrusted }, required: ['isTrusted'] });
    expect(fields[0]?.choices.map(({ label }) => label)).toEqual(['Yes', 'No']);
    const choose = (text: string) => applyEdits({ isTrusted: null }, fields, { isTrusted: text });
    expect(choose('false')).toEqual({ isTrusted: false });
    expect(choose('')).toBeUndefined();
    expect(applyEdits({ isTrusted: true }, fields, { isTrusted: '' })).toEqual({ isTrusted: null });
  });

  it('finds secrets, also those inside of other values', () => {
    const password = { type: 'string', format: 'password' };
    const properties = {
      password,
      pin: { type: 'integer', writeOnly: true },
      account: { type: 'object', properties: { password } },
      either: { anyOf: [password, { type: 'null' }] },
      format: { type: 'string', format: 'date' },
      user: { type: 'string', writeOnly: false },
    };
    const fields = listFields({}, { properties });
    const secrets = fields.filter(({ isSecret }) => isSecret);
    expect(secrets.map(({ name }) => name)).toEqual(['password', 'pin', 'account', 'either']);
  });

  it('shows lists of texts as lines and of choices as boxes, and the shape of an object', () => {
    const properties = {
      tags: { type: 'array', items: { type: 'string' } },
      colors: { type: 'array', items: { enum: ['red', 'blue'] } },
      address: { type: 'object', properties: { street: { type: 'string' } } },
    };
    expect(kinds(properties, ['tags', 'colors', 'address'])).toEqual([
      ['list', []],
      ['choices', []],
      ['json', { street: '' }],
    ]);
    const fields = listFields({}, { properties });
    expect(applyEdits({}, fields, { tags: 'a\n\nb c', colors: '["blue"]' })).toEqual({
      tags: ['a', 'b c'],
      colors: ['blue'],
    });
  });

  it('shows a value that its schema does not allow as it is', () => {
    const properties = { size: { enum: ['S'] }, tags: { type: 'array', items: { enum: ['x'] } } };
    const fields = listFields({ size: 'XL', tags: ['y'] }, { properties });
    expect(fields.map(({ kind }) => kind)).toEqual(['text', 'json']);
  });
});

describe('applyEdits', () => {
  const fields = listFields(args, schema);
  const edit = (texts: Record<string, string>) => applyEdits(args, fields, texts);

  it('returns undefined if nothing differs', () => {
    expect(edit({})).toBeUndefined();
    expect(edit({ to: 'bob', amount: '50', note: '' })).toBeUndefined();
  });

  it('keeps the types of the arguments', () => {
    expect(edit({ amount: '20', isUrgent: 'true', tags: '["a","b"]' })).toEqual({
      ...args,
      amount: 20,
      isUrgent: true,
      tags: ['a', 'b'],
    });
  });

  it('names the field of a value that is not JSON, and leaves out an optional one that is empty', () => {
    expect(() => edit({ tags: '[' })).toThrow(new InvalidField('Tags'));
    expect(() => edit({ amount: '' })).toThrow(new InvalidField('Amount'));
    const { speed: _, ...rest } = args;
    expect(edit({ speed: '' })).toEqual(rest);
  });

  it('reads numbers as people type them', () => {
    expect(edit({ amount: '.5' })).toMatchObject({ amount: 0.5 });
    expect(edit({ amount: '007' })).toMatchObject({ amount: 7 });
    for (const amount of [' ', '1e999', 'ten'])
      expect(() => edit({ amount })).toThrow(new InvalidField('Amount'));
  });
});

describe('humanize', () => {
  it.each([
    ['submit_claim', 'Submit claim'],
    ['sendEmail', 'Send email'],
    ['mcp.files-read', 'Mcp files read'],
  ])('%s is %s', (name, text) => expect(humanize(name)).toBe(text));

  it('formatArgument shows lists and objects', () => {
    expect(formatArgument(['a', 'b'])).toBe('a, b');
    expect(formatArgument(null)).toBe('–');
    expect(formatArgument({ a: 1 })).toBe('{\n  "a": 1\n}');
    expect(formatArgument(['\u202ebob'])).toBe('[U+202E]bob');
  });
});

describe('explainInvalid', () => {
  const valid = { name: 'News', message: 'Say', trigger: { type: 'webhook' } };

  /** What the page says about a schedule that the server refuses. */
  function explain(wrong: object): readonly string[] {
    const { error } = CreateSchedule.safeParse({ ...valid, ...wrong });
    const lines = describeIssues(error?.issues ?? [], 'body');
    expect(lines).not.toEqual([]);
    return explainInvalid(lines, (path) => (path === 'name' ? 'Title' : undefined));
  }

  beforeAll(() => loadArea('settings'));

  it('names the field as the form does, and the reason if it is known', () => {
    const tooLong = 'x'.repeat(101);
    expect(explain({ name: ' ' })).toEqual(['“Title” is missing.']);
    expect(explain({ name: undefined })).toEqual(['“Title” is missing.']);
    expect(explain({ name: tooLong })).toEqual(['“Title” is too long. Maximum length: 100.']);
    expect(explain({ name: 7 })).toEqual(['“Title” does not have a valid value.']);
  });

  it('leaves out fields that the form does not have', () => {
    expect(explain({ message: '' })).toEqual([]);
  });
});
