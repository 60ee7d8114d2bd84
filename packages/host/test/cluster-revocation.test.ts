import { setTimeout as sleep } from 'node:timers/promises';
import { createInvitations, loadConfig } from '@sibyl/host';
import { definePlugin, defineTool } from '@sibyl/plugin-kit';
import { generateSigner } from '@sibyl/ucan';
import pg from 'pg';
import { afterAll, afterEach, describe, expect, it, onTestFinished } from 'vitest';
import { z } from 'zod';
import { scale } from '../../../scripts/test-scale.ts';
import { createKey } from './support/access-key.js';
import { type ControlledModel, startControlledModel } from './support/controlled-model.js';
import { useHostPair } from './support/host-pair.js';
import { join, openSession, type SseStream, stream } from './support/stream.js';
import { TestUser } from './support/user.js';

const service = generateSigner().did;

/** A tool that signs with the delegation of the user. */
const signing = definePlugin({
  name: 'signing',
  version: '1.0.0',
  manifest: {
    title: 'Signing',
    summary: 'Signs',
    whenToUse: ['always'],
    category: 'test',
    visibility: 'always',
  },
  getTools: () => [
    defineTool({
      name: 'sign',
      description: 'Signs',
      inputSchema: z.object({}),
      run: async (_, { ucan, user }) => {
        await ucan.mintInvocation({ can: 'store/add', with: user.did, audience: service });
        return 'signed';
      },
    }),
  ],
});

const listed = Array.from({ length: 16 }, () => generateSigner());
let model: ControlledModel;
const hosts = useHostPair(async () => {
  model = await startControlledModel();
  const CALLERS_ALLOW = listed.map(({ did }) => did).join(',');
  return { env: { ...model.env, CALLERS_ALLOW }, plugins: [signing] };
});
afterAll(() => model.close());
afterEach(() => {
  hosts.busProxy.unmute();
  hosts.storeProxy.delay(0);
  model.discard();
});

/** A caller of host B whose only login is a delegation. */
async function logInByDelegation() {
  const alice = new TestUser(hosts.b, listed.pop());
  const token = alice.delegate();
  const headers = { 'x-ucan-delegation': token, authorization: '', 'x-auth-type': '' };
  const revoke = async () => {
    const url = `${hosts.a.url}/delegation`;
    const reply = await fetch(url, { method: 'DELETE', headers: { 'x-ucan-delegation': token } });
    expect(reply.status).toBe(200);
  };
  return { alice, token, headers, revoke, sessionId: await openSession(alice) };
}

const readEnd = async (live: SseStream) => (await live.toEnd()).at(-1)?.data;
const readMessages = async (user: TestUser, sessionId: string) =>
  (await user.request('GET', `/messages/${sessionId}`)).body.messages;

describe('DELETE /delegation on another host', () => {
  it.each([
    ['aborts the running and queued turns of that login', () => {}],
    ['does so even if no notification arrives', () => hosts.busProxy.mute()],
  ])('%s', async (_, prepare) => {
    const { alice, headers, revoke, sessionId } = await logInByDelegation();
    const live = await stream(alice, sessionId, { message: 'one' }, headers);
    const turn = await model.next();
    turn.say('half');
    await live.untilEvent('message');
    const queued = await stream(alice, sessionId, { message: 'two' }, headers);
    prepare();
    await revoke();
    expect(await readEnd(live)).toMatchObject({ status: 'aborted', partialText: 'half' });
    expect(await readEnd(queued)).toMatchObject({ status: 'aborted' });
    await turn.left;
    const error = { code: 'access_revoked' };
    const messages = await readMessages(alice, sessionId);
    expect(messages).toMatchObject([{}, { content: 'half', error }, {}, { content: '', error }]);
    expect(model.arrived).toBe(0);
  });

  it('answers a JSON request without text with 401 access_revoked', async () => {
    const { alice, headers, revoke, sessionId } = await logInByDelegation();
    const body = { message: 'one' };
    const reply = alice.request('POST', `/messages/${sessionId}`, { body, headers });
    await model.next();
    await revoke();
    expect(await reply).toMatchObject({ status: 401, body: { code: 'access_revoked' } });
  });

  it('aborts a turn that has signed with the delegation, and no other turn of the user', async () => {
    const { alice, token, revoke, sessionId } = await logInByDelegation();
    const other = await openSession(alice);
    const headers = { 'x-ucan-delegation': token };
    const live = await stream(alice, sessionId, { message: 'sign' }, headers);
    (await model.next()).call({ name: 'sign', input: {} });
    const signed = await model.next();
    expect(signed.results).toEqual(['"signed"']);
    const plain = await stream(alice, other, { message: 'talk' }, headers);
    const turn = await model.next();
    await revoke();
    expect(await readEnd(live)).toMatchObject({ status: 'aborted' });
    turn.answer('done');
    expect(await readEnd(plain)).toMatchObject({ status: 'finished' });
  });
});

/** Nothing can be stored for a run until the returned function is called. */
async function lockRun(runId: string): Promise<() => Promise<void>> {
  const client = new pg.Client({ connectionString: hosts.database.env.DATABASE_URL });
  await client.connect();
  const unlock = () => client.end();
  onTestFinished(unlock);
  await client.query('begin');
  await client.query('select from runs where id = $1 for update', [runId]);
  return unlock;
}

/** Longer than a reader receives anything of a turn that continues although its own access was revoked. */
const BEYOND_LIMIT_MS = 1_500;

describe('a reader on another host than the turn, whose access is revoked with it', () => {
  /** A turn on host B that said something, read at host A by the same login. */
  async function readFromA() {
    const { alice, headers, revoke, sessionId } = await logInByDelegation();
    const started = await stream(alice, sessionId, { message: 'one' }, headers);
    const turn = await model.next();
    turn.say('half');
    await started.untilEvent('message');
    const live = await join(alice.at(hosts.a), started.runId, 0, headers);
    await live.untilEvent('message');
    return { started, live, revoke };
  }

  it('GET /runs/:id receives the end, also if storing it takes long', async () => {
    const { started, live, revoke } = await readFromA();
    const unlock = await lockRun(started.runId);
    await revoke();
    await sleep(BEYOND_LIMIT_MS);
    await unlock();
    expect(await readEnd(live)).toMatchObject({ status: 'aborted', partialText: 'half' });
    expect(await readEnd(started)).toMatchObject({ status: 'aborted', partialText: 'half' });
  });

  it('GET /runs/:id receives the end, also if every packet to PostgreSQL takes 1,500 ms', async () => {
    const { live, revoke } = await readFromA();
    hosts.storeProxy.delay(1_500);
    await revoke();
    expect(await readEnd(live)).toMatchObject({ status: 'aborted', partialText: 'half' });
  });

  it('GET /runs/:id receives the end, also if no notification reaches the host of the turn', async () => {
    const { live, revoke } = await readFromA();
    hosts.busProxy.mute();
    await revoke();
    expect(await readEnd(live)).toMatchObject({ status: 'aborted', partialText: 'half' });
  });

  it('POST /messages waits for the partial answer, also if storing it takes long', async () => {
    const { alice, headers, revoke, sessionId } = await logInByDelegation();
    const body = { message: 'one' };
    const reply = alice.request('POST', `/messages/${sessionId}`, { body, headers });
    const turn = await model.next();
    turn.say('half');
    const find = async () =>
      (await alice.request('GET', `/sessions/${sessionId}/run`)).body.run?.runId;
    await expect.poll(find).toBeDefined();
    const unlock = await lockRun(await find());
    await revoke();
    await sleep(BEYOND_LIMIT_MS);
    await unlock();
    expect(await reply).toMatchObject({ status: 200, body: { message: { content: 'half' } } });
  });

  it('GET /runs/:id receives nothing more of a turn that continues', async () => {
    const { alice, headers, revoke, sessionId } = await logInByDelegation();
    const started = await stream(alice, sessionId, { message: 'one' });
    const turn = await model.next();
    turn.say('half');
    const live = await join(alice.at(hosts.a), started.runId, 0, headers);
    await live.untilEvent('message');
    await revoke();
    await sleep(BEYOND_LIMIT_MS);
    turn.answer(' and more');
    expect(await readEnd(started)).toMatchObject({ status: 'finished' });
    await live.toEnd();
    expect([live.text, live.frames.at(-1)?.event]).toEqual(['half', 'message']);
  });
});

/** A turn on host B that was started with an access key; host A revokes the key. */
async function startWithKey(alice: TestUser) {
  const { key, id } = await createKey(alice);
  const send = () =>
    fetch(`${hosts.b.url}/ui/chat`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify({
        id: `chat ${id}`,
        messages: [{ id: 'u1', role: 'user', parts: [{ type: 'text', text: 'one' }] }],
      }),
    });
  const live = await send();
  const revoke = async () =>
    expect((await alice.request('DELETE', `/keys/${id}`)).status).toBe(200);
  return { send, live, turn: await model.next(), revoke };
}

it.each([
  ['', () => {}],
  [', even if no notification arrives', () => hosts.busProxy.mute()],
])(
  'DELETE /keys/:id on another host ends the turns of an access key; no request after its reply is accepted%s',
  async (_, prepare) => {
    const { send, live, turn, revoke } = await startWithKey(new TestUser(hosts.a, listed.pop()));
    prepare();
    await revoke();
    const replies = await Promise.all(Array.from({ length: scale(200, 20) }, send));
    expect(replies.map(({ status }) => status).filter((status) => status !== 401)).toEqual([]);
    await turn.left;
    expect(await live.text()).toContain('"abort"');
  },
);

it('DELETE /keys/:id ends a turn on another host within a second', async () => {
  const alice = new TestUser(hosts.a, listed.pop());
  const waits: number[] = [];
  for (let i = 0; i < scale(5, 1); i++) {
    const { turn, revoke } = await startWithKey(alice);
    await revoke();
    const acknowledgedAt = performance.now();
    await turn.left;
    waits.push(performance.now() - acknowledgedAt);
  }
  // The fastest of several: a busy machine delays some, while waiting for the next check of the store would delay all.
  expect(Math.min(...waits)).toBeLessThan(scale(1000, 60_000));
});

it('callers.remove on another host aborts the turns of the caller', async () => {
  const [printed] = await createInvitations({ days: 1, count: 1 }, loadConfig(hosts.database.env));
  const alice = new TestUser(hosts.b);
  const body = { invitation: printed?.invitation };
  expect((await alice.request('POST', '/invitations', { body })).status).toBe(200);
  const live = await stream(alice, await openSession(alice), { message: 'one' });
  await model.next();
  expect(await hosts.a.app.callers.remove(alice.did)).toBe(true);
  expect(await readEnd(live)).toMatchObject({ status: 'aborted' });
});
