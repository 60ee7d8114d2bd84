import { describe, expect, it } from 'vitest';
import { useControlledHost } from './support/controlled-host.js';
import { startHost } from './support/host.js';
import { openSession, stream } from './support/stream.js';
import { TestUser } from './support/user.js';

const test = useControlledHost();

const send = (sessionId: string, body: object, headers: Record<string, string> = {}) =>
  test.alice.request('POST', `/messages/${sessionId}`, { body, headers });
const currentRun = async (sessionId: string) =>
  (await test.alice.request('GET', `/sessions/${sessionId}/run`)).body.run;
const contents = async (sessionId: string) =>
  (await test.alice.request('GET', `/messages/${sessionId}`)).body.messages.map(
    (m: { content: string }) => m.content,
  );
const lastUser = (turn: { body: { messages: { content: string }[] } }) =>
  turn.body.messages.at(-1)?.content;

describe('while a turn runs', () => {
  it('others wait, visibly, and run in the order they came', async () => {
    const sessionId = await openSession(test.alice);
    const first = await stream(test.alice, sessionId, { message: 'one' });
    const turn = await test.model.next();
    const second = await stream(test.alice, sessionId, { message: 'two' });
    const third = await stream(test.alice, sessionId, { message: 'three' });
    await second.untilEvent('run');
    expect(await currentRun(sessionId)).toMatchObject({ runId: first.runId, status: 'running' });
    turn.say('1');
    turn.finish();
    await first.toEnd();
    const next = await test.model.next();
    expect(lastUser(next)).toBe('two');
    expect(await currentRun(sessionId)).toMatchObject({ runId: second.runId, status: 'running' });
    next.say('2');
    next.finish();
    const last = await test.model.next();
    last.say('3');
    last.finish();
    await third.toEnd();
    expect(await contents(sessionId)).toEqual(['one', '1', 'two', '2', 'three', '3']);
  });

  it('a queued turn is shown as queued when no turn runs before it', async () => {
    const sessionId = await openSession(test.alice);
    const first = await stream(test.alice, sessionId, { message: 'one' });
    const turn = await test.model.next();
    const second = await stream(test.alice, sessionId, { message: 'two' });
    const joined = await test.alice.request('GET', `/sessions/${sessionId}/run`);
    expect(joined.body.run.runId).toBe(first.runId);
    turn.finish();
    (await test.model.next()).finish();
    expect((await second.toEnd()).at(-1)?.data.status).toBe('finished');
  });

  it('the queue is bounded', async () => {
    const sessionId = await openSession(test.alice);
    await stream(test.alice, sessionId, { message: 'running' });
    const turn = await test.model.next();
    const waiting = [];
    for (let i = 0; i < 10; i++)
      waiting.push(await stream(test.alice, sessionId, { message: `waits ${i}` }));
    const { status, body } = await send(sessionId, { message: 'too many' });
    expect([status, body.code]).toEqual([409, 'queue_full']);
    turn.finish();
    for (const _ of waiting) (await test.model.next()).finish();
    for (const live of waiting) await live.toEnd();
    expect(await contents(sessionId)).not.toContain('too many');
  });

  it('reject refuses with 409 and stores nothing', async () => {
    const sessionId = await openSession(test.alice);
    const live = await stream(test.alice, sessionId, { message: 'one' });
    const turn = await test.model.next();
    const { status, body } = await send(sessionId, { message: 'two', multitask: 'reject' });
    expect([status, body.code]).toEqual([409, 'turn_running']);
    turn.finish();
    await live.toEnd();
    expect(await contents(sessionId)).toEqual(['one', '']);
  });

  it('interrupt cancels it and starts the next turn', async () => {
    const sessionId = await openSession(test.alice);
    const first = await stream(test.alice, sessionId, { message: 'one' });
    const turn = await test.model.next();
    turn.say('never end');
    await first.untilEvent('message');
    const second = stream(test.alice, sessionId, { message: 'two', multitask: 'interrupt' });
    await turn.left;
    expect((await first.toEnd()).at(-1)?.data).toMatchObject({
      status: 'interrupted',
      interrupted: true,
      partialText: 'never end',
    });
    const next = await test.model.next();
    next.say('2');
    next.finish();
    await (await second).toEnd();
    expect(await contents(sessionId)).toEqual(['one', 'never end', 'two', '2']);
  });

  it('a stranger with the same session id neither notices nor disturbs it', async () => {
    const sessionId = await openSession(test.alice);
    const live = await stream(test.alice, sessionId, { message: 'one' });
    const turn = await test.model.next();
    const eve = new TestUser(test.host);
    for (const multitask of ['reject', 'interrupt', 'enqueue']) {
      const { status } = await eve.request('POST', `/messages/${sessionId}`, {
        body: { message: 'boo', multitask },
      });
      expect(status).toBe(404);
    }
    turn.finish();
    expect((await live.toEnd()).at(-1)?.data.status).toBe('finished');
  });
});

it('TURNS_PER_USER limits the turns of a user over all sessions', async () => {
  const own = await startHost({ env: { ...test.model.env, TURNS_PER_USER: '2' } });
  const [bob, carol] = [new TestUser(own), new TestUser(own)];
  const busy = [];
  for (let i = 0; i < 2; i++)
    busy.push(await stream(bob, await openSession(bob), { message: 'x' }));
  const turns = [await test.model.next(), await test.model.next()];
  const third = await bob.request('POST', `/messages/${await openSession(bob)}`, {
    body: { message: 'one too many' },
  });
  expect([third.status, third.body.code]).toEqual([429, 'too_many_turns']);
  const other = await stream(carol, await openSession(carol), { message: 'mine' });
  turns.push(await test.model.next());
  for (const turn of turns) turn.finish();
  for (const live of [...busy, other]) await live.toEnd();
  await own.close();
});

describe('Idempotency-Key', () => {
  it('makes 50 requests at once one turn with 50 equal answers', async () => {
    const sessionId = await openSession(test.alice);
    const headers = { 'idempotency-key': 'fifty' };
    const replies = Array.from({ length: 50 }, () => send(sessionId, { message: 'once' }, headers));
    const turn = await test.model.next();
    turn.say('only once');
    turn.finish();
    const answers = await Promise.all(replies);
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
    expect(new Set(answers.map(({ body }) => JSON.stringify(body))).size).toBe(1);
    expect(await contents(sessionId)).toEqual(['once', 'only once']);
  });

  it('finds the first outcome later, also as a stream, also beside reject', async () => {
    const sessionId = await openSession(test.alice);
    const headers = { 'idempotency-key': 'later' };
    const body = { message: 'again', multitask: 'reject' };
    const first = send(sessionId, body, headers);
    const turn = await test.model.next();
    const meanwhile = send(sessionId, body, headers);
    turn.say('same');
    turn.finish();
    expect((await meanwhile).body).toEqual((await first).body);
    expect((await send(sessionId, body, headers)).body).toEqual((await first).body);
    const streamed = await fetch(`${test.host.url}/messages/${sessionId}`, {
      method: 'POST',
      headers: { ...test.alice.headers, ...headers, 'content-type': 'application/json' },
      body: JSON.stringify({ ...body, stream: true }),
    });
    expect(await streamed.text()).toContain('"content":"same"');
    expect(await contents(sessionId)).toEqual(['again', 'same']);
  });

  it('refuses another body, and means nothing to another user', async () => {
    const sessionId = await openSession(test.alice);
    const headers = { 'idempotency-key': 'mine' };
    const first = send(sessionId, { message: 'a' }, headers);
    (await test.model.next()).finish();
    await first;
    const other = await send(sessionId, { message: 'b' }, headers);
    expect([other.status, other.body.code]).toEqual([409, 'idempotency_conflict']);
    const bob = new TestUser(test.host);
    const theirs = await openSession(bob);
    const reply = bob.request('POST', `/messages/${theirs}`, { body: { message: 'a' }, headers });
    (await test.model.next()).finish();
    expect((await reply).body.sessionId).toBe(theirs);
  });
});
