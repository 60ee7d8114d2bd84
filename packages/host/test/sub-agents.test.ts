import {
  defineSubAgent,
  defineTool,
  type Middleware,
  type OraclePlugin,
  type SubAgent,
} from '@sibyl/plugin-kit';
import { beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { ask, call, filterFrames, say } from './support/ask.js';
import { useControlledHost } from './support/controlled-host.js';
import { testPlugin } from './support/plugin.js';
import { openSession, stream } from './support/stream.js';

let contributed: () => unknown = () => [];
const reporters: string[] = [];
beforeEach(() => {
  contributed = () => [];
  reporters.length = 0;
});

const measure = defineTool({
  name: 'measure',
  description: 'Measures the rain',
  inputSchema: z.object({ where: z.string() }),
  run: ({ where }, { user, toolCallId }) => ({ where, mm: 12, for: user.did, toolCallId }),
});

const weather = defineSubAgent({
  name: 'weather',
  description: 'Knows the weather; call it for anything about rain',
  prompt: async ({ user }) => `You know the weather for ${user.did}.`,
  tools: [measure],
});
const failing = defineSubAgent({
  name: 'failing',
  description: 'Cannot be set up',
  prompt: () => {
    throw new Error('no prompt');
  },
});

const watch: Middleware = {
  name: 'watch',
  wrapModel: async (request, next) => {
    const { agent, tools } = request;
    reporters.push(`${agent} asks with ${tools.map(({ name }) => name).join()}`);
    const response = await next(request);
    reporters.push(`${agent} used ${response.use.input}`);
    return response;
  },
  wrapTool: async (call, next) => {
    reporters.push(`${call.agent} runs ${call.name}`);
    return next(call);
  },
};

const test = useControlledHost({
  bundled: [],
  env: { TURN_MAX_STEPS: '4', PLUGIN_TIMEOUT_SECONDS: '1' },
  plugins: [
    testPlugin('sky', {
      getSubAgents: () => [weather, failing],
      getRequestSubAgents: () =>
        contributed() as ReturnType<NonNullable<OraclePlugin['getRequestSubAgents']>>,
      getMiddlewares: () => [watch],
    }),
  ],
});

const callWeather = call(['call_weather_agent', { task: 'Will it rain in Kisumu?' }]);

it('works on a task with its own prompt and tools, and gives back what it says last', async () => {
  const exchange = await ask(test, [
    callWeather,
    (turn) => {
      turn.say('Let me measure.');
      turn.call({ name: 'measure', input: { where: 'Kisumu' } });
    },
    say('Yes, 12 mm.'),
    say('It will rain.'),
  ]);
  const [main, first, second, last] = exchange.turns;
  expect(main?.tools).toEqual(['call_weather_agent', 'call_failing_agent']);
  expect(first?.tools).toEqual(['measure']);
  expect(first?.system).toMatch(
    new RegExp(`^You know the weather for ${test.alice.did}.\n\n## Operating principles\n`),
  );
  expect(first?.body.messages.slice(1)).toEqual([
    { role: 'user', content: 'Will it rain in Kisumu?' },
  ]);
  expect(JSON.parse(second?.results[0] ?? '')).toMatchObject({ mm: 12, for: test.alice.did });
  expect(last?.results).toEqual(['"Yes, 12 mm."']);
  expect(exchange.text).toBe('It will rain.');
});

it('shows of its work when it begins and ends, and nothing of what it says and does', async () => {
  const exchange = await ask(test, [
    callWeather,
    (turn) => {
      turn.think('secret thoughts');
      turn.say('secret words');
      turn.call({ name: 'measure', input: { where: 'Kisumu' } });
    },
    say('Yes.'),
    say('It will rain.'),
  ]);
  const { sessionId } = exchange;
  expect(filterFrames(exchange, 'router_update')).toEqual([
    { sessionId, requestId: expect.any(String), from: 'main', to: 'weather', step: 'call' },
    { sessionId, requestId: expect.any(String), from: 'weather', to: 'main', step: 'return' },
  ]);
  expect(JSON.stringify(exchange.frames)).not.toContain('secret');
  expect(filterFrames(exchange, 'tool_call').map(({ toolName }) => toolName)).toEqual([
    'call_weather_agent',
    'call_weather_agent',
  ]);
  const { body } = await test.alice.request('GET', `/messages/${sessionId}`);
  expect(JSON.stringify(body)).not.toContain('secret');
});

it('is seen by the middlewares as the main agent is', async () => {
  await ask(test, [
    callWeather,
    call(['measure', { where: 'Kisumu' }]),
    say('Yes.'),
    say('It will rain.'),
  ]);
  expect(reporters).toEqual([
    'main asks with call_weather_agent,call_failing_agent',
    'main used 7',
    'main runs call_weather_agent',
    'weather asks with measure',
    'weather used 7',
    'weather runs measure',
    'weather asks with measure',
    'weather used 7',
    'main asks with call_weather_agent,call_failing_agent',
    'main used 7',
  ]);
});

it('shares the steps of its turn', async () => {
  const exchange = await ask(test, [
    callWeather,
    call(['measure', { where: 'a' }]),
    call(['measure', { where: 'b' }]),
    call(['measure', { where: 'c' }]),
    say('Enough measured.'),
    say('It will rain.'),
  ]);
  expect(exchange.turns.map(({ tools }) => tools.length)).toEqual([2, 1, 1, 1, 0, 0]);
  expect(filterFrames(exchange, 'warning')).toMatchObject([{ code: 'step_limit' }]);
  expect(exchange.text).toBe('It will rain.');
});

it('ends with its turn', async () => {
  const sessionId = await openSession(test.alice);
  const live = await stream(test.alice, sessionId, { message: 'rain?' });
  callWeather(await test.model.next());
  const inner = await test.model.next();
  inner.say('Let me th');
  await live.untilEvent('router_update');
  await test.alice.request('POST', '/messages/abort', { body: { sessionId } });
  await inner.left;
  const frames = await live.toEnd();
  expect(frames.at(-1)?.data).toMatchObject({ status: 'aborted', partialText: '' });
});

describe('one that fails', () => {
  it.each([
    ['to be set up', call(['call_failing_agent', { task: 'Try.' }]), [], 'could not be set up'],
    ['to say anything', callWeather, [say('')], 'ended without an answer'],
    ['to get a task', call(['call_weather_agent', {}]), [], 'task'],
  ])('%s is reported to the main agent', async (_, calling, inner, fault) => {
    const exchange = await ask(test, [calling, ...inner, say('I do not know.')]);
    expect(exchange.turns.at(-1)?.results[0]).toContain(fault);
    expect(exchange.text).toBe('I do not know.');
  });
});

describe('sub-agents of one turn', () => {
  it('can be called in it', async () => {
    const tides: SubAgent = {
      name: 'tides',
      description: 'Knows tides',
      prompt: 'You know tides.',
    };
    contributed = () => [tides];
    const exchange = await ask(test, [
      call(['call_tides_agent', { task: 'When?' }]),
      say('At noon.'),
      say('At noon, it says.'),
    ]);
    expect(exchange.turns[0]?.tools).toContain('call_tides_agent');
    expect(exchange.turns[1]?.tools).toEqual([]);
    expect(exchange.turns[2]?.results).toEqual(['"At noon."']);
  });

  it.each<[string, () => unknown, string]>([
    ['fail', () => Promise.reject(new Error('broken')), 'plugin_failed'],
    ['are none', () => [{ name: 'x' }], 'tool_left_out'],
    ['hang', () => new Promise(() => undefined), 'plugin_failed'],
  ])('that %s cost nothing else', async (_, hook, code) => {
    contributed = hook;
    const exchange = await ask(test, [say('fine')]);
    expect(exchange.turns[0]?.tools).toEqual(['call_weather_agent', 'call_failing_agent']);
    expect(filterFrames(exchange, 'warning')).toMatchObject([{ code }]);
    expect(exchange.text).toBe('fine');
  });
});
