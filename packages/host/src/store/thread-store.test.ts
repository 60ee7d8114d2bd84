import { describe, expect, it } from 'vitest';
import { readRows } from '../../test/support/stored-rows.js';
import { engines, newOwner, useStore } from '../../test/support/test-database.js';
import { copySession, finishTestRun, startTestRun } from '../../test/support/test-runs.js';

const oracleDid = 'did:key:zOracle';

describe.each(engines)('ThreadStore on %s', (engine) => {
  const test = useStore(engine);

  async function openThread(owner: string, surface: string, threadId: string) {
    const session = await test.store.sessions.create({
      owner,
      oracleDid,
      thread: { surface, threadId },
    });
    return { owner, sessionId: session.sessionId };
  }

  /** A turn whose question a client knows by an id. */
  async function ask(session: { owner: string; sessionId: string }, clientId: string) {
    const { store } = test;
    const request = { ...session, message: { content: clientId }, clientIds: [clientId] };
    const { key } = await startTestRun(store, request);
    const ended = await finishTestRun(store.runs, key, { content: 'answer' });
    return { questionId: ended?.message.parent ?? '', answerId: ended?.message.id ?? '' };
  }

  it('ThreadStore.find and findId know a thread by its owner, surface and id', async () => {
    const { threads } = test.store;
    const owner = newOwner();
    const first = await openThread(owner, 'chat', 'one');
    const second = await openThread(owner, 'chat', 'two');
    const third = await openThread(owner, 'agent', 'one');
    expect(await threads.find({ owner, surface: 'chat', threadId: 'one' })).toBe(first.sessionId);
    expect(await threads.find({ owner, surface: 'chat', threadId: 'two' })).toBe(second.sessionId);
    expect(await threads.find({ owner, surface: 'agent', threadId: 'one' })).toBe(third.sessionId);
    expect(await threads.find({ owner, surface: 'agent', threadId: 'two' })).toBeUndefined();
    const foreign = { owner: newOwner(), surface: 'chat' };
    expect(await threads.find({ ...foreign, threadId: 'one' })).toBeUndefined();
    expect(await threads.findId({ ...first, surface: 'chat' })).toBe('one');
    expect(await threads.findId({ ...second, surface: 'chat' })).toBe('two');
    expect(await threads.findId({ ...second, surface: 'agent' })).toBeUndefined();
    expect(await threads.findId({ ...first, ...foreign })).toBeUndefined();
  });

  it('SessionStore.createWithin returns the session that a thread has', async () => {
    const { sessions } = test.store;
    const owner = newOwner();
    const { sessionId } = await openThread(owner, 'chat', 'one');
    const thread = { surface: 'chat', threadId: 'one' };
    const known = await sessions.createWithin(1, { owner, oracleDid, thread });
    expect(known?.sessionId).toBe(sessionId);
    const another = await sessions.createWithin(1, { owner: newOwner(), oracleDid, thread });
    expect(another?.sessionId).not.toBe(sessionId);
  });

  it('ThreadStore.messages finds messages of the session by both kinds of ids', async () => {
    const { threads } = test.store;
    const owner = newOwner();
    const first = await openThread(owner, 'chat', 'one');
    const second = await openThread(owner, 'chat', 'two');
    const inFirst = await ask(first, 'm1');
    const inSecond = await ask(second, 'm1');
    const ids = ['m1', inFirst.answerId, inSecond.answerId, 'unknown'];
    const ofFirst = await threads.messages(first, ids);
    expect([...ofFirst.keys()]).toEqual(['m1', inFirst.answerId]);
    expect(ofFirst.get('m1')).toMatchObject({ id: inFirst.questionId, content: 'm1' });
    expect(ofFirst.get(inFirst.answerId)).toMatchObject({ type: 'ai', content: 'answer' });
    const ofSecond = await threads.messages(second, ids);
    expect([...ofSecond.keys()]).toEqual(['m1', inSecond.answerId]);
    expect(ofSecond.get('m1')).toHaveProperty('id', inSecond.questionId);
    expect((await threads.messages({ ...first, owner: newOwner() }, ids)).size).toBe(0);
    expect((await threads.messages(first, [])).size).toBe(0);
  });

  it('ThreadStore.messages finds the messages of one user, also if another has the same ids of a session and of messages', async () => {
    const { imports, threads } = test.store;
    const session = await openThread(newOwner(), 'chat', 'one');
    const copied = await copySession(test.store, newOwner(), session);
    const asked = await ask(session, 'm1');
    const askedByOther = await ask(copied, 'm1');
    const rows = await readRows(test.store, 'messages', session.owner);
    const answers = rows.filter(({ id }) => id === asked.answerId);
    const changed = { content: 'answer to another user', turn: 2 };
    await imports.insert(
      copied.owner,
      'messages',
      answers.map((row) => ({ ...row, ...changed })),
    );
    const read = async (key: typeof session) => {
      const found = await threads.messages(key, ['m1', asked.answerId]);
      return [found.get('m1')?.id, found.get(asked.answerId)?.content];
    };
    expect(await read(session)).toEqual([asked.questionId, 'answer']);
    expect(await read(copied)).toEqual([askedByOther.questionId, 'answer to another user']);
  });

  it('ThreadStore.findAnswer returns the newest answer to one question', async () => {
    const { threads, messages } = test.store;
    const owner = newOwner();
    const session = await openThread(owner, 'chat', 'one');
    const other = await openThread(owner, 'chat', 'two');
    const { questionId, answerId } = await ask(session, 'm1');
    expect(await threads.findAnswer({ ...session, questionId })).toBe(answerId);
    const { key } = await startTestRun(test.store, { ...session, origin: { questionId } });
    const again = (await finishTestRun(test.store.runs, key))?.message.id;
    await ask(session, 'm2');
    const said = { ...session, content: 'more', requestId: 'r', isComplete: true } as const;
    await messages.append({ ...said, type: 'human', parent: questionId });
    expect(await threads.findAnswer({ ...session, questionId })).toBe(again);
    expect(await threads.findAnswer({ ...other, questionId })).toBeUndefined();
    const foreign = { ...session, owner: newOwner() };
    expect(await threads.findAnswer({ ...foreign, questionId })).toBeUndefined();
  });
});
