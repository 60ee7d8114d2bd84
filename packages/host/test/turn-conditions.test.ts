import { defineTool, type Middleware, sharedKey } from '@sibyl/plugin-kit';
import { beforeEach, expect, it } from 'vitest';
import { z } from 'zod';
import { ask, call, say } from './support/ask.js';
import { useControlledHost } from './support/controlled-host.js';
import { testPlugin } from './support/plugin.js';

const called: string[] = [];
beforeEach(() => void called.splice(0));
const note = <T>(hook: string, result: T): T => {
  called.push(hook);
  return result;
};

const CONSTANT = sharedKey<number>('constant');
const COMPUTED = sharedKey<number>('computed');
const NO_INPUT = z.object({});

const middleware: Middleware = {
  name: 'every-call',
  wrapModel: (request, next) => note('wrapModel', next(request)),
  wrapTool: (made, next) => note('wrapTool', next(made)),
};

/** Has something to do in turns whose message declares actions, and in those after it. */
const actions = testPlugin('actions', {
  when: { request: ['agActions'], sessionState: ['declared'] },
  getSharedState: () => ({
    ...CONSTANT.share(1),
    ...COMPUTED.sharePerTurn(() => note('sharePerTurn', 2)),
  }),
  getTools: () => [
    defineTool({
      name: 'look',
      description: 'Looks at what is shared',
      inputSchema: NO_INPUT,
      run: (_, { shared }) => [shared.get(CONSTANT), shared.get(COMPUTED) ?? null],
    }),
  ],
  getRequestTools: async ({ sessionState }) => {
    await sessionState.set('declared', true);
    const run = () => 'fresh';
    const fresh = defineTool({ name: 'fresh', description: 'F', inputSchema: NO_INPUT, run });
    return note('getRequestTools', [fresh]);
  },
  getRequestSubAgents: () => note('getRequestSubAgents', []),
  getMiddlewares: () => [middleware],
});

const test = useControlledHost({ bundled: [], plugins: [actions] });
const agActions = [{ name: 'draw', description: 'Draws', schema: { type: 'object' } }];
const ALL = ['sharePerTurn', 'getRequestTools', 'getRequestSubAgents'];
const CALLS = ['wrapModel', 'wrapTool', 'wrapModel'];

it('a plugin whose condition a turn does not meet contributes what it does to every turn, and costs nothing else', async () => {
  const { turns } = await ask(test, [call(['look']), say()]);
  expect(turns[0]?.tools).toEqual(['look']);
  expect(turns[1]?.results).toEqual(['[1,null]']);
  expect(called).toEqual([]);
});

it('when a turn meets the condition, all hooks are called; so they are after it, by what they have stored', async () => {
  const first = await ask(test, [call(['look']), say()], { agActions });
  expect(first.turns[0]?.tools).toEqual(['look', 'fresh']);
  expect(first.turns[1]?.results).toEqual(['[1,2]']);
  expect(called.toSorted()).toEqual([...ALL, ...CALLS].toSorted());
  called.splice(0);
  const next = await ask(test, [say()], { sessionId: first.sessionId });
  expect(next.turns[0]?.tools).toEqual(['look', 'fresh']);
  expect(called.toSorted()).toEqual([...ALL, 'wrapModel'].toSorted());
  called.splice(0);
  await ask(test, [say()]);
  expect(called).toEqual([]);
});
