import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  type ControlledModel,
  type ModelTurn,
  startControlledModel,
} from './support/controlled-model.js';
import { startHost, type TestHost, type TestHostOptions } from './support/host.js';
import { BEHIND_PROXY, Neighbor } from './support/neighbors.js';
import { testPlugin } from './support/plugin.js';
import { openSession, stream } from './support/stream.js';
import { createTestDatabase, engines, type TestDatabase } from './support/test-database.js';
import { TestGate } from './support/test-gate.js';
import { TestUser } from './support/user.js';

const LIMIT = 20;

let model: ControlledModel;
let cleanUps: (() => unknown)[];
beforeEach(async () => {
  cleanUps = [];
  model = await startControlledModel();
});
afterEach(async () => {
  for (const cleanUp of cleanUps.reverse()) await cleanUp();
  model.close();
});

async function start(options: TestHostOptions): Promise<TestHost> {
  const host = await startHost({ ...options, env: { ...model.env, ...options.env } });
  cleanUps.push(() => host.close());
  return host;
}

async function createDatabase(engine: (typeof engines)[number]): Promise<TestDatabase> {
  const database = await createTestDatabase(engine);
  cleanUps.push(() => database.drop());
  return database;
}

const send = (user: TestUser, sessionId: string, body: object = {}) =>
  user.request('POST', `/messages/${sessionId}`, { body: { message: 'now', ...body } });

/** Sends a message to each session at the same instant; the model answers once nothing more is refused. */
async function sendAtOnce(users: readonly TestUser[], sessions: readonly string[]) {
  const statuses: number[] = [];
  const answers = sessions.map(async (sessionId, i) => {
    const user = users[i % users.length] as TestUser;
    const { status, body } = await send(user, sessionId);
    statuses.push(status);
    return `${status} ${body.code ?? ''}`.trim();
  });
  const turns: ModelTurn[] = [];
  while (turns.length < LIMIT) turns.push(await model.next());
  await expect.poll(() => statuses.length, { timeout: 60_000 }).toBe(sessions.length - LIMIT);
  for (const turn of turns) turn.answer('done');
  return count(await Promise.all(answers));
}

function count(answers: readonly string[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const answer of answers) counts[answer] = (counts[answer] ?? 0) + 1;
  return counts;
}

/** One after the other: a host refuses many at once while it waits for its database. */
async function openSessions(user: TestUser, n: number): Promise<string[]> {
  const sessions: string[] = [];
  while (sessions.length < n) sessions.push(await openSession(user));
  return sessions;
}

describe.each(engines)('TURNS_PER_USER on %s', (engine) => {
  it('holds for 300 POST /messages at the same instant', { timeout: 180_000 }, async () => {
    const { env } = await createDatabase(engine);
    const gate = new TestGate();
    const plugins = [testPlugin('gate', { getMessageGate: () => gate })];
    const host = await start({ env: { ...env, TURNS_PER_USER: `${LIMIT}` }, plugins });
    const alice = new TestUser(host);
    const sessions = await openSessions(alice, 300);
    const { '503 host_busy': busy = 0, ...counts } = await sendAtOnce([alice], sessions);
    // While connections to PostgreSQL are waited for, messages are refused earlier.
    expect(counts).toEqual({ '200': LIMIT, '429 too_many_turns': 300 - LIMIT - busy });
    expect(gate.asked).toHaveLength(LIMIT);
    const again = send(alice, sessions[0] as string);
    (await model.next()).answer('there is room again');
    expect((await again).status).toBe(200);
  });
});

it('TURNS_PER_USER holds for two hosts on one database, and what gates held is released', {
  timeout: 180_000,
}, async () => {
  const { env } = await createDatabase('postgres');
  const gate = new TestGate();
  const plugins = [testPlugin('gate', { getMessageGate: () => gate })];
  const options = { env: { ...env, TURNS_PER_USER: `${LIMIT}` }, plugins };
  const alice = new TestUser(await start(options));
  const users = [alice, alice.at(await start(options))];
  const sessions = await openSessions(alice, 100);
  expect(await sendAtOnce(users, sessions)).toEqual({
    '200': LIMIT,
    '429 too_many_turns': 100 - LIMIT,
  });
  expect(gate.asked.length).toBeGreaterThan(LIMIT);
  await expect.poll(() => gate.settled.length).toBe(gate.asked.length);
  expect(gate.settled.filter(({ used }) => used.length === 0)).toHaveLength(
    gate.asked.length - LIMIT,
  );
});

it.each(engines)(
  'SESSIONS_PER_USER holds for 60 POST /sessions at the same instant on %s',
  async (engine) => {
    const { env } = await createDatabase(engine);
    const alice = new TestUser(await start({ env: { ...env, SESSIONS_PER_USER: '7' } }));
    const open = async () => {
      const { status, body } = await alice.request('POST', '/sessions');
      return `${status} ${body.code ?? ''}`.trim();
    };
    const answers = await Promise.all(Array.from({ length: 60 }, open));
    expect(count(answers)).toEqual({ '201': 7, '409 too_many_sessions': 53 });
  },
);

it('a message that interrupts takes the place of the turn it ends, also at TURNS_PER_USER', async () => {
  const alice = new TestUser(await start({ env: { TURNS_PER_USER: '1' } }));
  const sessionId = await openSession(alice);
  const first = await stream(alice, sessionId, { message: 'one' });
  await model.next();
  const elsewhere = await send(alice, await openSession(alice), { multitask: 'interrupt' });
  expect([elsewhere.status, elsewhere.body.code]).toEqual([429, 'too_many_turns']);
  const second = send(alice, sessionId, { multitask: 'interrupt' });
  expect((await first.toEnd()).at(-1)?.data.status).toBe('interrupted');
  (await model.next()).answer('two');
  expect((await second).body).toMatchObject({ message: { content: 'two' }, status: 'finished' });
});

it('TURNS_MAX refuses what all users together send beyond it with 503 host_busy', async () => {
  const host = await start({ env: { TURNS_MAX: '2', ...BEHIND_PROXY } });
  const users = Array.from({ length: 30 }, (_, i) => new Neighbor(host, `192.0.2.${i}`));
  const sessions = await Promise.all(users.map(openSession));
  const settled: { status: number; code: string | undefined; retryAfter: string | null }[] = [];
  const answers = users.map(async (user, i) => {
    const { status, body, headers } = await send(user, sessions[i] as string);
    settled.push({ status, code: body.code, retryAfter: headers.get('retry-after') });
  });
  const turns = [await model.next(), await model.next()];
  await expect.poll(() => settled.length).toBe(28);
  for (const answer of settled)
    expect(answer).toEqual({ status: 503, code: 'host_busy', retryAfter: '5' });
  for (const turn of turns) turn.answer('done');
  await Promise.all(answers);
  expect(settled.filter(({ status }) => status === 200)).toHaveLength(2);
  const [user, sessionId] = [users[0] as TestUser, sessions[0] as string];
  const again = send(user, sessionId);
  (await model.next()).answer('there is room again');
  expect((await again).status).toBe(200);
});

it('a place is given back by a message that a gate refuses', async () => {
  const gate = new TestGate();
  const plugins = [testPlugin('gate', { getMessageGate: () => gate })];
  const alice = new TestUser(await start({ env: { TURNS_PER_USER: '1' }, plugins }));
  const sessionId = await openSession(alice);
  gate.decide = () => {
    throw new Error('broken');
  };
  for (let i = 0; i < 3; i++) expect((await send(alice, sessionId)).status).toBe(503);
  gate.decide = () => undefined;
  const reply = send(alice, sessionId);
  (await model.next()).answer('in');
  expect((await reply).status).toBe(200);
});

describe('POST /messages with multitask interrupt', () => {
  it('replaces a turn of a user without a free place; several at once get one place', async () => {
    const gate = new TestGate();
    const plugins = [testPlugin('gate', { getMessageGate: () => gate })];
    const host = await start({ plugins, env: { TURNS_PER_USER: '1' } });
    const alice = new TestUser(host);
    const sessionId = await openSession(alice);
    const first = send(alice, sessionId);
    await model.next();
    const { promise, resolve: admit } = Promise.withResolvers<void>();
    gate.decide = () => promise;
    const answers: string[] = [];
    const interrupts = Array.from({ length: 10 }, async () => {
      const { status, body } = await send(alice, sessionId, { multitask: 'interrupt' });
      answers.push(`${status} ${body.code ?? ''}`.trim());
    });
    await expect.poll(() => answers).toEqual(Array(9).fill('429 too_many_turns'));
    expect(gate.asked).toHaveLength(2);
    admit();
    expect((await first).body).toMatchObject({ code: 'turn_interrupted' });
    (await model.next()).answer('done');
    await Promise.all(interrupts);
    expect(answers.at(-1)).toBe('200');
    const last = send(alice, sessionId, { multitask: 'interrupt' });
    (await model.next()).answer('again');
    expect((await last).status).toBe(200);
  });
});
