import { describe, expect, it } from 'vitest';
import { allMessages } from '../../test/support/all-messages.js';
import { newOwner, useStore } from '../../test/support/test-database.js';
import {
  createRunRequest,
  expectStarted,
  finishTestRun,
  openTestSession,
  startTestRun,
} from '../../test/support/test-runs.js';
import type { Message, NewMessage } from './message-store.js';

const oracleDid = 'did:key:zOracle';
let now = 1_000;
const test = useStore('sqlite', { clock: () => now });

/** A session and a function that adds a message to it. */
async function openSession() {
  const session = await openTestSession(test.store);
  const say = async (
    type: 'human' | 'ai',
    content: string,
    more: Partial<NewMessage> = {},
  ): Promise<Message> => {
    const body = { ...session, type, content, requestId: 'request', isComplete: true };
    const stored = await test.store.messages.append({ ...body, ...more });
    if (!stored) throw new Error('no such session');
    return stored;
  };
  return { ...session, say };
}

async function copyTo(last: Message) {
  const { owner } = last;
  const { sessionId } = await test.store.sessions.create({ owner, oracleDid });
  await test.store.messages.copy(last, sessionId);
  const session = await test.store.sessions.get({ owner, sessionId });
  return { session, copies: await allMessages(test.store, { owner, sessionId }) };
}

describe('MessageStore.copy', () => {
  it('copies a session that is longer than a page up to the message', async () => {
    const { say } = await openSession();
    const long = 'z'.repeat(100 * 1024);
    const said: Message[] = [];
    for (let i = 0; i < 4; i += 1) {
      said.push(await say('human', `q${i} ${long}`));
      said.push(await say('ai', `a${i}`));
    }
    for (const count of [1, 2, 5, 6, 7, 8]) {
      const { session, copies } = await copyTo(said[count - 1] as Message);
      expect(copies.map(({ content }) => content)).toEqual(
        said.slice(0, count).map(({ content }) => content),
      );
      expect(session.activeMessageId).toBe(copies.at(-1)?.id);
    }
  });

  it('keeps what was said and when, with new ids and without the run', async () => {
    const { say } = await openSession();
    const metadata = { spaceId: 's' };
    const question = await say('human', 'q1', { metadata });
    now += 10;
    const parts = [{ type: 'text', text: 'a1' }] as const;
    const answer = await say('ai', 'a1', { parts, runId: 'run', isComplete: false });
    now += 10;
    const { session, copies } = await copyTo(answer);
    const [copiedQuestion, copiedAnswer] = copies;
    const { sessionId } = session;
    expect(copies).toEqual([
      { ...question, id: copiedQuestion?.id, sessionId, parent: undefined },
      { ...answer, id: copiedAnswer?.id, sessionId, parent: copiedQuestion?.id, runId: undefined },
    ]);
    expect(copies.map(({ id }) => id)).not.toContain(question.id);
    expect(copies.map(({ id }) => id)).not.toContain(answer.id);
  });

  it('numbers the turns of a branch again from the first', async () => {
    const session = await openTestSession(test.store);
    const { runs, messages } = test.store;
    const ask = async (content: string, parentId?: string | null) => {
      const origin = parentId === undefined ? undefined : { parentId };
      const { key } = await startTestRun(test.store, { ...session, message: { content }, origin });
      return (await finishTestRun(runs, key, { content: `re ${content}` }))?.message;
    };
    const first = await ask('1');
    await ask('2');
    const edited = await ask('edited', first?.id);
    const { session: copied, copies } = await copyTo(edited as Message);
    expect(copies.map(({ content, turn, seq, branch }) => [content, turn, seq, branch])).toEqual([
      ['1', 1, 1, 0],
      ['re 1', 1, 2, 0],
      ['edited', 2, 3, 0],
      ['re edited', 2, 4, 0],
    ]);
    expect(copied).toMatchObject({ branch: 0, isBranched: false });
    const next = {
      owner: copied.owner,
      sessionId: copied.sessionId,
      requestId: 'r',
      isComplete: true,
    };
    expect(await messages.append({ ...next, type: 'human', content: 'next' })).toMatchObject({
      turn: 3,
      seq: 5,
      parent: copies.at(-1)?.id,
    });
  });
});

describe('MessageStore.append', () => {
  it('dates the message and its session', async () => {
    const { owner, sessionId, say } = await openSession();
    now += 500;
    expect(await say('human', 'q1')).toMatchObject({ createdAt: now, turn: 1, seq: 1 });
    expect(await test.store.sessions.get({ owner, sessionId })).toMatchObject({
      lastUpdatedAt: now,
    });
  });

  it('opens a turn for each question, and for no answer', async () => {
    const { say } = await openSession();
    const turns: (readonly [number, number])[] = [];
    for (const type of ['ai', 'human', 'ai', 'ai', 'human'] as const) {
      const { turn, seq } = await say(type, type);
      turns.push([turn, seq]);
    }
    expect(turns).toEqual([
      [0, 1],
      [1, 2],
      [1, 3],
      [1, 4],
      [2, 5],
    ]);
  });

  it('lets an answer belong to an earlier turn, but a question never', async () => {
    const { say } = await openSession();
    await say('human', 'q1');
    await say('human', 'q2');
    expect(await say('ai', 'a1', { turn: 1 })).toMatchObject({ turn: 1 });
    expect(await say('human', 'q3', { turn: 1 })).toMatchObject({ turn: 3 });
  });

  it('keeps a parent that is given', async () => {
    const { owner, say } = await openSession();
    const first = await say('human', 'q1');
    await say('human', 'q2');
    for (const type of ['human', 'ai'] as const) {
      const message = await say(type, 'x', { parent: first.id });
      expect(message.parent).toBe(first.id);
      expect(await test.store.messages.find({ owner, messageId: message.id })).toEqual(message);
    }
  });
});

describe('MessageStore.findQuestion', () => {
  it('finds the question that a chain of answers is for', async () => {
    const { owner, sessionId, say } = await openSession();
    const { messages } = test.store;
    const find = ({ id: messageId }: Message, of = { owner, sessionId }) =>
      messages.findQuestion({ ...of, messageId });
    const welcome = await say('ai', 'welcome');
    const question = await say('human', 'q1');
    const answer = await say('ai', 'a1');
    const more = await say('ai', 'b1', { parent: answer.id });
    expect(await find(question)).toEqual(question);
    expect(await find(more)).toEqual(question);
    expect(await find(welcome)).toBeUndefined();
    expect(await find(more, { owner: newOwner(), sessionId })).toBeUndefined();
    expect(await find(question, { owner, sessionId: 'other' })).toBeUndefined();
  });
});

describe('the answer of a turn', () => {
  it('replaces the one of an earlier attempt, and keeps its place', async () => {
    const { runs } = test.store;
    const session = await openTestSession(test.store);
    const idempotency = { key: 'key', bodyHash: 'hash', expiresAt: now + 100_000 };
    const request = createRunRequest({ ...session, idempotency });
    const first = expectStarted(await runs.start(request));
    const { owner } = session;
    const failed = await finishTestRun(
      runs,
      { owner, runId: first.runId },
      {
        status: 'interrupted',
        message: {
          content: '',
          isComplete: false,
          error: { status: 'interrupted', code: 'host_stopping', message: 'why' },
        },
        report: { error: { code: 'host_stopping', message: 'why' } },
      },
    );
    expect(failed?.message).toMatchObject({ isComplete: false, runId: first.runId, seq: 2 });
    now += 50;
    const second = expectStarted(await runs.start({ ...request, runId: crypto.randomUUID() }));
    const parts = [{ type: 'text', text: 'At last' }] as const;
    await finishTestRun(
      runs,
      { owner, runId: second.runId },
      { status: 'finished', message: { content: 'At last', parts, isComplete: true } },
    );
    const [question, answer, ...others] = await allMessages(test.store, session);
    expect(others).toEqual([]);
    expect(answer).toEqual({
      ...session,
      id: failed?.message.id,
      type: 'ai',
      content: 'At last',
      parts,
      requestId: 'request',
      runId: second.runId,
      isComplete: true,
      createdAt: now - 50,
      turn: 1,
      seq: 2,
      branch: 0,
      parent: question?.id,
    });
  });
});

describe('RunStore.start', () => {
  const ask = (
    session: { owner: string; sessionId: string },
    more: Partial<Parameters<typeof createRunRequest>[0]> = {},
  ) => test.store.runs.start(createRunRequest({ ...session, ...more }));

  it('stores the question with all that belongs to it, and reserves its answer', async () => {
    const { sessions } = test.store;
    const session = await openTestSession(test.store);
    const metadata = { spaceId: 's' };
    const file = { mxcUri: 'mxc://a/b', filename: 'f.txt', mimetype: 'text/plain' };
    const parts = [{ type: 'file', file }] as const;
    now += 5;
    const run = expectStarted(await ask(session, { message: { content: 'q1', parts, metadata } }));
    const [question] = await allMessages(test.store, session);
    expect(question).toMatchObject({ type: 'human', content: 'q1', parts, metadata, turn: 1 });
    expect(question).toMatchObject({ isComplete: true, createdAt: now, runId: run.runId, seq: 1 });
    expect(await sessions.get(session)).toMatchObject({ activeMessageId: run.messageId });
    expectStarted(await ask(session, { message: { content: 'q2' } }));
    expect((await allMessages(test.store, session))[1]?.parent).toBe(run.messageId);
  });

  it('stores nothing in an unknown session, or after an unknown message', async () => {
    const session = await openTestSession(test.store);
    const foreign = { ...session, owner: newOwner() };
    expect(await ask(foreign)).toEqual({ state: 'unknown-session' });
    expect(await ask({ ...session, sessionId: 'unknown' })).toEqual({ state: 'unknown-session' });
    for (const origin of [{ parentId: 'unknown' }, { questionId: 'unknown' }])
      expect(await ask(session, { origin })).toEqual({ state: 'unknown-message' });
    expect(await ask(foreign, { origin: { parentId: null } })).toEqual({
      state: 'unknown-session',
    });
    expect(await allMessages(test.store, session)).toEqual([]);
    expect(await allMessages(test.store, foreign)).toEqual([]);
  });

  it('answers a question again in a new turn, without storing the question again', async () => {
    const session = await openTestSession(test.store);
    const { runs, sessions, messages } = test.store;
    const { owner, sessionId } = session;
    const first = expectStarted(await ask(session, { message: { content: 'q1' } }));
    await finishTestRun(runs, { owner, runId: first.runId }, { content: 'a1' });
    const [question] = await allMessages(test.store, session);
    const origin = { questionId: question?.id ?? '' };
    const again = expectStarted(await ask(session, { origin, message: { content: 'ignored' } }));
    expect(again).toMatchObject({ turn: 2, branch: 1 });
    const ended = await finishTestRun(runs, { owner, runId: again.runId }, { content: 'b1' });
    expect(ended?.message).toMatchObject({ parent: question?.id, branch: 1, turn: 2 });
    expect(await sessions.get(session)).toMatchObject({
      branch: 1,
      isBranched: true,
      activeMessageId: again.messageId,
    });
    const result = await messages.page({ owner, sessionId, branch: 1, limit: 10 });
    const page = 'ok' in result ? result.ok.messages : [];
    expect(page.map(({ content }) => content)).toEqual(['q1', 'b1']);
  });
});
