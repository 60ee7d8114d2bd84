import type { Middleware, ModelMessage } from '@sibyl/plugin-kit';
import { type LoadedPlugin, ModelResponse, PluginManifest } from '@sibyl/plugin-kit/host';
import { OracleError } from '@sibyl/protocol';
import { pino } from 'pino';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { tool } from '../../../test/support/agent/agent-requests.js';
import { ScriptedModel } from '../../../test/support/agent/scripted-model.js';
import { testPlugin } from '../../../test/support/plugin.js';
import type { AgentCall, AgentTool } from '../../agent/agent.js';
import { ToolInterrupt } from '../../agent/steps.js';
import type { ModelCall } from '../../models/model.js';
import { Hooks } from './hooks.js';
import { callThrough, MiddlewareChain } from './middlewares.js';
import { TurnReach } from './tool-policy.js';
import { TurnContexts } from './turn-context.js';

afterEach(() => {
  vi.useRealTimers();
});

const TIMEOUT_MS = 1000;

function loadPlugin(name: string, middlewares: readonly Middleware[]): LoadedPlugin {
  const plugin = testPlugin(name, {});
  return {
    ...{ plugin, name, middlewares, tools: [], subAgents: [], config: {}, services: undefined },
    manifest: PluginManifest.parse(plugin.manifest),
    ...{ shared: {}, gate: undefined, nestModules: [], openRoutes: [], routes: [] },
  };
}

/** The middlewares of some plugins in one turn; the context of a plugin contains its name. */
function createChain(byPlugin: Readonly<Record<string, readonly Middleware[]>>) {
  const turn = new AbortController();
  const log: Record<string, unknown>[] = [];
  const logger = pino({ base: null }, { write: (line) => void log.push(JSON.parse(line)) });
  const plugins = Object.entries(byPlugin).map(([name, each]) => loadPlugin(name, each));
  const contexts: TurnContexts = Object.assign(Object.create(TurnContexts.prototype), {
    of: ({ name }: LoadedPlugin) => ({ config: { plugin: name }, signal: turn.signal }),
    concerned: new Set(plugins),
  });
  const hooks = new Hooks(logger, TIMEOUT_MS);
  const chain = new MiddlewareChain({
    ...{ contexts, hooks, signal: turn.signal },
    reach: new TurnReach({}),
  });
  return { chain, turn, log };
}

const model = new ScriptedModel();
const question = { role: 'user', content: 'Hello' } as const;
const look = { name: 'look', description: 'Looks', inputSchema: { type: 'object' } };
const call: ModelCall = {
  ...{ system: 'You are Sibyl.', messages: [question], tools: [look], reasoning: 'low' },
  signal: new AbortController().signal,
};
const use = { model: 'scripted/model', input: 1, output: 1, cached: 0 };
const answer = new ModelResponse({ text: 'Hi', toolCalls: [], use });
const never = () => new Promise<never>(() => undefined);

type WrapModel = NonNullable<Middleware['wrapModel']>;
type WrapTool = NonNullable<Middleware['wrapTool']>;

/** Begins a model call through one middleware of the plugin `shop`. */
function begin(wrapModel: WrapModel, onFailure: 'fail' | 'skip' = 'fail') {
  const { chain, turn, log } = createChain({ shop: [{ name: 'guard', onFailure, wrapModel }] });
  const begun = chain.aroundModel({ agent: 'clerk', model })?.begin(call);
  if (!begun) throw new Error('no hooks');
  return { begun, turn, log };
}

describe('MiddlewareChain.aroundModel', () => {
  it('does nothing if no middleware wraps model calls', () => {
    const { chain } = createChain({ a: [{ name: 'x', wrapTool: (each, next) => next(each) }] });
    expect(chain.aroundModel({ agent: 'main', model })).toBeUndefined();
  });

  it('passes a call through all of them, the first outermost, and the answer back', async () => {
    const seen: unknown[] = [];
    const watch = (name: string): Middleware => ({
      name,
      wrapModel: async (request, next, { config, signal }) => {
        seen.push([name, config, request.system, signal.aborted]);
        const response = await next({ ...request, system: `${request.system} ${name}` });
        seen.push([name, response]);
        return response;
      },
    });
    const { chain } = createChain({ a: [watch('a1'), { name: 'none' }], b: [watch('b1')] });
    const begun = await chain.aroundModel({ agent: 'clerk', model })?.begin(call);
    expect(begun?.call).toEqual({ ...call, system: 'You are Sibyl. a1 b1' });
    expect(seen).toEqual([
      ['a1', { plugin: 'a' }, 'You are Sibyl.', false],
      ['b1', { plugin: 'b' }, 'You are Sibyl. a1', false],
    ]);
    await begun?.finish(answer);
    expect(seen.slice(2)).toEqual([
      ['b1', answer],
      ['a1', answer],
    ]);
  });

  it('shows a middleware the agent, the model and what the model will see', async () => {
    let seen: unknown;
    const { begun } = begin((request, next) => {
      seen = request;
      return next(request);
    });
    expect((await begun).call).toBe(call);
    const { system, messages, tools } = call;
    const shown = { id: 'scripted/model', vision: false };
    expect(seen).toEqual({ agent: 'clerk', model: shown, system, messages, tools });
  });

  it('lets a middleware see that the model failed', async () => {
    const caught: unknown[] = [];
    const { begun } = begin((request, next) =>
      next(request).catch((error: unknown) => {
        caught.push(error);
        throw error;
      }),
    );
    const error = new Error('model away');
    (await begun).fail(error);
    await expect.poll(() => caught).toEqual([error]);
  });

  it.each([
    ['before the call', (wrap: ReturnType<typeof begin>) => wrap.begun],
    ['after it', async (wrap: ReturnType<typeof begin>) => (await wrap.begun).finish(answer)],
  ])('does not wait for a middleware %s when the turn is aborted', async (when, wait) => {
    const entered = Promise.withResolvers<void>();
    const wrapping = begin(async (request, next) => {
      if (when === 'after it') await next(request);
      entered.resolve();
      return never();
    });
    const waiting = wait(wrapping);
    await entered.promise;
    wrapping.turn.abort(new Error('aborted'));
    await expect(waiting).rejects.toThrow('aborted');
  });

  it('makes the turn wait until the middlewares have seen the answer', async () => {
    const mayEnd = Promise.withResolvers<void>();
    const { begun } = begin(async (request, next) => {
      const response = await next(request);
      await mayEnd.promise;
      return response;
    });
    let isOver = false;
    const finished = (await begun).finish(answer).then(() => (isOver = true));
    await new Promise((resolve) => setImmediate(resolve));
    expect(isOver).toBe(false);
    mayEnd.resolve();
    await finished;
  });
});

const failed = {
  code: 'plugin_failed',
  message: 'This message was not answered because the plugin shop failed.',
};

describe('a middleware around a model call that fails', () => {
  it.each<[string, WrapModel, string]>([
    ['throws', () => Promise.reject(new Error('broken')), 'broken'],
    ['does not call next', async () => answer, 'it did not call next'],
  ])('because it %s fails the call', async (_, wrap, reason) => {
    const { begun, log } = begin(wrap);
    await expect(begun).rejects.toMatchObject(failed);
    const hook = 'wrapModel of guard';
    expect(log).toMatchObject([{ level: 50, plugin: 'shop', hook, err: { message: reason } }]);
  });

  it.each<[string, WrapModel]>([
    ['throws', () => Promise.reject(new Error('broken'))],
    ['does not call next', async () => answer],
  ])('because it %s is skipped, if it may be', async (_, wrap) => {
    const { begun, log } = begin(wrap, 'skip');
    const { call: made, finish } = await begun;
    expect(made).toBe(call);
    await finish(answer);
    expect(log).toMatchObject([{ level: 40, plugin: 'shop', hook: 'wrapModel of guard' }]);
  });

  it('because it calls next twice fails the call, which is made once', async () => {
    const { begun, log } = begin(async (request, next) => {
      await next(request);
      return next(request);
    });
    await expect((await begun).finish(answer)).rejects.toMatchObject(failed);
    expect(log).toMatchObject([{ err: { message: 'it called next twice' } }]);
  });

  it('because it hangs fails the call after its time limit', async () => {
    vi.useFakeTimers();
    const { begun, log } = begin(never);
    const thrown = expect(begun).rejects.toMatchObject(failed);
    await vi.advanceTimersByTimeAsync(TIMEOUT_MS);
    await thrown;
    expect(log).toMatchObject([{ err: { message: 'did not answer within 1 s' } }]);
  });

  it('with an OracleError passes that on', async () => {
    const error = new OracleError('forbidden');
    const { begun, log } = begin(() => Promise.reject(error), 'skip');
    await expect(begun).rejects.toBe(error);
    expect(log).toEqual([]);
  });
});

describe('a change of a model call', () => {
  /** The call that is made if a middleware passes this on. */
  const change = async (patch: unknown) => {
    const { begun, log } = begin((_, next) => next(patch as Parameters<typeof next>[0]));
    const made = await begun.then(
      (wrapped) => ({ made: wrapped.call }),
      ({ code }: OracleError) => ({ made: undefined, code }),
    );
    const reason = (log[0]?.err as { message?: string } | undefined)?.message;
    return { ...made, reason };
  };
  const calls = [{ id: 'c1', name: 'look', input: '{}' }];
  const result = { id: 'c1', name: 'look', output: '"ok"', isError: false };
  const image = { type: 'file', mediaType: 'image/png', data: new Uint8Array([1]) } as const;
  const text = { type: 'text', text: 'Look' } as const;
  const asking = { role: 'assistant', text: '', toolCalls: calls } as const;

  it.each<[string, readonly ModelMessage[]]>([
    ['texts and files', [{ role: 'user', content: [text, image], note: 'Sent today' }]],
    ['results', [question, asking, { role: 'tool', results: [result] }]],
    [
      'answers',
      [
        question,
        { role: 'assistant', text: 'Hi', reasoning: 'Hm', providerData: { id: 1 } },
        { role: 'user', content: 'And?' },
      ],
    ],
  ])('may replace messages, with %s', async (_, messages) => {
    expect(await change({ messages })).toMatchObject({ made: { ...call, messages } });
  });

  it.each<[string, object]>([
    ['another role', { role: 'robot', content: 'Hi' }],
    ['content that is not a text', { role: 'user', content: 7 }],
    ['an unknown part', { role: 'user', content: [{ type: 'video', text: 'x' }] }],
    ['a part without text', { role: 'user', content: [{ type: 'text' }] }],
    ['a file that is not bytes', { role: 'user', content: [{ ...image, data: 'AQ==' }] }],
    ['a file without type', { role: 'user', content: [{ ...image, mediaType: 7 }] }],
    ['a note that is not a text', { ...question, note: 7 }],
    ['an answer without text', { role: 'assistant' }],
    ['reasoning that is not a text', { role: 'assistant', text: 'Hi', reasoning: 7 }],
    ['a call without id', { ...asking, toolCalls: [{ name: 'look', input: '{}' }] }],
    ['a call without name', { ...asking, toolCalls: [{ id: 'c1', input: '{}' }] }],
    ['a call whose input is not a text', { ...asking, toolCalls: [{ ...calls[0], input: {} }] }],
    [
      'data of the provider that is not an object',
      { role: 'assistant', text: '', providerData: 'x' },
    ],
    ['no results', { role: 'tool' }],
    ['a result without id', { role: 'tool', results: [{ ...result, id: undefined }] }],
    ['a result without name', { role: 'tool', results: [{ ...result, name: undefined }] }],
    ['a result without output', { role: 'tool', results: [{ ...result, output: undefined }] }],
    ['a result that may be an error', { role: 'tool', results: [{ ...result, isError: 1 }] }],
  ])('cannot add a message with %s', async (_, message) => {
    const { made, reason } = await change({ ...call, messages: [question, message] });
    expect(made).toBeUndefined();
    expect(reason).toMatch(/^its change of a model call is unusable: .*messages\[1\]$/s);
  });

  it.each<[string, unknown]>([
    ['a system prompt that is not a text', { system: 7 }],
    ['messages that are no array', { messages: question }],
    ['tools that are no array', { tools: look }],
    ['a tool without name', { tools: [{ ...look, name: undefined }] }],
    ['a tool without description', { tools: [{ ...look, description: undefined }] }],
    ['a tool without schema', { tools: [{ ...look, inputSchema: undefined }] }],
    ['a text', 'rubbish'],
    ['null', null],
  ])('cannot be %s', async (_, patch) => {
    const { made, reason } = await change(patch);
    expect(made).toBeUndefined();
    expect(reason).toMatch(/^its change of a model call is unusable: /);
  });

  it('cannot leave no message', async () => {
    const { made, reason } = await change({ messages: [] });
    expect([made, reason]).toEqual([undefined, 'its change of a model call leaves no message']);
  });

  it('keeps what it does not name', async () => {
    expect((await change({ system: 'Other' })).made).toEqual({ ...call, system: 'Other' });
    const tools = [{ ...look, description: 'Looks closely' }];
    expect((await change({ tools })).made).toEqual({ ...call, tools });
    expect((await change({})).made).toEqual(call);
    expect((await change(undefined)).made).toBe(call);
  });

  it('is made valid for every provider', async () => {
    const { made } = await change({ messages: [question, asking] });
    expect(made?.messages.at(-1)).toMatchObject({ role: 'tool', results: [{ id: 'c1' }] });
  });
});

/** A call of a tool as the agent makes it. */
function createCall(changes: Partial<AgentCall> = {}): AgentCall {
  return {
    ...{ id: 'c1', signal: new AbortController().signal, nested: {}, decision: undefined },
    interrupt: () => 'yes',
    pause: (paused) => {
      throw paused;
    },
    throwIfPaused: () => {},
    ...changes,
  };
}

describe('MiddlewareChain.aroundTool', () => {
  const run = vi.fn<AgentTool['run']>();
  const buy = tool('buy', run);
  const wrapped = (wrapTool: WrapTool, onFailure: 'fail' | 'skip' = 'fail') => {
    run.mockReset().mockImplementation(async (input) => ({ bought: input.what }));
    const { chain, log } = createChain({ shop: [{ name: 'guard', onFailure, wrapTool }] });
    return { ...chain.aroundTool('clerk', buy), log };
  };
  const tea = { what: 'tea' };

  it('returns the tool itself if no middleware wraps tools', () => {
    const { chain } = createChain({ a: [{ name: 'x', wrapModel: async () => answer }] });
    expect(chain.aroundTool('main', buy)).toBe(buy);
  });

  it('passes a call through all of them, the first outermost', async () => {
    const add = (name: string): Middleware => ({
      name,
      wrapTool: async (each, next) => [
        name,
        await next({ ...each, input: { ...each.input, [name]: 1 } }),
      ],
    });
    run.mockReset().mockImplementation(async (input) => Object.keys(input));
    const { chain } = createChain({ a: [add('a1'), add('a2')], b: [add('b1')] });
    const around = chain.aroundTool('main', buy);
    const result = await around.run(tea, createCall());
    expect(result).toEqual(['a1', ['a2', ['b1', ['what', 'a1', 'a2', 'b1']]]]);
    expect({ ...around, run }).toEqual(buy);
  });

  it('shows a middleware the call and its context', async () => {
    let seen: unknown;
    const { signal } = new AbortController();
    const call = createCall({ id: 'c7', signal });
    const around = wrapped(async (each, next, { config, toolCallId, signal: given, interrupt }) => {
      const answered = await interrupt({ kind: 'confirmation', schema: {} });
      seen = { each, config, toolCallId, isSame: given === signal, answered };
      return next(each);
    });
    expect(await around.run(tea, call)).toEqual({ bought: 'tea' });
    const each = { agent: 'clerk', id: 'c7', name: 'buy', input: tea };
    const context = { config: { plugin: 'shop' }, toolCallId: 'c7', isSame: true };
    expect(seen).toEqual({ each, ...context, answered: 'yes' });
    expect(run).toHaveBeenCalledExactlyOnceWith(tea, call);
  });

  it.each<[string, unknown]>([
    ['no call', undefined],
    ['a text', { input: 'tea' }],
    ['null', { input: null }],
    ['a list', { input: [tea] }],
  ])('does not run the tool with %s as its input', async (_, changed) => {
    const around = wrapped((_each, next) => next(changed as Parameters<typeof next>[0]));
    await expect(around.run(tea, createCall())).rejects.toMatchObject({
      code: 'plugin_failed',
      message: 'The tool buy did not run: it was blocked because the plugin shop failed.',
    });
    expect(run).not.toHaveBeenCalled();
    expect(around.log).toMatchObject([{ plugin: 'shop', hook: 'wrapTool of guard' }]);
  });

  it('says that the tool may have run if the middleware failed afterwards', async () => {
    const around = wrapped(async (each, next) => {
      await next(each);
      throw new Error('broken');
    });
    const message =
      'The tool buy may have run, but its result was blocked because the plugin shop failed.';
    await expect(around.run(tea, createCall())).rejects.toMatchObject({ message });
  });

  it('returns the result of the tool if the middleware failed afterwards and may be skipped', async () => {
    const around = wrapped(async (each, next) => {
      await next(each);
      throw new Error('broken');
    }, 'skip');
    expect(await around.run(tea, createCall())).toEqual({ bought: 'tea' });
    expect(run).toHaveBeenCalledOnce();
    expect(around.log).toMatchObject([{ level: 40 }]);
  });

  it('does not run the tool of a call that waits for an answer', async () => {
    const pause = new ToolInterrupt({ kind: 'confirmation', schema: {} });
    const throwIfPaused = () => {
      throw pause;
    };
    const around = wrapped((each, next) => next(each).catch(() => 'swallowed'));
    await expect(around.run(tea, createCall({ throwIfPaused }))).rejects.toBe(pause);
    expect(run).not.toHaveBeenCalled();
  });
});

describe('the time limit of a middleware', () => {
  const wrapping = {
    ...{ input: 1, timeoutMs: TIMEOUT_MS, signal: new AbortController().signal },
    onFailure: { fail: (error: Error) => error },
  };

  it('counts its own time only, before and after the call', async () => {
    vi.useFakeTimers();
    const made = Promise.withResolvers<string>();
    const ended = callThrough({
      ...wrapping,
      next: () => made.promise,
      wrap: async (next) => {
        await next(1);
        return never();
      },
    });
    const thrown = expect(ended).rejects.toThrow('did not answer within 1 s');
    await vi.advanceTimersByTimeAsync(10 * TIMEOUT_MS);
    made.resolve('result');
    await vi.advanceTimersByTimeAsync(TIMEOUT_MS - 1);
    expect(vi.getTimerCount()).toBe(1);
    await vi.advanceTimersByTimeAsync(1);
    await thrown;
    expect(vi.getTimerCount()).toBe(0);
  });

  it('does not count while one of several calls is in progress', async () => {
    vi.useFakeTimers();
    const slow = Promise.withResolvers<string>();
    const results = [slow.promise, Promise.resolve('fast')];
    const ended = callThrough({
      ...wrapping,
      next: async () => results.shift() ?? 'none',
      wrap: async (next) => (await Promise.all([next(1), next(2)])).join(),
    });
    await vi.advanceTimersByTimeAsync(10 * TIMEOUT_MS);
    slow.resolve('slow');
    expect(await ended).toBe('slow,fast');
    expect(vi.getTimerCount()).toBe(0);
  });
});

describe('a middleware of an aborted turn', () => {
  it('does not make the turn wait for a call in progress', async () => {
    const turn = new AbortController();
    const reason = new Error('aborted');
    const fail = vi.fn((error: Error) => error);
    const ended = callThrough({
      ...{ input: 1, timeoutMs: TIMEOUT_MS, signal: turn.signal, onFailure: { fail }, next: never },
      wrap: async (next) => {
        void next(1);
        turn.abort(reason);
        throw new Error('broken by the end');
      },
    });
    await expect(ended).rejects.toBe(reason);
    expect(fail).not.toHaveBeenCalled();
  });
});
