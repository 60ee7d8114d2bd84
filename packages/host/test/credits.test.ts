import { type Approval, buildDecisionClaims } from '@sibyl/protocol';
import { mintDelegation } from '@sibyl/ucan';
import { expect, it } from 'vitest';
import { ask, call, filterFrames, say } from './support/ask.js';
import { useControlledHost } from './support/controlled-host.js';
import { openSession, stream } from './support/stream.js';
import { TestUser } from './support/user.js';

/** The controlled model counts 7 tokens in and 3 out for every call. */
const CALL = 7 + 3 * 10;
const GRANT = 300_000;
const MINIMUM = 25_000;

const test = useControlledHost({
  env: {
    CREDITS_ENABLED: 'true',
    CREDITS_PRICES: JSON.stringify({ '*': { input: 1_000_000, output: 10_000_000 } }),
    CREDITS_INITIAL_GRANT: String(GRANT),
    CREDITS_TURN_MINIMUM: String(MINIMUM),
    TURNS_PER_USER: '100',
    APPROVALS: 'recall',
  },
});

const newUser = () => new TestUser(test.host);
const readCredits = async (user: TestUser) => (await user.request('GET', '/credits')).body;

/** The account once no turn of the user is running. */
async function settled(user: TestUser) {
  await expect.poll(async () => (await readCredits(user)).reserved).toBe(0);
  return readCredits(user);
}

it('GET /credits shows the initial grant to its user only', async () => {
  const user = newUser();
  expect(await readCredits(user)).toMatchObject({
    balance: GRANT,
    reserved: 0,
    unpaid: 0,
    entries: [{ kind: 'grant', amount: GRANT, note: 'initial grant' }],
  });
  const anonymous = await fetch(`${test.host.url}/credits`);
  expect(anonymous.status).toBe(401);
  expect((await user.request('GET', '/credits?limit=0')).status).toBe(400);
});

it('the credits plugin charges a turn for its calls, and for the title of its session', async () => {
  const alice = newUser();
  const { sessionId } = await ask({ ...test, alice }, [say('hi')], { requestId: 'r-1' });
  const { balance, entries } = await settled(alice);
  expect(balance).toBe(GRANT - 2 * CALL);
  expect(entries[0]).toMatchObject({
    kind: 'charge',
    amount: -2 * CALL,
    cost: 2 * CALL,
    balance,
    sessionId,
    requestId: 'r-1',
    usage: [{ model: 'openai-compatible/controlled', input: 14, output: 6, cached: 0 }],
  });
});

it('the credits plugin charges every call of a turn', async () => {
  const alice = newUser();
  await ask({ ...test, alice }, [call(['list_capabilities']), say('hi')]);
  expect(await settled(alice)).toMatchObject({ balance: GRANT - 3 * CALL });
});

it('GET /credits shows reserved credit while a turn is running', async () => {
  const alice = newUser();
  const live = await stream(alice, await openSession(alice), { message: 'hello' });
  const turn = await test.model.next();
  const { balance, reserved } = await readCredits(alice);
  expect(balance).toBe(GRANT);
  expect(reserved).toBeGreaterThanOrEqual(MINIMUM);
  turn.answer('hi');
  await live.toEnd();
  await settled(alice);
});

it('the credits plugin charges an aborted turn for what it used', async () => {
  const alice = newUser();
  const sessionId = await openSession(alice);
  const live = await stream(alice, sessionId, { message: 'hello' });
  const turn = await test.model.next();
  turn.say('A long answer that is aborted');
  await live.untilEvent('message');
  await alice.request('POST', '/messages/abort', { body: { sessionId } });
  await live.toEnd();
  const { balance, entries } = await settled(alice);
  expect(balance).toBeLessThan(GRANT);
  expect(entries[0].usage[0].output).toBeGreaterThan(5);
});

it('POST /messages accepts no more of 50 concurrent turns than the balance covers', async () => {
  const alice = newUser();
  const sessions = await Promise.all(Array.from({ length: 50 }, () => openSession(alice)));
  const refused: { body: unknown }[] = [];
  const answers = sessions.map(async (sessionId) => {
    const answer = await alice.request('POST', `/messages/${sessionId}`, {
      body: { message: 'hi' },
    });
    if (answer.status === 402) refused.push(answer);
    return answer.status;
  });
  const admitted = Math.floor(GRANT / (MINIMUM + 1));
  await expect.poll(() => refused.length).toBe(50 - admitted);
  for (let i = 0; i < admitted; i++) (await test.model.next()).answer('ok');
  expect((await Promise.all(answers)).filter((status) => status === 200)).toHaveLength(admitted);
  for (const { body } of refused)
    expect(body).toMatchObject({
      statusCode: 402,
      code: 'insufficient_credit',
      claims: [],
      outstandingClaims: [],
    });
  const { balance, unpaid, entries } = await settled(alice);
  expect(balance).toBe(GRANT - admitted * 2 * CALL);
  expect(unpaid).toBe(0);
  expect(entries.length).toBe(admitted + 1);
});

it('the credits plugin ends a turn before a call that exceeds the balance', async () => {
  const alice = newUser();
  // Other turns of hers have set the rest aside.
  const others = Math.floor(GRANT / (MINIMUM + 1)) - 1;
  const sessions = await Promise.all(Array.from({ length: others }, () => openSession(alice)));
  const lives = await Promise.all(
    sessions.map((sessionId) => stream(alice, sessionId, { message: 'hi' })),
  );
  const turns = await Promise.all(sessions.map(() => test.model.next()));
  const long = 'x'.repeat(8 * MINIMUM);
  const big = await stream(alice, await openSession(alice), { message: 'hi' });
  (await test.model.next()).call({ name: 'remember', input: { fact: long } });
  const frames = await big.toEnd();
  expect(filterFrames({ frames }, 'error')).toMatchObject([{ kind: 'billing' }]);
  for (const turn of turns) turn.answer('ok');
  await Promise.all(lives.map((live) => live.toEnd()));
  const { balance, unpaid } = await settled(alice);
  expect(balance).toBe(GRANT - CALL - others * 2 * CALL);
  expect(unpaid).toBe(0);
});

it('GET /docs/openapi.json describes GET /credits', async () => {
  const document = await (await fetch(`${test.host.url}/docs/openapi.json`)).json();
  expect(document).toHaveProperty(['paths', '/credits', 'get', 'summary']);
});

/** Approves a call as the client does. */
async function approve(user: TestUser, { id, args }: Approval) {
  const { did } = test.host;
  const nb = await buildDecisionClaims({ id, decision: 'approve', originalArgs: args });
  const { ok } = mintDelegation({
    signer: user.signer,
    audience: did,
    capabilities: [{ can: 'oracle/approve', with: `ixo:oracle:${did}`, nb }],
    expiration: Math.floor(Date.now() / 1000) + 120,
    nonce: crypto.randomUUID(),
  });
  const body = { decision: 'approve', invocation: ok?.token };
  return user.request('POST', `/approvals/${id}`, { body });
}

it('POST /approvals/:id answers 402 while the user lacks the credit for the call, and leaves it pending', async () => {
  const user = newUser();
  const waiting = await stream(user, await openSession(user), { message: 'Look it up' });
  (await test.model.next()).call({ name: 'recall', input: { query: 'work' } });
  await waiting.toEnd();
  await settled(user);
  const [approval] = (await user.request('GET', '/approvals')).body.approvals;
  const running = [];
  while ((await readCredits(user)).balance - (await readCredits(user)).reserved >= MINIMUM) {
    const live = await stream(user, await openSession(user), { message: 'hello' });
    running.push({ live, call: await test.model.next() });
  }
  expect(await approve(user, approval)).toMatchObject({
    status: 402,
    body: { code: 'insufficient_credit' },
  });
  const unchanged = await user.request('GET', `/approvals/${approval.id}`);
  expect(unchanged.body.status).toBe('pending');
  for (const { live, call: turn } of running) {
    turn.answer('hi');
    await live.toEnd();
  }
  await settled(user);
  expect(await approve(user, approval)).toMatchObject({
    status: 200,
    body: { status: 'approved' },
  });
  (await test.model.next()).answer('Nothing is known.');
  await settled(user);
});
