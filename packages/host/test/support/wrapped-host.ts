import {
  defineTool,
  type Middleware,
  type ModelRequest,
  type ModelResponse,
  type ToolCall,
  type TurnContext,
} from '@sibyl/plugin-kit';
import { beforeEach } from 'vitest';
import { z } from 'zod';
import { useControlledHost } from './controlled-host.js';
import { testPlugin } from './plugin.js';

/** What a test does in a middleware: before and after a model call, and around a tool call. */
export interface Hooks {
  onFailure?: 'fail' | 'skip';
  /** Returns what to change in the request. */
  beforeModel?: (request: ModelRequest, turn: TurnContext) => unknown;
  afterModel?: (
    response: Pick<ModelResponse, 'text' | 'toolCalls' | 'use'> & { agent: string },
    turn: TurnContext,
  ) => unknown;
  wrapTool?: (
    call: ToolCall,
    next: (input: ToolCall['input']) => Promise<unknown>,
    turn: TurnContext,
  ) => Promise<unknown>;
}

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
  wrapModel: async (request, next, turn) => {
    const change = await hooks.beforeModel?.(request, turn);
    const isPatch = change === undefined || typeof change === 'object';
    const response = await next(isPatch ? { ...request, ...change } : (change as never));
    await hooks.afterModel?.({ agent: request.agent, ...response }, turn);
    return response;
  },
  wrapTool: async (call, next, turn) =>
    hooks.wrapTool ? hooks.wrapTool(call, (input) => next({ ...call, input }), turn) : next(call),
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
