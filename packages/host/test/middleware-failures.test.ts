import { describe, expect, it } from 'vitest';
import { ask, call, filterFrames, say } from './support/ask.js';
import { joinSession } from './support/session-socket.js';
import { openSession } from './support/stream.js';
import { type Hooks, useWrappedHost } from './support/wrapped-host.js';

const { test, outer, inner, ran } = useWrappedHost();

const never = () => new Promise<never>(() => undefined);
const echoed = () => call(['echo', { text: 'hi' }]);
const findFailures = (hook: string) => test.host.log.filter((line) => line.hook === hook);

const brokenBeforeModel: [string, () => unknown][] = [
  [
    'throws',
    () => {
      throw new Error('broken');
    },
  ],
  ['hangs', never],
  ['returns a text', () => 'rubbish'],
  ['returns unknown messages', () => ({ system: 'gone', messages: [{ role: 'robot' }] })],
  ['leaves no message', () => ({ messages: [] })],
  ['returns unknown tools', () => ({ tools: [7] })],
];

const brokenBeforeTool: [string, Hooks['wrapTool'] & {}][] = [
  ['throws before the call', () => Promise.reject(new Error('broken'))],
  ['hangs before the call', never],
  ['calls next with a text', (_, next) => next('rubbish' as never)],
];

const brokenAfterTool: [string, Hooks['wrapTool'] & {}][] = [
  [
    'throws after the call',
    async ({ input }, next) => {
      await next(input);
      throw new Error('broken');
    },
  ],
  [
    'hangs after the call',
    async ({ input }, next) => {
      await next(input);
      return never();
    },
  ],
];

describe.each(brokenBeforeModel)('one whose beforeModel %s', (_, hook) => {
  it('fails the turn, names the plugin and hides the reason', async () => {
    outer.beforeModel = hook as Hooks['beforeModel'] & {};
    const before = findFailures('wrapModel of out').length;
    const exchange = await ask(test, []);
    expect(filterFrames(exchange, 'error')).toMatchObject([
      {
        error: 'This message was not answered because the plugin outer failed.',
        kind: 'server',
        retryable: true,
      },
    ]);
    expect(exchange.frames.at(-1)?.data).toMatchObject({ status: 'failed' });
    expect(findFailures('wrapModel of out').slice(before)).toMatchObject([
      { plugin: 'outer', level: 50, err: {} },
    ]);
  });

  it('is skipped with onFailure skip, and the others still run', async () => {
    outer.onFailure = 'skip';
    outer.beforeModel = hook as Hooks['beforeModel'] & {};
    inner.beforeModel = ({ system }) => ({ system: `${system}\n\ninner` });
    const before = findFailures('wrapModel of out').length;
    const { turns, text } = await ask(test, [say('fine')]);
    expect(text).toBe('fine');
    expect(turns[0]?.system).toMatch(/^You are Sibyl.*\n\ninner$/s);
    expect(turns[0]?.tools).toEqual(['echo']);
    expect(findFailures('wrapModel of out').length).toBe(before + 1);
  });
});

it('POST /messages answers 503 if a middleware fails', async () => {
  outer.beforeModel = () => Promise.reject(new Error('secret reason'));
  const sessionId = await openSession(test.alice);
  const { status, body } = await test.alice.request('POST', `/messages/${sessionId}`, {
    body: { message: 'hello' },
  });
  expect([status, body.code]).toEqual([503, 'plugin_failed']);
  expect(JSON.stringify(body)).not.toContain('secret');
});

it('POST /messages with the same key is answered after a middleware failed, and stored once', async () => {
  outer.beforeModel = () => Promise.reject(new Error('broken'));
  const sessionId = await openSession(test.alice);
  const send = () =>
    test.alice.request('POST', `/messages/${sessionId}`, {
      body: { message: 'hello' },
      headers: { 'idempotency-key': 'again' },
    });
  const failed = await send();
  expect([failed.status, failed.headers.get('retry-after')]).toEqual([503, '5']);
  delete outer.beforeModel;
  const [answered] = await Promise.all([send(), test.model.next().then((t) => t.answer('Hi'))]);
  expect([answered.status, answered.body.message.content]).toEqual([200, 'Hi']);
  const { messages } = (await test.alice.request('GET', `/messages/${sessionId}`)).body;
  const contents = messages.map(({ content }: { content: string }) => content);
  expect(contents).toEqual(['hello', 'Hi']);
});

it('a socket that opens after a middleware failed receives the events of the next attempt', async () => {
  outer.beforeModel = () => Promise.reject(new Error('broken'));
  const sessionId = await openSession(test.alice);
  const send = () =>
    test.alice.request('POST', `/messages/${sessionId}`, {
      body: { message: 'hello' },
      headers: { 'idempotency-key': 'once-more' },
    });
  expect((await send()).status).toBe(503);
  delete outer.beforeModel;
  const socket = await joinSession(test.alice, sessionId);
  const repeated = send();
  (await test.model.next()).call({ name: 'echo', input: { text: 'heard' } });
  (await test.model.next()).answer('Hi');
  expect((await repeated).status).toBe(200);
  await socket.until('tool_call', ({ payload }) => payload.status === 'done');
});

describe.each<[string, () => unknown]>([
  ['throws', () => Promise.reject(new Error('broken'))],
  ['hangs', never],
])('one whose afterModel %s', (_, hook) => {
  it('fails the turn before any tool runs', async () => {
    outer.afterModel = hook as Hooks['afterModel'] & {};
    const exchange = await ask(test, [echoed()]);
    expect(ran).toEqual([]);
    expect(filterFrames(exchange, 'error')).toMatchObject([{ kind: 'server', retryable: true }]);
  });

  it('is skipped with onFailure skip', async () => {
    outer.onFailure = 'skip';
    outer.afterModel = hook as Hooks['afterModel'] & {};
    expect((await ask(test, [say('fine')])).text).toBe('fine');
  });
});

it.each<[string, Hooks['wrapTool'] & {}]>(brokenBeforeTool)(
  'one whose wrapTool %s fails the call, and the tool does not run',
  async (_, wrap) => {
    outer.wrapTool = wrap;
    const before = findFailures('wrapTool of out').length;
    const exchange = await ask(test, [echoed(), say('Sorry')]);
    expect(ran).toEqual([]);
    const error = 'The tool echo did not run: it was blocked because the plugin outer failed.';
    expect(exchange.turns[1]?.results).toEqual([JSON.stringify({ error })]);
    expect(filterFrames(exchange, 'tool_call').at(-1)).toMatchObject({ status: 'error' });
    expect(exchange.text).toBe('Sorry');
    expect(findFailures('wrapTool of out').slice(before)).toMatchObject([
      { plugin: 'outer', level: 50, err: {} },
    ]);
  },
);

it.each<[string, Hooks['wrapTool'] & {}]>(brokenAfterTool)(
  'one whose wrapTool %s keeps the result back',
  async (_, wrap) => {
    outer.wrapTool = wrap;
    const { turns } = await ask(test, [echoed(), say()]);
    expect(ran).toEqual(['hi']);
    const error =
      'The tool echo may have run, but its result was blocked because the plugin outer failed.';
    expect(turns[1]?.results).toEqual([JSON.stringify({ error })]);
  },
);

it('the error of an inner middleware is reported unless the outer one handles it', async () => {
  inner.wrapTool = () => Promise.reject(new Error('broken'));
  const { turns } = await ask(test, [echoed(), say()]);
  expect(turns[1]?.results[0]).toContain('the plugin inner failed');
  expect(ran).toEqual([]);
});

it.each<[string, Hooks['wrapTool'] & {}]>([...brokenBeforeTool, ...brokenAfterTool])(
  'one whose wrapTool %s and that may be skipped leaves the call as it is, made once',
  async (_, wrap) => {
    outer.onFailure = 'skip';
    outer.wrapTool = wrap;
    const before = findFailures('wrapTool of out').length;
    const { turns } = await ask(test, [echoed(), say()]);
    expect(turns[1]?.results).toEqual(['{"text":"hi"}']);
    expect(ran).toEqual(['hi']);
    expect(findFailures('wrapTool of out').length).toBe(before + 1);
  },
);
