import { defineTool, type OraclePlugin, type TurnContext } from '@sibyl/plugin-kit';
import { beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { ask, call, filterFrames, say } from './support/ask.js';
import { useControlledHost } from './support/controlled-host.js';
import { testPlugin } from './support/plugin.js';

type RequestTools = ReturnType<NonNullable<OraclePlugin['getRequestTools']>>;
let fromFirst: (turn: TurnContext) => unknown = () => [];
let fromSecond: (turn: TurnContext) => unknown = () => [];
beforeEach(() => {
  fromFirst = () => [];
  fromSecond = () => [];
});

const tool = (name: string, result: unknown = name) =>
  defineTool({ name, description: `Gives ${name}`, inputSchema: z.object({}), run: () => result });

const test = useControlledHost({
  bundled: [],
  env: { PLUGIN_TIMEOUT_SECONDS: '1' },
  plugins: [
    testPlugin('second', {
      dependsOn: ['first'],
      getTools: () => [tool('constant', 'of second')],
      getRequestTools: (turn) => fromSecond(turn) as RequestTools,
    }),
    testPlugin('first', { getRequestTools: (turn) => fromFirst(turn) as RequestTools }),
  ],
});

it('getRequestTools adds tools to one turn only', async () => {
  fromFirst = ({ user }) => [tool('fresh', user.did)];
  const { turns } = await ask(test, [call(['fresh']), say()]);
  expect(turns[0]?.tools).toEqual(['constant', 'fresh']);
  expect(turns[1]?.results).toEqual([JSON.stringify(test.alice.did)]);
  fromFirst = () => [];
  const next = await ask(test, [say()]);
  expect(next.turns[0]?.tools).toEqual(['constant']);
});

it('getRequestTools of all plugins run in parallel', async () => {
  const both = [Promise.withResolvers<void>(), Promise.withResolvers<void>()] as const;
  fromFirst = async () => {
    both[0].resolve();
    await both[1].promise;
    return [tool('left')];
  };
  fromSecond = async () => {
    both[1].resolve();
    await both[0].promise;
    return [tool('right')];
  };
  const { turns } = await ask(test, [say()]);
  expect(turns[0]?.tools).toEqual(['constant', 'left', 'right']);
});

describe('a plugin whose getRequestTools', () => {
  const never = new Promise(() => undefined);
  it.each<[string, () => unknown]>([
    [
      'throws',
      () => {
        throw new Error('broken');
      },
    ],
    ['rejects', () => Promise.reject(new Error('broken'))],
    ['hangs', () => never],
    ['gives no list', () => ({ length: 3 })],
    ['gives null', () => null],
  ])('%s loses only its own tools, with a warning', async (_, hook) => {
    fromFirst = hook;
    fromSecond = () => [tool('sound')];
    const exchange = await ask(test, [call(['sound']), say('fine')]);
    expect(exchange.text).toBe('fine');
    expect(exchange.turns[0]?.tools).toEqual(['constant', 'sound']);
    expect(exchange.turns[0]?.notes.at(-1)).toMatch(/^\[Not available now: first: /m);
    expect(filterFrames(exchange, 'warning')).toMatchObject([
      { code: 'plugin_failed', message: expect.stringContaining('first') },
    ]);
    expect(test.host.log).toContainEqual(
      expect.objectContaining({ plugin: 'first', hook: 'getRequestTools', level: 40 }),
    );
  });

  it('returns invalid tools loses only those', async () => {
    const nameless = { ...tool('x'), name: undefined };
    fromFirst = () => [null, 7, nameless, { ...tool('y'), run: 'no' }, tool('sound')];
    const exchange = await ask(test, [call(['sound']), say()]);
    expect(exchange.turns[0]?.tools).toEqual(['constant', 'sound']);
    expect(filterFrames(exchange, 'warning').map(({ message }) => message)).toEqual([
      'A tool cannot be used: not a tool',
      'A tool cannot be used: not a tool',
      'A tool cannot be used: its name must consist of letters, digits, _ and -, at most 64',
      'The tool y cannot be used: it has no run function',
    ]);
  });

  it('returns a tool that no provider accepts loses only that tool', async () => {
    const odd = { ...tool('odd'), inputSchema: { type: 'array' } };
    fromFirst = () => [odd, tool('no spaces allowed'), tool('sound')];
    const exchange = await ask(test, [say()]);
    expect(exchange.turns[0]?.tools).toEqual(['constant', 'sound']);
    expect(filterFrames(exchange, 'warning').map(({ code }) => code)).toEqual([
      'tool_left_out',
      'tool_left_out',
    ]);
  });
});

it('getRequestTools uses the first of two tools with the same name, with a warning', async () => {
  fromFirst = () => [tool('constant', 'of first'), tool('twin', 'of first')];
  fromSecond = () => [tool('twin', 'of second')];
  const exchange = await ask(test, [call(['constant'], ['twin']), say()]);
  expect(exchange.turns[0]?.tools).toEqual(['constant', 'twin']);
  expect(exchange.turns[1]?.results).toEqual(['"of second"', '"of first"']);
  expect(filterFrames(exchange, 'warning').map(({ message }) => message)).toEqual([
    'The tool constant of first is left out: second has a tool of that name.',
    'The tool twin of second is left out: first has a tool of that name.',
  ]);
});

it('getRequestTools cannot replace tools of the host', async () => {
  fromFirst = () => [tool('load_capability')];
  const exchange = await ask(test, [say()]);
  expect(exchange.turns[0]?.tools).toEqual(['constant']);
  expect(filterFrames(exchange, 'warning')).toHaveLength(1);
});

it('POST /messages/abort ends a turn during getRequestTools', async () => {
  const asked = Promise.withResolvers<AbortSignal>();
  fromFirst = ({ signal }) => {
    asked.resolve(signal);
    return new Promise(() => undefined);
  };
  const exchange = ask(test, []);
  const signal = await asked.promise;
  const { body } = await test.alice.request('GET', '/sessions');
  const { sessionId } = body.sessions[0];
  await test.alice.request('POST', '/messages/abort', { body: { sessionId } });
  expect((await exchange).frames.at(-1)?.data).toMatchObject({ status: 'aborted' });
  expect(signal.aborted).toBe(true);
});
