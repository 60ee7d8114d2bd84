import type { DoneFrame } from '@sibyl/client';
import { describe, expect, it, vi } from 'vitest';
import { parseAnswer, printQuestion, ReplyPrinter } from './reply-printer.js';
import type { Output } from './terminal.js';

/** Prints a turn that waits for these answers. */
function printPause(pending: NonNullable<DoneFrame['pending']>, approvalId?: string) {
  let printed = '';
  const output = { write: (text: string) => (printed += text), dim: (text: string) => text };
  const printer = new ReplyPrinter(output as unknown as Output, 'http://oracle');
  const request = { approvalId, toolName: 'pay' } as never;
  if (approvalId) printer.print({ event: 'approval_request', data: request });
  const data: DoneFrame = { runId: 'r', status: 'interrupted', interrupted: true, pending };
  printer.print({ event: 'done', data });
  return { printed, isAsked: printer.isAsked };
}

it('ReplyPrinter finds that a tool asks a question, unless it asks for approval or another program', () => {
  expect(printPause([{ id: 'q', kind: 'confirmation' }]).isAsked).toBe(true);
  const approval = printPause([{ id: 'a', kind: 'confirmation' }], 'a');
  expect(approval.printed).toContain(
    'pay waits for you: sibyl approvals approve a http://oracle, or deny',
  );
  expect(approval.isAsked).toBe(false);
  expect(printPause([{ id: 'c', kind: 'tool_call' }])).toEqual({ printed: '', isAsked: false });
});

const object = (properties: object, required = Object.keys(properties)) => ({
  type: 'object',
  properties,
  required,
});

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
    ['one text or null', object({ a: { type: ['string', 'null'] } }), '<a>', 'x', { a: 'x' }],
    ['anything', {}, '/answer <JSON>', '[1]', [1]],
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
    const text = object({ city: { type: 'string' } });
    expect(() => parseAnswer('', text)).toThrow('Write /answer <city>');
  });

  it('without a text shows the name or the description of what it asks', () => {
    const print = (schema: object) => {
      const write = vi.fn();
      printQuestion({ schema } as never, { write, dim: String } as never);
      return write.mock.calls[0];
    };
    expect(print(object({ isInsured: { type: 'boolean' } }))).toEqual([
      '? A tool asks you a question: isInsured\n',
    ]);
    expect(print({ type: 'boolean', description: 'Are you sure?' })).toEqual([
      '? A tool asks you a question: Are you sure?\n',
    ]);
  });
});
