import { once } from 'node:events';
import { Agent, request } from 'node:http';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { createKey } from './support/access-key.js';
import { type ControlledModel, startControlledModel } from './support/controlled-model.js';
import { startHost, type TestHost } from './support/host.js';
import { join, openSession, stream } from './support/stream.js';
import { usedMemory } from './support/used-memory.js';
import { TestUser } from './support/user.js';

let model: ControlledModel;
let host: TestHost;
beforeEach(async () => {
  model = await startControlledModel();
});
afterEach(async () => {
  await host.close();
  model.close();
});

const start = async (limit: number) => {
  host = await startHost({
    env: { ...model.env, STREAMS_PER_USER: `${limit}`, BODIES_LIMIT: '1gb' },
  });
  return new TestUser(host);
};

const post = (user: TestUser, sessionId: string, headers: Record<string, string> = {}) =>
  user.request('POST', `/messages/${sessionId}`, { body: { message: 'hello' }, headers });

/** Sends a JSON message that nothing waits for; the returned function closes its connection. */
function sendAndLeave(user: TestUser, sessionId: string, headers: Record<string, string>) {
  const leave = new AbortController();
  const answer = fetch(`${host.url}/messages/${sessionId}`, {
    method: 'POST',
    headers: { ...user.headers, 'content-type': 'application/json', ...headers },
    body: JSON.stringify({ message: 'hello' }),
    signal: leave.signal,
  });
  answer.catch(() => undefined);
  return () => leave.abort();
}

it('STREAMS_PER_USER bounds JSON callers, streams and GET /runs/:runId together, until a client leaves', async () => {
  const alice = await start(3);
  const sessionId = await openSession(alice);
  const headers = { 'idempotency-key': 'one' };
  const leave = sendAndLeave(alice, sessionId, headers);
  const turn = await model.next();
  const { body } = await alice.request('GET', `/sessions/${sessionId}/run`);
  const joined = await join(alice, body.run.runId, 0);
  const streamed = await stream(alice, sessionId, { message: 'hello' }, headers);
  for (const refused of [
    await post(alice, sessionId, headers),
    await post(alice, await openSession(alice)),
    await alice.request('GET', `/runs/${body.run.runId}`),
  ]) {
    expect([refused.status, refused.body.code]).toEqual([429, 'too_many_streams']);
    expect(refused.headers.get('retry-after')).toBe('5');
  }
  const bob = new TestUser(host);
  const unaffected = post(bob, await openSession(bob));
  (await model.next()).answer('hi Bob');
  expect((await unaffected).status).toBe(200);
  leave();
  const joinAgain = () => join(alice, body.run.runId, 0).catch((error: Error) => error.message);
  await expect.poll(joinAgain, { timeout: 20_000 }).toHaveProperty('runId', body.run.runId);
  turn.answer('done');
  await Promise.all([joined.toEnd(), streamed.toEnd()]);
  await expect.poll(async () => (await post(alice, sessionId, headers)).status).toBe(200);
});

it('STREAMS_PER_USER refuses clients of surfaces with 429 before a turn starts', async () => {
  const alice = await start(1);
  const { key } = await createKey(alice);
  const send = (path: string, body?: object) =>
    fetch(host.url + path, {
      method: body ? 'POST' : 'GET',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      ...(body && { body: JSON.stringify(body) }),
    });
  const question = { model: 'default', stream: true };
  const said = { id: 'u1', role: 'user', content: 'Hi', parts: [{ type: 'text', text: 'Hi' }] };
  const running = await send('/v1/responses', { ...question, input: 'Hi' });
  const turn = await model.next();
  for (const refused of [
    await send('/v1/chat/completions', { ...question, messages: [said] }),
    await send('/v1/chat/completions', { model: 'default', messages: [said] }),
    await send('/v1/responses', { ...question, input: 'Hi' }),
    await send('/v1/responses', { model: 'default', input: 'Hi' }),
    await send('/ui/chat', { id: 'chat', messages: [said] }),
    await send('/v2/agent/run', { threadId: 'thread', runId: 'run', messages: [said] }),
  ]) {
    expect(refused.status).toBe(429);
    expect(refused.headers.get('retry-after')).toBe('5');
    await refused.text();
  }
  expect(model.arrived).toBe(0);
  turn.answer('Hello.');
  expect(await running.text()).toContain('response.completed');
});

const said = (text: string) => ({
  ...{ id: `say ${text}`, role: 'user', content: text, parts: [{ type: 'text', text }] },
});

it.each([
  ['/v1/chat/completions', (text: string) => ({ model: 'default', messages: [said(text)] })],
  ['/v1/responses', (text: string) => ({ model: 'default', input: text })],
  ['/ui/chat', (text: string) => ({ id: text, messages: [said(text)] })],
  ['/v2/agent/run', (text: string) => ({ threadId: text, runId: text, messages: [said(text)] })],
])(
  'STREAMS_PER_USER refuses requests to %s that arrive at once before their turns start',
  async (path, build) => {
    const alice = await start(1);
    const { key } = await createKey(alice);
    const replies = ['one', 'two', 'three', 'four'].map((text) =>
      fetch(host.url + path, {
        method: 'POST',
        headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
        body: JSON.stringify(build(text)),
      }),
    );
    const turn = await model.next();
    const refused: number[] = [];
    for (const reply of replies)
      void reply.then(({ status }) => status !== 200 && refused.push(status));
    await expect.poll(() => refused).toEqual([429, 429, 429]);
    turn.answer('Hello.');
    const texts = await Promise.all(replies.map(async (reply) => (await reply).text()));
    expect(texts.filter((text) => text.includes('Hello.'))).toHaveLength(1);
    expect((await alice.request('GET', '/usage')).body.total.turns).toBe(1);
  },
);

it('STREAMS_PER_USER does not count a response in the background, which nothing reads', async () => {
  const alice = await start(1);
  const { key } = await createKey(alice);
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
  const body = JSON.stringify({ model: 'default', input: 'Hi', background: true });
  const begin = () => fetch(`${host.url}/v1/responses`, { method: 'POST', headers, body });
  for (const _ of ['first', 'second']) {
    await expect.poll(async () => (await begin()).status).toBe(200);
    (await model.next()).answer('Hello.');
  }
});

it('STREAMS_PER_USER ends a further stream of A2A with an error that says so', async () => {
  const alice = await start(1);
  const headers = { ...alice.headers, 'content-type': 'application/json', 'a2a-version': '1.0' };
  const send = (path: string, body: object) =>
    fetch(host.url + path, { method: 'POST', headers, body: JSON.stringify(body) });
  const message = { messageId: 'm1', role: 'ROLE_USER', parts: [{ text: 'Hi' }] };
  const running = await send('/a2a/message:stream', { message });
  const turn = await model.next();
  const { body } = await alice.request('GET', '/a2a/tasks', { headers: { 'a2a-version': '1.0' } });
  const { id } = body.tasks[0];
  const subscribe = { jsonrpc: '2.0', id: 1, method: 'SubscribeToTask', params: { id } };
  const refused = await Promise.all(
    [send(`/a2a/tasks/${id}:subscribe`, {}), send('/a2a', subscribe)].map(async (reply) =>
      (await reply).text(),
    ),
  );
  for (const events of refused) expect(events).toMatch(/"error":.*waiting for answers/);
  expect(refused[0]).toContain('"code":429,"status":"RESOURCE_EXHAUSTED"');
  turn.answer('Hello.');
  expect(await running.text()).toContain('TASK_STATE_COMPLETED');
});

it('POST /messages keeps no body of the retries that wait for one turn', {
  timeout: 60_000,
}, async () => {
  const retries = 60;
  const alice = await start(retries);
  const sessionId = await openSession(alice);
  const body = Buffer.from(
    JSON.stringify({ message: 'x', metadata: { note: 'x'.repeat(800_000) } }),
  );
  const agent = new Agent({ keepAlive: false });
  const send = async (): Promise<number> => {
    const sent = request(`${host.url}/messages/${sessionId}`, {
      method: 'POST',
      agent,
      headers: {
        ...alice.headers,
        'content-type': 'application/json',
        'content-length': body.length,
        'idempotency-key': 'large',
      },
    });
    sent.on('error', () => undefined).end(body);
    const [answer] = await once(sent, 'response');
    answer.resume();
    // The request that asks whether the limit is reached counts, too.
    return answer.statusCode === 429 ? send() : answer.statusCode;
  };
  const answers = [send()];
  const turn = await model.next();
  const before = usedMemory();
  for (let i = 1; i < retries; i++) answers.push(send());
  const refusal = async () => (await alice.request('GET', '/runs/none')).body.code;
  await expect.poll(refusal, { timeout: 20_000 }).toBe('too_many_streams');
  // Each of them would keep 800 kB of bytes and as much text.
  await expect.poll(() => usedMemory() - before, { timeout: 20_000 }).toBeLessThan(15);
  turn.answer('once');
  expect(new Set(await Promise.all(answers))).toEqual(new Set([200]));
});
