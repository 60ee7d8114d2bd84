import { OracleError } from '@sibyl/protocol';
import { afterEach, expect, it } from 'vitest';
import { createKey } from './support/access-key.js';
import { startHost, type TestHost } from './support/host.js';
import { testPlugin } from './support/plugin.js';
import { createSchedule, readRuns } from './support/schedules.js';
import { TestGate } from './support/test-gate.js';
import { TestUser } from './support/user.js';

let host: TestHost;
afterEach(() => host.close());

it('SESSIONS_PER_USER limits the sessions of each user, until some are deleted', async () => {
  host = await startHost({ env: { SESSIONS_PER_USER: '2' } });
  const [alice, bob] = [new TestUser(host), new TestUser(host)];
  const open = (user: TestUser) => user.request('POST', '/sessions');
  const { sessionId } = (await open(alice)).body;
  expect((await open(alice)).status).toBe(201);
  const { status, body } = await open(alice);
  expect([status, body.code]).toEqual([409, 'too_many_sessions']);
  expect(body.message).toMatch(/delete some/);
  expect((await open(bob)).status).toBe(201);
  await alice.request('DELETE', `/sessions/${sessionId}`);
  expect((await open(alice)).status).toBe(201);
});

it('SESSIONS_PER_USER does not limit users of plugins, who cannot delete sessions', async () => {
  const opened: string[] = [];
  const chat = testPlugin('chat', {
    getSharedState: async ({ turns }) => {
      for (let i = 0; i < 3; i++) opened.push((await turns.openSession('eve')).sessionId);
      return {};
    },
  });
  host = await startHost({ env: { SESSIONS_PER_USER: '1' }, plugins: [chat] });
  expect(new Set(opened).size).toBe(3);
});

it('a run of a schedule whose session was deleted fails with the reason if its user may not open another', async () => {
  host = await startHost({ env: { SESSIONS_PER_USER: '1' } });
  const alice = new TestUser(host);
  const { id, sessionId } = await createSchedule(alice);
  const run = () => alice.request('POST', `/schedules/${id}/run`);
  await alice.request('DELETE', `/sessions/${sessionId}`);
  const { body: other } = await alice.request('POST', '/sessions');
  await run();
  await expect
    .poll(() => readRuns(alice, id), { timeout: 30_000 })
    .toMatchObject([{ status: 'failed', error: expect.stringContaining('delete some') }]);
  await alice.request('DELETE', `/sessions/${other.sessionId}`);
  await run();
  const readNewest = async () => (await readRuns(alice, id))[0]?.status;
  await expect.poll(readNewest, { timeout: 30_000 }).toBe('finished');
});

it('POST /v1/responses that is refused takes no place from earlier responses', async () => {
  const gate = new TestGate();
  const plugins = [testPlugin('gate', { getMessageGate: () => gate })];
  host = await startHost({ env: { SESSIONS_PER_USER: '2' }, plugins });
  const alice = new TestUser(host);
  const create = () =>
    alice.request('POST', '/v1/responses', { body: { model: 'default', input: 'Hello' } });
  const { status, body } = await create();
  expect(status).toBe(200);
  gate.decide = () => {
    throw new OracleError('insufficient_credit', { message: 'No credit' });
  };
  for (let i = 0; i < 3; i++) expect((await create()).status).toBe(402);
  expect((await alice.request('GET', `/v1/responses/${body.id}`)).status).toBe(200);
});

it('a turn that a surface refuses leaves no session: a key that is used up cannot fill the list', async () => {
  host = await startHost({ env: { PUBLIC_URL: 'http://127.0.0.1:3000' } });
  const alice = new TestUser(host);
  const { key } = await createKey(alice, { turnsPerDay: 1 });
  const send = (path: string, body: object) =>
    fetch(host.url + path, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${key}`,
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        'a2a-version': '1.0',
      },
      body: JSON.stringify(body),
    }).then((reply) => reply.text());
  const said = { id: 'u', role: 'user', content: 'Hi', parts: [{ type: 'text', text: 'Hi' }] };
  const refused = async () => [
    await send('/v1/chat/completions', { model: 'default', messages: [said], store: true }),
    await send('/v1/responses', { model: 'default', input: 'Hi', store: true }),
    await send('/ui/chat', { id: 'chat', messages: [said] }),
    await send('/v2/agent/run', { threadId: 'thread', runId: 'run', messages: [said] }),
    await send('/a2a/message:send', {
      message: { messageId: 'message', role: 'ROLE_USER', parts: [{ text: 'Hi' }] },
    }),
    await send('/mcp', {
      jsonrpc: '2.0',
      id: 1,
      method: 'tools/call',
      params: { name: 'ask', arguments: { message: 'Hi' } },
    }),
  ];
  await send('/v1/chat/completions', { model: 'default', messages: [said] });
  for (const reply of await refused()) expect(reply).toMatch(/turns/);
  expect((await alice.request('GET', '/sessions')).body.total).toBe(0);
});

it('SESSIONS_PER_USER=0 sets no limit', async () => {
  host = await startHost({ env: { SESSIONS_PER_USER: '0' } });
  const alice = new TestUser(host);
  expect((await alice.request('POST', '/sessions')).status).toBe(201);
});
