import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join as joinPath } from 'node:path';
import { afterAll, describe, expect, it, onTestFinished } from 'vitest';
import { type ClusterHost, useControlledCluster } from './support/host-cluster.js';
import { join, openSession, type SseStream, stream } from './support/stream.js';
import type { TestUser } from './support/user.js';

const JOURNAL = joinPath(import.meta.dirname, 'support/journal-process.ts');
const PAUSED_RUNS_PER_USER = 3;
const folder = mkdtempSync(joinPath(tmpdir(), 'sibyl-pausing-'));
const traceFile = joinPath(folder, 'trace');
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const test = useControlledCluster(
  {
    TRACE_FILE: traceFile,
    PAUSED_RUNS_PER_USER: String(PAUSED_RUNS_PER_USER),
    TURNS_PER_USER: '2',
  },
  { main: JOURNAL },
);

const countTraces = (text: string) =>
  existsSync(traceFile)
    ? readFileSync(traceFile, 'utf8')
        .split('\n')
        .filter((line) => line === text).length
    : 0;
const readRun = async (user: TestUser, sessionId: string) =>
  (await user.request('GET', `/sessions/${sessionId}/run`)).body.run;
const answer = (user: TestUser, interruptId: string, value: unknown) =>
  user.request('POST', `/journal/answers/${interruptId}`, { body: { value } });

let texts = 0;

interface PausedTurn {
  readonly users: readonly [TestUser, TestUser, TestUser];
  readonly sessionId: string;
  readonly live: SseStream;
  readonly interruptId: string;
  /** What the tool will leave in the file once it acts. */
  readonly text: string;
}

/** A turn that waits for a confirmation. */
async function pause(
  options: { users?: PausedTurn['users']; expiresInSeconds?: number } = {},
): Promise<PausedTurn> {
  const { users = test.newUser(), expiresInSeconds } = options;
  const text = `text ${texts++}`;
  const sessionId = await openSession(users[0]);
  const live = await stream(users[0], sessionId, { message: 'Act' });
  const turn = await test.model.next();
  turn.say('Let me ask. ');
  turn.call({ name: 'act_if_confirmed', input: { text, expiresInSeconds } });
  const frames = await live.toEnd();
  const interruptId = frames.at(-1)?.data.pending?.[0]?.id ?? '';
  return { users, sessionId, live, interruptId, text };
}

describe('a turn that waits for an answer', () => {
  it('ends its stream with done, whose status is interrupted, and is shown as paused', async () => {
    const { users, sessionId, live, interruptId, text } = await pause();
    expect(live.frames.at(-1)).toMatchObject({
      event: 'done',
      data: {
        runId: live.runId,
        status: 'interrupted',
        interrupted: true,
        pending: [{ id: expect.any(String), kind: 'confirmation' }],
      },
    });
    expect(interruptId).not.toBe('');
    for (const user of users)
      expect(await readRun(user, sessionId)).toMatchObject({ runId: live.runId, status: 'paused' });
    expect(await (await join(users[1], live.runId, 0)).toEnd()).toEqual(live.frames);
    expect(countTraces(text)).toBe(0);
  });

  it('is reported by a JSON reply with its status and what it waits for', async () => {
    const [here] = test.newUser();
    const sessionId = await openSession(here);
    const reply = here.request('POST', `/messages/${sessionId}`, { body: { message: 'Act' } });
    const turn = await test.model.next();
    turn.say('Let me ask. ');
    turn.call({ name: 'act_if_confirmed', input: { text: 'as JSON' } });
    const { status, body } = await reply;
    expect(status).toBe(200);
    expect(body).toMatchObject({
      status: 'interrupted',
      pending: [{ id: expect.any(String), kind: 'confirmation' }],
      message: { content: 'Let me ask. ' },
    });
  });

  it('continues on the host that receives the answer', async () => {
    const { users, sessionId, live, interruptId, text } = await pause();
    const answered = await answer(users[1], interruptId, { approved: true });
    expect(answered.status).toBe(200);
    const { runId } = answered.body;
    expect(runId).not.toBe(live.runId);
    const next = await test.model.next();
    expect(next.results).toEqual([JSON.stringify({ approved: true })]);
    const continued = await join(users[2], runId, 0);
    next.answer('Done.');
    const frames = await continued.toEnd();
    expect(frames[0]).toMatchObject({
      event: 'run',
      id: 1,
      data: { runId, resumed: true, attempt: 2, partialLength: 'Let me ask. '.length },
    });
    expect(frames.at(-1)?.data).toMatchObject({ runId, status: 'finished' });
    expect(countTraces(text)).toBe(1);
    const { messages } = (await users[0].request('GET', `/messages/${sessionId}`)).body;
    expect(messages).toMatchObject([
      { type: 'human', content: 'Act' },
      { type: 'ai', content: expect.stringMatching(/^Let me ask\.\s+Done\.$/), isComplete: true },
    ]);
  });

  it('returns the same run for the same answer, and 409 for another', async () => {
    const { users, interruptId, text } = await pause();
    const answers = await Promise.all(
      users.map((user) => answer(user, interruptId, { approved: true })),
    );
    const runs = new Set(answers.map(({ body }) => body.runId));
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200]);
    expect(runs.size).toBe(1);
    (await test.model.next()).answer('Done.');
    const [runId = ''] = runs;
    await (await join(users[0], runId, 0)).toEnd();
    expect((await answer(users[2], interruptId, { approved: true })).body.runId).toBe(runId);
    const other = await answer(users[1], interruptId, { approved: false });
    expect([other.status, other.body.code]).toEqual([409, 'interrupt_closed']);
    expect(countTraces(text)).toBe(1);
    expect(test.model.arrived).toBe(0);
  });

  it('rejects an answer that does not match the schema, and still waits', async () => {
    const { users, sessionId, interruptId } = await pause();
    const wrong = await answer(users[1], interruptId, { approved: 'perhaps' });
    expect(wrong.status).toBe(400);
    expect(JSON.stringify(wrong.body.message)).toContain('approved');
    expect(await readRun(users[0], sessionId)).toMatchObject({ status: 'paused' });
  });

  it('rejects answers of other users and unknown questions with 404', async () => {
    const { interruptId } = await pause();
    const [stranger] = test.newUser();
    for (const id of [interruptId, 'unknown']) {
      const { status, body } = await answer(stranger, id, { approved: true });
      expect([status, body.code]).toEqual([404, 'interrupt_not_found']);
    }
  });

  it('survives the death of its host', { timeout: 120_000 }, async () => {
    const { users, sessionId, interruptId, text } = await pause();
    const [victim] = test.hosts as readonly [ClusterHost, ...ClusterHost[]];
    await victim.kill();
    onTestFinished(() => victim.start());
    expect(await readRun(users[1], sessionId)).toMatchObject({ status: 'paused' });
    const { body } = await answer(users[2], interruptId, { approved: true });
    (await test.model.next()).answer('Done.');
    const frames = await (await join(users[1], body.runId, 0)).toEnd();
    expect(frames.at(-1)?.data).toMatchObject({ status: 'finished' });
    expect(countTraces(text)).toBe(1);
  });

  it('is canceled by a new message, and the model learns that', async () => {
    const { users, sessionId, live, interruptId, text } = await pause();
    const second = await stream(users[1], sessionId, { message: 'Something else' });
    const next = await test.model.next();
    const prompt = JSON.stringify(next.body.messages);
    expect(prompt).toContain('Something else');
    expect(prompt).toMatch(/instead of answering|cancel/i);
    next.answer('Fine.');
    expect((await second.toEnd()).at(-1)?.data).toMatchObject({ status: 'finished' });
    const late = await answer(users[2], interruptId, { approved: true });
    expect([late.status, late.body.code]).toEqual([409, 'interrupt_closed']);
    expect(countTraces(text)).toBe(0);
    const old = await (await join(users[2], live.runId, 0)).toEnd();
    expect(old.at(-1)?.data).toMatchObject({ status: 'interrupted' });
  });

  it('is ended by POST /messages/abort on any host', async () => {
    const { users, sessionId, interruptId, text } = await pause();
    const aborted = await users[2].request('POST', '/messages/abort', { body: { sessionId } });
    expect(aborted.body).toEqual({ success: true });
    expect(await readRun(users[1], sessionId)).toMatchObject({ status: 'aborted' });
    const late = await answer(users[0], interruptId, { approved: true });
    expect([late.status, late.body.code]).toEqual([409, 'interrupt_closed']);
    expect(countTraces(text)).toBe(0);
  });

  it('continues when its question expires', { timeout: 120_000 }, async () => {
    const { users, sessionId, live, interruptId, text } = await pause({ expiresInSeconds: 1 });
    const next = await test.model.next();
    expect(next.results).toHaveLength(1);
    expect(next.results[0]).toMatch(/expired/);
    next.answer('Too late.');
    await expect
      .poll(() => readRun(users[1], sessionId))
      .toMatchObject({ runId: expect.not.stringContaining(live.runId), status: 'finished' });
    const late = await answer(users[0], interruptId, { approved: true });
    expect([late.status, late.body.code]).toEqual([409, 'interrupt_closed']);
    expect(countTraces(text)).toBe(0);
  });

  it('does not count toward TURNS_PER_USER, but toward PAUSED_RUNS_PER_USER', async () => {
    const users = test.newUser();
    // More than TURNS_PER_USER.
    for (let i = 0; i < PAUSED_RUNS_PER_USER; i++) await pause({ users });
    const sessionId = await openSession(users[1]);
    const live = await stream(users[1], sessionId, { message: 'One more' });
    (await test.model.next()).call({ name: 'act_if_confirmed', input: { text: 'one more' } });
    const frames = await live.toEnd();
    expect(frames.at(-2)).toMatchObject({
      event: 'error',
      data: { error: expect.stringContaining('wait for an answer') },
    });
    expect(frames.at(-1)?.data).toMatchObject({ status: 'failed', failed: true });
    // The host itself still accepts messages.
    const after = await stream(users[2], sessionId, { message: 'Only talk' });
    (await test.model.next()).answer('Fine.');
    expect((await after.toEnd()).at(-1)?.data).toMatchObject({ status: 'finished' });
  });
});
