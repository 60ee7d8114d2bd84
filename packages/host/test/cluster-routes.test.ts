import { readToken } from '@sibyl/ucan';
import { describe, expect, it } from 'vitest';
import { useControlledCluster } from './support/host-cluster.js';
import { chart, resultsIn, scroll } from './support/page-tools.js';
import { joinSession } from './support/session-socket.js';
import { join, openSession, type SseFrame, stream } from './support/stream.js';
import type { TestUser } from './support/user.js';

const TURNS_PER_USER = 15;
const SESSIONS_PER_USER = 20;
/** Turns of one session that may wait behind the running one. */
const MAX_WAITING = 10;

const test = useControlledCluster({
  TURNS_PER_USER: String(TURNS_PER_USER),
  SESSIONS_PER_USER: String(SESSIONS_PER_USER),
});

const readRun = async (user: TestUser, sessionId: string) =>
  (await user.request('GET', `/sessions/${sessionId}/run`)).body.run;
const readContents = async (user: TestUser, sessionId: string): Promise<string[]> =>
  (await user.request('GET', `/messages/${sessionId}`)).body.messages.map(
    ({ content }: { content: string }) => content,
  );
const readLast = (frames: readonly SseFrame[]) => frames.at(-1)?.data;

/** A turn of one host at its first model call; the other hosts are those of the request under test. */
async function begin(message = 'one', fields: object = {}) {
  const [here, there, elsewhere] = test.newUser();
  const sessionId = await openSession(here);
  const live = await stream(here, sessionId, { message, ...fields });
  return { here, there, elsewhere, sessionId, live, turn: await test.model.next() };
}

describe('on another host than the turn', () => {
  it('POST /messages/abort ends it', async () => {
    const { there, elsewhere, sessionId, live, turn } = await begin();
    turn.say('partial');
    await live.untilEvent('message');
    const answer = await there.request('POST', '/messages/abort', { body: { sessionId } });
    expect([answer.status, answer.body]).toEqual([200, { success: true }]);
    expect(readLast(await live.toEnd())).toMatchObject({ status: 'aborted', aborted: true });
    await turn.left;
    await expect
      .poll(() => readRun(elsewhere, sessionId))
      .toMatchObject({ runId: live.runId, status: 'aborted' });
    expect(await readContents(elsewhere, sessionId)).toEqual(['one', 'partial']);
  });

  it('POST /messages/abort answers false once it has ended', async () => {
    const { there, sessionId, live, turn } = await begin();
    turn.answer('all');
    await live.toEnd();
    const { body } = await there.request('POST', '/messages/abort', { body: { sessionId } });
    expect(body).toEqual({ success: false });
  });

  it('POST /messages with multitask interrupt ends it and answers', async () => {
    const { there, elsewhere, sessionId, live, turn } = await begin();
    turn.say('partial');
    await live.untilEvent('message');
    const second = await stream(there, sessionId, { message: 'two', multitask: 'interrupt' });
    expect(readLast(await live.toEnd())).toMatchObject({ status: 'interrupted' });
    await turn.left;
    (await test.model.next()).answer('second');
    expect(readLast(await second.toEnd())).toMatchObject({ status: 'finished' });
    expect(await readContents(elsewhere, sessionId)).toEqual(['one', 'partial', 'two', 'second']);
  });

  it('POST /messages with multitask reject answers 409', async () => {
    const { there, sessionId, live, turn } = await begin();
    const body = { message: 'two', multitask: 'reject' };
    const answer = await there.request('POST', `/messages/${sessionId}`, { body });
    expect([answer.status, answer.body.code]).toEqual([409, 'turn_running']);
    turn.answer('all');
    await live.toEnd();
    expect(await readContents(there, sessionId)).toEqual(['one', 'all']);
  });

  it('POST /messages queues, and the turns run in the order they came', async () => {
    const { here, there, elsewhere, sessionId, live, turn } = await begin();
    const second = await stream(there, sessionId, { message: 'two' });
    const third = await stream(elsewhere, sessionId, { message: 'three' });
    const fourth = await stream(here, sessionId, { message: 'four' });
    expect(await readRun(there, sessionId)).toMatchObject({ runId: live.runId, status: 'running' });
    expect(test.model.arrived).toBe(0);
    turn.answer('1');
    for (const [text, reply] of [
      ['two', '2'],
      ['three', '3'],
      ['four', '4'],
    ] as const) {
      const next = await test.model.next();
      expect(next.body.messages.at(-1).content).toContain(text);
      expect(test.model.arrived).toBe(0);
      next.answer(reply);
    }
    for (const each of [live, second, third, fourth])
      expect(readLast(await each.toEnd())).toMatchObject({ status: 'finished' });
    expect(await readContents(there, sessionId)).toEqual([
      'one',
      '1',
      'two',
      '2',
      'three',
      '3',
      'four',
      '4',
    ]);
  });

  it('POST /messages answers 409 when the queue of the session is full', async () => {
    const { here, there, elsewhere, sessionId, live, turn } = await begin();
    for (let i = 0; i < MAX_WAITING; i++)
      await stream([here, there, elsewhere][i % 3] as TestUser, sessionId, { message: `q${i}` });
    for (const user of [here, there, elsewhere]) {
      const body = { message: 'too many' };
      const answer = await user.request('POST', `/messages/${sessionId}`, { body });
      expect([answer.status, answer.body.code]).toEqual([409, 'queue_full']);
    }
    turn.answer('first');
    for (let i = 0; i < MAX_WAITING; i++) (await test.model.next()).answer('next');
    expect(readLast(await live.toEnd())).toMatchObject({ status: 'finished' });
    await expect.poll(() => readRun(there, sessionId)).toMatchObject({ status: 'finished' });
  });

  it('GET /runs/:runId replays and follows it, frame by frame', async () => {
    const { there, elsewhere, live, turn } = await begin();
    turn.think('Hm.');
    turn.say('first ');
    await live.untilEvent('message');
    const early = await join(there, live.runId, 0);
    await early.untilEvent('message');
    turn.call({ name: 'list_capabilities', input: {} });
    const next = await test.model.next();
    next.say('second ');
    await early.until(({ data }) => data.content?.includes('second '));
    const late = await join(elsewhere, live.runId, early.lastId);
    next.answer('third');
    const frames = await live.toEnd();
    expect(await early.toEnd()).toEqual(frames);
    const rest = await late.toEnd();
    expect(rest.length).toBeGreaterThan(0);
    expect(rest).toEqual(frames.slice(-rest.length));
    expect(frames.map(({ id }) => id)).toEqual(frames.map((_, i) => i + 1));
  });

  it('GET /runs/:runId of a foreign run answers 404 while it runs', async () => {
    const { live, turn } = await begin();
    const [, stranger] = test.newUser();
    expect((await stranger.request('GET', `/runs/${live.runId}`)).status).toBe(404);
    turn.answer('all');
    await live.toEnd();
  });

  it('DELETE /sessions/:sessionId ends it and closes the sockets of all hosts', async () => {
    const { here, there, elsewhere, sessionId, live, turn } = await begin();
    const sockets = [await joinSession(here, sessionId), await joinSession(elsewhere, sessionId)];
    const deleted = await there.request('DELETE', `/sessions/${sessionId}`);
    expect(deleted.status).toBe(200);
    await turn.left;
    await live.toEnd().catch(() => undefined);
    expect(live.frames.some(({ data }) => data.status === 'finished')).toBe(false);
    for (const socket of sockets) await socket.until('(disconnect)');
    for (const user of [here, there, elsewhere])
      expect((await user.request('GET', `/messages/${sessionId}`)).status).toBe(404);
  });
});

describe('Idempotency-Key on several hosts', () => {
  const headers = { 'idempotency-key': 'same' };

  it('joins the running turn of another host', async () => {
    const [here, there] = test.newUser();
    const sessionId = await openSession(here);
    const live = await stream(here, sessionId, { message: 'once' }, headers);
    const turn = await test.model.next();
    const again = await stream(there, sessionId, { message: 'once' }, headers);
    expect(again.runId).toBe(live.runId);
    turn.answer('answered');
    expect(await again.toEnd()).toEqual(await live.toEnd());
    expect(await readContents(there, sessionId)).toEqual(['once', 'answered']);
  });

  it('starts one turn for simultaneous requests', async () => {
    const users = test.newUser();
    const sessionId = await openSession(users[0]);
    const lives = await Promise.all(
      [...users, ...users].map((user) => stream(user, sessionId, { message: 'once' }, headers)),
    );
    (await test.model.next()).answer('answered');
    const [first, ...others] = await Promise.all(lives.map((live) => live.toEnd()));
    for (const frames of others) expect(frames).toEqual(first);
    expect(test.model.arrived).toBe(0);
    expect(await readContents(users[1], sessionId)).toEqual(['once', 'answered']);
  });

  it('with another body answers 409', async () => {
    const [here, there] = test.newUser();
    const sessionId = await openSession(here);
    const live = await stream(here, sessionId, { message: 'once' }, headers);
    const body = { message: 'another' };
    const answer = await there.request('POST', `/messages/${sessionId}`, { body, headers });
    expect([answer.status, answer.body.code]).toEqual([409, 'idempotency_conflict']);
    (await test.model.next()).answer('answered');
    await live.toEnd();
  });
});

describe('DELETE /delegations/:cid', () => {
  const login = (raw: string) => ({ 'x-ucan-delegation': raw });

  it('ends logins, sockets and running turns on other hosts', async () => {
    const [here, there, elsewhere] = test.newUser();
    const raw = here.delegate();
    const cid = readToken(raw).ok?.root.cid ?? '';
    const sessionId = await openSession(here);
    const socket = await joinSession(there, sessionId, { auth: { ucanDelegation: raw } });
    const response = await fetch(`${there.host.url}/sessions`, { headers: login(raw) });
    expect(response.status).toBe(200);
    const revoked = await elsewhere.request('DELETE', `/delegations/${cid}`);
    expect(revoked.status).toBe(200);
    expect(await socket.until('closing')).toMatchObject({ reason: 'token_revoked' });
    for (const { host } of [here, there, elsewhere])
      await expect
        .poll(async () => (await fetch(`${host.url}/sessions`, { headers: login(raw) })).status)
        .toBe(401);
  });
});

describe('a socket on another host than the turn', () => {
  it('receives the events of the turn once, in order', async () => {
    const [here, there, elsewhere] = test.newUser();
    const sessionId = await openSession(here);
    const sockets = [await joinSession(there, sessionId), await joinSession(elsewhere, sessionId)];
    const live = await stream(here, sessionId, { message: 'go' });
    (await test.model.next()).call({ name: 'list_capabilities', input: {} });
    const next = await test.model.next();
    next.think('Hm.');
    next.answer('done');
    await live.toEnd();
    for (const socket of sockets) {
      await socket.until('tool_call', ({ payload }) => payload.status !== 'isRunning');
      await socket.until('reasoning');
      const statuses = socket.all('tool_call').map((data) => Object(data).payload.status);
      expect(statuses).toEqual(['isRunning', expect.stringMatching(/^(done|error)$/)]);
    }
  });

  it('receives nothing of other users', async () => {
    const [here] = test.newUser();
    const [, stranger] = test.newUser();
    const foreign = await joinSession(stranger, await openSession(stranger));
    const sessionId = await openSession(here);
    const live = await stream(here, sessionId, { message: 'go' });
    (await test.model.next()).call({ name: 'list_capabilities', input: {} });
    (await test.model.next()).answer('done');
    await live.toEnd();
    await foreign.ask('ping', 'pong');
    expect(foreign.all('tool_call')).toEqual([]);
  });

  it('answers browser_tool_call, and only the first answer counts', async () => {
    const [here, there, elsewhere] = test.newUser();
    const sessionId = await openSession(here);
    const first = await joinSession(there, sessionId);
    const second = await joinSession(elsewhere, sessionId);
    const live = await stream(here, sessionId, { message: 'go', tools: [scroll] });
    (await test.model.next()).call({ name: 'scroll', input: { by: 3 } });
    const call = await first.until('browser_tool_call');
    expect(call).toMatchObject({ sessionId, toolName: 'scroll', args: { by: 3 } });
    const { toolCallId } = await second.until('browser_tool_call');
    expect(toolCallId).toBe(call.toolCallId);
    first.socket.emit('tool_result', { toolCallId, result: 'first' });
    await first.ask('ping', 'pong');
    const next = await test.model.next();
    second.socket.emit('tool_result', { toolCallId, result: 'second' });
    await second.ask('ping', 'pong');
    expect(resultsIn(next)).toEqual(['first']);
    next.answer('done');
    expect(readLast(await live.toEnd())).toMatchObject({ status: 'finished' });
  });

  it('receives browser_tool_call although it connects after the call', async () => {
    const [here, there] = test.newUser();
    const sessionId = await openSession(here);
    const live = await stream(here, sessionId, { message: 'go', tools: [scroll] });
    (await test.model.next()).call({ name: 'scroll', input: { by: 3 } });
    await live.untilEvent('browser_tool_call');
    const socket = await joinSession(there, sessionId);
    const { toolCallId } = await socket.until('browser_tool_call');
    socket.socket.emit('tool_result', { toolCallId, result: 'late' });
    const next = await test.model.next();
    expect(resultsIn(next)).toEqual(['late']);
    next.answer('done');
    await live.toEnd();
  });

  it('tool_result of another user or session is ignored', async () => {
    const [here, there] = test.newUser();
    const [, , stranger] = test.newUser();
    const sessionId = await openSession(here);
    const socket = await joinSession(there, sessionId);
    const foreign = await joinSession(stranger, await openSession(stranger));
    const live = await stream(here, sessionId, { message: 'go', tools: [scroll] });
    (await test.model.next()).call({ name: 'scroll', input: { by: 3 } });
    const { toolCallId } = await socket.until('browser_tool_call');
    foreign.socket.emit('tool_result', { toolCallId, result: 'forged' });
    await foreign.ask('ping', 'pong');
    socket.socket.emit('tool_result', { toolCallId, result: 'real' });
    const next = await test.model.next();
    expect(resultsIn(next)).toEqual(['real']);
    next.answer('done');
    await live.toEnd();
  });

  it('executes action_call, and receives what to render', async () => {
    const [here, there] = test.newUser();
    const sessionId = await openSession(here);
    const socket = await joinSession(there, sessionId);
    const live = await stream(here, sessionId, { message: 'go', agActions: [chart] });
    (await test.model.next()).call({ name: 'chart', input: { of: 'rain' } });
    const { toolCallId } = await socket.until('action_call');
    socket.socket.emit('action_call_result', { sessionId, toolCallId, result: { shown: true } });
    const next = await test.model.next();
    expect(resultsIn(next)).toEqual([{ shown: true }]);
    next.answer('done');
    await live.toEnd();
    const { payload } = await socket.until('render_component');
    expect(payload).toMatchObject({ componentName: 'chart', args: { of: 'rain' }, status: 'done' });
  });
});

describe('limits of all hosts together', () => {
  /** Starts a turn and returns the status, which comes before the answer. */
  const send = async ({ host, headers }: TestUser, sessionId: string) => {
    const response = await fetch(`${host.url}/messages/${sessionId}`, {
      method: 'POST',
      headers: { ...headers, 'content-type': 'application/json' },
      body: JSON.stringify({ message: 'go', stream: true }),
    });
    await response.body?.cancel();
    return response.status;
  };

  it('TURNS_PER_USER holds for simultaneous messages on all hosts', async () => {
    const users = test.newUser();
    const sessions: string[] = [];
    for (let i = 0; i < SESSIONS_PER_USER; i++) sessions.push(await openSession(users[0]));
    const statuses = await Promise.all(
      [...sessions, ...sessions].map((id, i) => send(users[i % 3] as TestUser, id)),
    );
    expect(statuses.filter((status) => status === 200)).toHaveLength(TURNS_PER_USER);
    expect(statuses.filter((status) => status === 429)).toHaveLength(
      2 * SESSIONS_PER_USER - TURNS_PER_USER,
    );
    await Promise.all(sessions.map((id) => users[1].request('DELETE', `/sessions/${id}`)));
  });

  it('SESSIONS_PER_USER holds for simultaneous requests on all hosts', async () => {
    const users = test.newUser();
    const answers = await Promise.all(
      Array.from({ length: 2 * SESSIONS_PER_USER }, (_, i) =>
        (users[i % 3] as TestUser).request('POST', '/sessions'),
      ),
    );
    const created = answers.filter(({ status }) => status === 201);
    expect(created).toHaveLength(SESSIONS_PER_USER);
    const codes = answers.filter(({ status }) => status !== 201).map(({ body }) => body.code);
    expect(new Set(codes)).toEqual(new Set(['too_many_sessions']));
    expect((await users[2].request('GET', '/sessions')).body.total).toBe(SESSIONS_PER_USER);
  });
});
