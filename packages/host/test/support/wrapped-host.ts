import { defineTool, type Middleware } from '@sibyl/plugin-kit';
import { beforeEach } from 'vitest';
import { z } from 'zod';
import { useControlledHost } from './controlled-host.js';
import { testPlugin } from './plugin.js';

export type Hooks = { -readonly [K in keyof Omit<Middleware, 'name'>]: Middleware[K] };

/** A host with a tool and two middlewares around it, whose hooks each test sets. */
export function useWrappedHost() {
  const outer: Hooks = {};
  const inner: Hooks = {};
  /** The texts that the tool was called with. */
  const ran: unknown[] = [];
  beforeEach(() => {
    for (const hooks of [outer, inner])
      for (const name of Object.keys(hooks)) delete hooks[name as keyof Hooks];
    ran.splice(0);
  });
  const test = useControlledHost({
    bundled: [],
    env: { PLUGIN_TIMEOUT_SECONDS: '1' },
    plugins: [
      testPlugin('inner', {
        dependsOn: ['outer'],
        configSchema: z.object({ INNER_KEY: z.string().default('inner-secret') }),
        getMiddlewares: () => [callHooks('in', inner)],
        getTools: () => [echoTool(ran)],
      }),
      testPlugin('outer', {
        configSchema: z.object({ OUTER_KEY: z.string().default('outer-secret') }),
        getMiddlewares: () => [callHooks('out', outer)],
      }),
    ],
  });
  return { test, outer, inner, ran };
}

const callHooks = (name: string, hooks: Hooks): Middleware => ({
  name,
  get onFailure() {
    return hooks.onFailure ?? 'fail';
  },
  beforeModel: async (request, turn) => hooks.beforeModel?.(request, turn),
  afterModel: async (response, turn) => hooks.afterModel?.(response, turn),
  wrapToolCall: async (request, next, turn) =>
    hooks.wrapToolCall ? hooks.wrapToolCall(request, next, turn) : next(request.input),
});

const echoTool = (ran: unknown[]) =>
  defineTool({
    name: 'echo',
    description: 'Returns its input',
    inputSchema: z.object({ text: z.string() }),
    run: ({ text }) => {
      ran.push(text);
      if (text === 'bad') throw new Error('the tool failed');
      return { text };
    },
  });
