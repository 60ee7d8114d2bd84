import { describe, expect, it } from 'vitest';
import { ask, filterFrames, say } from './support/ask.js';
import { useControlledHost } from './support/controlled-host.js';
import { listTools, resultsIn } from './support/page-tools.js';
import { joinSession } from './support/session-socket.js';
import { openSession, stream } from './support/stream.js';

const test = useControlledHost();

const declared = (name: string, schema: object = {}) => ({
  name,
  description: 'Declared by a page',
  schema,
});

/** What the host offers of a declaration, and what it says of the rest. */
async function declare(tools: readonly object[], agActions: readonly object[] = []) {
  const exchange = await ask(test, [say('survived')], { tools, agActions });
  expect(exchange.text).toBe('survived');
  const [turn] = exchange.turns;
  return {
    offered: turn ? listTools(turn) : [],
    descriptions: turn?.body.tools.map((tool: Offered) => tool.function.description) ?? [],
    warnings: filterFrames(exchange, 'warning'),
  };
}

interface Offered {
  readonly function: { readonly description: string };
}

describe('POST /messages of a page that declares', () => {
  it.each(['remember', 'recall', 'set_user_preferences', 'list_capabilities', 'load_capability'])(
    'a tool called %s does not get the calls of ours',
    async (name) => {
      const { descriptions, warnings } = await declare([declared(name)], [declared(name)]);
      expect(descriptions).not.toContain('Declared by a page');
      expect(warnings.map(({ code }) => code)).toEqual(['tool_left_out', 'tool_left_out']);
    },
  );

  it.each(['__proto__', 'constructor', 'toString', 'hasOwnProperty'])(
    'a tool called %s gets its calls, and nothing else changes',
    async (name) => {
      const sessionId = await openSession(test.alice);
      const socket = await joinSession(test.alice, sessionId);
      const live = await stream(test.alice, sessionId, { message: 'x', tools: [declared(name)] });
      (await test.model.next()).call({ name, input: JSON.parse('{"__proto__": {"a": 1}}') });
      const { toolCallId, toolName } = await socket.until('browser_tool_call');
      socket.socket.emit('tool_result', { toolCallId, result: 'done' });
      const after = await test.model.next();
      after.answer('ok');
      await live.toEnd();
      expect(toolName).toBe(name);
      expect(resultsIn(after)).toEqual(['done']);
      expect(Object.hasOwn(Object.prototype, 'a')).toBe(false);
    },
  );

  it.each(['with space', 'x\u0000', '../..', '<script>alert(1)</script>', '💥', 'a'.repeat(65)])(
    'a tool called %j gets a warning that it cannot be used',
    async (name) => {
      const { offered, warnings } = await declare([declared(name)]);
      expect(offered).not.toContain(name);
      expect(warnings).toMatchObject([{ code: 'tool_left_out' }]);
    },
  );

  it('as many tools as the limit allows can use all of them', async () => {
    const many = (kind: string) =>
      Array.from({ length: 128 }, (_, i) => ({
        ...declared(`${kind}_${i}`),
        description: 'd'.repeat(3000),
      }));
    const { offered, warnings } = await declare(many('tool'), many('action'));
    expect(warnings).toEqual([]);
    for (const { name } of [...many('tool'), ...many('action')]) expect(offered).toContain(name);
  });
});

const parse = (json: string): object => JSON.parse(json);
const fields = (properties: object) => ({ type: 'object', properties });

describe('a tool schema with', () => {
  it.each<[string, object]>([
    ['a reference to the prototype', { $ref: '#/__proto__' }],
    ['a reference to a constructor', { $ref: '#/constructor/prototype' }],
    ['a reference to another host', { $ref: 'http://169.254.169.254/latest' }],
    ['a reference to a file', { $ref: 'file:///etc/passwd' }],
    ['a broken reference', { $ref: '#/%E0%A4%A' }],
    ['a type that is none', fields({ a: { type: '__proto__' } })],
    ['fields that are a list', { type: 'object', properties: [] }],
    ['another type', { type: ['array', 'object'] }],
  ])('%s is omitted', async (_, schema) => {
    const { offered, warnings } = await declare([declared('odd', schema)]);
    expect(offered).not.toContain('odd');
    expect(warnings).toMatchObject([{ code: 'tool_left_out' }]);
  });

  it.each<[string, object]>([
    ['keys of the prototype', parse('{"properties": {"__proto__": {"type": "string"}}}')],
    ['a prototype', parse('{"__proto__": {"type": "string"}}')],
    ['a field called constructor', fields({ constructor: { type: 'number' } })],
    ['a reference to itself', fields({ a: { $ref: '#' } })],
    ['an expression that never ends', fields({ a: { type: 'string', pattern: '^(a+)+$' } })],
    ['a format that is none', fields({ a: { type: 'string', format: 'constructor' } })],
    ['limits out of this world', fields({ a: { minimum: 1e308, multipleOf: 0, maxLength: -1 } })],
  ])('%s is used as far as possible', async (_, schema) => {
    const { offered, warnings } = await declare([declared('odd', schema)]);
    expect(offered).toContain('odd');
    expect(warnings).toEqual([]);
  });

  it('references that multiply is too large, however short it is', async () => {
    const many = Object.fromEntries(Array.from({ length: 30 }, (_, i) => [`f${i}`, {}]));
    const refs = Object.fromEntries(
      Array.from({ length: 30 }, (_, i) => [`r${i}`, { $ref: '#/$defs/many' }]),
    );
    const schema = { ...fields(refs), $defs: { many: fields(many) } };
    const { warnings } = await declare([declared('odd', schema)]);
    expect(warnings).toMatchObject([{ message: expect.stringContaining('too large') }]);
  });
});
