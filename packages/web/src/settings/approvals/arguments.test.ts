import { describe, expect, it } from 'vitest';
import { applyEdits, formatArgument, humanize, listFields } from './arguments.js';

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

  it('throws on a value that is not JSON, and leaves out an optional one that is empty', () => {
    expect(() => edit({ tags: '[' })).toThrow(SyntaxError);
    expect(() => edit({ amount: '' })).toThrow(SyntaxError);
    const { speed: _, ...rest } = args;
    expect(edit({ speed: '' })).toEqual(rest);
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
