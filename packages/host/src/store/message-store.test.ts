import { describe, expect, it } from 'vitest';
import { allMessages, allPages } from '../../test/support/all-messages.js';
import { engines, newOwner, type TestStore, useStore } from '../../test/support/test-database.js';
import {
  createRunRequest,
  expectStarted,
  finishTestRun,
  startTestRun,
} from '../../test/support/test-runs.js';
import type { NewMessage } from './message-store.js';

const oracleDid = 'did:key:zOracle';

async function newSession({ store }: TestStore) {
  const owner = newOwner();
  const { sessionId } = await store.sessions.create({ owner, oracleDid });
  const say = (type: 'human' | 'ai', content: string): NewMessage => ({
    owner,
    sessionId,
    type,
    content,
    requestId: 'request',
    isComplete: true,
  });
  return { owner, sessionId, say };
}

describe.each(engines)('MessageStore.append on %s', (engine) => {
  const test = useStore(engine);

  it('stores every field', async () => {
    const { owner, sessionId, say } = await newSession(test);
    const full: NewMessage = {
      ...say('ai', 'Hello 🜁'),
      isComplete: false,
      parts: [
        { type: 'reasoning', text: 'thought' },
        {
          type: 'tool-call',
          call: { id: 't', name: 'add', args: { a: 1 }, status: 'done', output: '2' },
        },
        { type: 'text', text: 'Hello 🜁' },
        {
          type: 'file',
          file: { mxcUri: 'mxc://a/b', filename: 'f.txt', mimetype: 'text/plain' },
        },
        { type: 'component', component: { id: 'c', name: 'chart', args: { x: [1] } } },
        { type: 'citation', citation: { title: 'f.txt', position: 'line 3' } },
      ],
      error: { status: 'failed', code: 'model_unavailable', message: 'no', kind: 'server' },
      parent: 'above',
      runId: 'run',
      metadata: { spaceId: 's', nested: [null, 1] },
    };
    const stored = await test.store.messages.append(full);
    const messageId = stored?.id ?? '';
    expect(await test.store.messages.find({ owner, messageId })).toEqual(stored);
    expect(await test.store.messages.find({ owner: newOwner(), messageId })).toBeUndefined();
    expect(await allMessages(test.store, { owner, sessionId })).toEqual([stored]);
    expect(stored).toMatchObject(full);
  });

  it('treats the session of another user as unknown', async () => {
    const { owner, sessionId, say } = await newSession(test);
    const { messages } = test.store;
    const mine = await messages.append(say('human', 'mine'));
    const stranger = newOwner();
    expect(await messages.append({ ...say('human', 'x'), owner: stranger })).toBeUndefined();
    expect(await messages.append({ ...say('human', 'x'), sessionId: 'unknown' })).toBeUndefined();
    expect(await allMessages(test.store, { owner: stranger, sessionId })).toEqual([]);
    const page = { sessionId, branch: 0, limit: 10 };
    expect(await messages.page({ ...page, owner: stranger, before: mine?.id })).toEqual({
      error: 'unknown-cursor',
    });
    expect(await messages.page({ ...page, owner: stranger })).toMatchObject({
      ok: { messages: [], hasOlder: false, hasNewer: false },
    });
    expect(await allMessages(test.store, { owner, sessionId })).toHaveLength(1);
  });

  it('numbers 50 concurrent messages without gaps or duplicates, across processes', async () => {
    const { owner, sessionId, say } = await newSession(test);
    const second = await test.another();
    await Promise.all(
      Array.from({ length: 50 }, (_, i) =>
        (i % 2 === 0 ? test.store : second).messages.append(say('human', String(i))),
      ),
    );
    const stored = await allMessages(test.store, { owner, sessionId });
    expect(stored.map(({ seq }) => seq)).toEqual(Array.from({ length: 50 }, (_, i) => i + 1));
    expect(new Set(stored.map(({ content }) => content)).size).toBe(50);
  });

  it('continues from the end of the previous turn, and answers the question of its turn', async () => {
    const { owner, sessionId, say } = await newSession(test);
    const { messages } = test.store;
    const question = await messages.append(say('human', 'q1'));
    const answer = await messages.append(say('ai', 'a1'));
    const next = await messages.append(say('human', 'q2'));
    expect(question?.parent).toBeUndefined();
    expect(answer?.parent).toBe(question?.id);
    expect(next?.parent).toBe(answer?.id);
    const late = await messages.append({ ...say('ai', 'late'), turn: question?.turn });
    expect(late?.parent).toBe(question?.id);
    const stored = await allMessages(test.store, { owner, sessionId });
    expect(Object.fromEntries(stored.map(({ content, parent }) => [content, parent]))).toEqual({
      q1: undefined,
      a1: question?.id,
      late: question?.id,
      q2: answer?.id,
    });
  });

  it('orders an answer after its question, also if the next question was stored earlier', async () => {
    const { owner, sessionId, say } = await newSession(test);
    const { messages } = test.store;
    const question = await messages.append(say('human', 'q1'));
    await messages.append(say('human', 'q2'));
    await messages.append({ ...say('ai', 'a1'), turn: question?.turn });
    await messages.append(say('ai', 'a2'));
    const contents = async (throughTurn: number) =>
      (await messages.recent({ owner, sessionId, branch: 0, throughTurn, bytes: 10_000 })).map(
        ({ content }) => content,
      );
    expect(await contents(2)).toEqual(['q1', 'a1', 'q2', 'a2']);
    expect(await contents(1)).toEqual(['q1', 'a1']);
  });
});

describe.each(engines)('MessageStore with a long session on %s', (engine) => {
  const test = useStore(engine);
  const KB = 1024;

  /** Turns that count as three kilobytes each, two for their messages; the question with characters of two bytes and a call of a tool. */
  async function listTurns(count: number) {
    const { owner, sessionId, say } = await newSession(test);
    const output = 'x'.repeat(KB / 2);
    const call = { id: 't', name: 'n', args: {}, status: 'done', output } as const;
    const parts = [{ type: 'tool-call', call }] as const;
    for (let turn = 1; turn <= count; turn++) {
      await test.store.messages.append(say('human', `${turn} `.padEnd(KB / 8, 'é')));
      await test.store.messages.append({ ...say('ai', 'y'.repeat(KB / 4)), parts });
    }
    return { owner, sessionId };
  }

  it('recent reads the newest turns, up to twice the requested size', async () => {
    const key = await listTurns(30);
    const turnsRead = async (throughTurn: number, bytes: number) => {
      const read = await test.store.messages.recent({ ...key, branch: 0, throughTurn, bytes });
      return read.filter(({ type }) => type === 'human').map(({ turn }) => turn);
    };
    expect(await turnsRead(30, 100 * KB)).toHaveLength(30);
    const some = await turnsRead(30, 15 * KB);
    expect(some.at(-1)).toBe(30);
    expect(some.length).toBeGreaterThanOrEqual(5);
    expect(some.length).toBeLessThanOrEqual(11);
    expect(await turnsRead(30, 1)).toEqual([30]);
  });

  it('recent begins at the same turn for many turns', async () => {
    const key = await listTurns(30);
    const begins = async (throughTurn: number) =>
      (await test.store.messages.recent({ ...key, branch: 0, throughTurn, bytes: 24 * KB }))[0]
        ?.turn;
    const all = await Promise.all(Array.from({ length: 30 }, (_, i) => begins(i + 1)));
    expect(new Set(all).size).toBeLessThanOrEqual(4);
    expect(all).toEqual(all.toSorted((a = 0, b = 0) => a - b));
  });

  it('pages reads all messages in parts', async () => {
    const { owner, sessionId, say } = await newSession(test);
    const long = 'z'.repeat(50 * KB);
    for (let i = 0; i < 8; i++) await test.store.messages.append(say('human', `${i}${long}`));
    const pages = await allPages(test.store, { owner, sessionId });
    expect(pages.map((page) => page.length)).toEqual([2, 2, 2, 2]);
    expect(pages.flat().map(({ content }) => content[0])).toEqual([...'01234567']);
  });
});

describe.each(engines)('MessageStore.page on %s', (engine) => {
  const test = useStore(engine);

  /** Ten turns of a question and two answers each, as q1 a1 b1 q2 … */
  async function tenTurns() {
    const { owner, sessionId, say } = await newSession(test);
    const ids = new Map<string, string>();
    for (let turn = 1; turn <= 10; turn++) {
      for (const part of ['q', 'a', 'b']) {
        const message = say(part === 'q' ? 'human' : 'ai', `${part}${turn}`);
        ids.set(message.content, (await test.store.messages.append(message))?.id ?? '');
      }
    }
    const page = async (cursor: { before?: string; after?: string }, limit = 2) => {
      const result = await test.store.messages.page({
        owner,
        sessionId,
        branch: 0,
        limit,
        before: cursor.before && (ids.get(cursor.before) ?? cursor.before),
        after: cursor.after && (ids.get(cursor.after) ?? cursor.after),
      });
      if ('error' in result) return result;
      const contents = result.ok.messages.map(({ content }) => content);
      return { ...result.ok, messages: contents.join(' ') };
    };
    return { page, ids };
  }

  it('returns the newest turns without a cursor', async () => {
    const { page, ids } = await tenTurns();
    expect(await page({})).toEqual({
      messages: 'q9 a9 b9 q10 a10 b10',
      prevCursor: ids.get('q9'),
      nextCursor: ids.get('b10'),
      hasOlder: true,
      hasNewer: false,
    });
  });

  it('ends a page of long turns early, and the next one continues it', async () => {
    const { owner, sessionId, say } = await newSession(test);
    const long = 'z'.repeat(200 * 1024);
    for (let i = 0; i < 5; i++) await test.store.messages.append(say('human', `${i}${long}`));
    const read = async (cursor: { before?: string; after?: string }) => {
      const page = { owner, sessionId, branch: 0, limit: 100, ...cursor };
      const result = await test.store.messages.page(page);
      if ('error' in result) throw new Error(result.error);
      const { messages, prevCursor, nextCursor, ...more } = result.ok;
      const said = messages.map(({ content }) => content[0]).join('');
      return { said, before: prevCursor ?? '', after: nextCursor ?? '', ...more };
    };
    const newest = await read({});
    expect(newest).toMatchObject({ said: '34', hasOlder: true, hasNewer: false });
    const middle = await read({ before: newest.before });
    expect(middle).toMatchObject({ said: '12', hasOlder: true, hasNewer: true });
    const oldest = await read({ before: middle.before });
    expect(oldest).toMatchObject({ said: '0', hasOlder: false, hasNewer: true });
    const next = await read({ after: oldest.after });
    expect(next).toMatchObject({ said: '12', hasOlder: true, hasNewer: true });
  });

  it('returns one turn, however long it is', async () => {
    const { owner, sessionId, say } = await newSession(test);
    for (const type of ['human', 'ai'] as const)
      await test.store.messages.append(say(type, 'z'.repeat(600 * 1024)));
    const result = await test.store.messages.page({ owner, sessionId, branch: 0, limit: 20 });
    expect(result).toMatchObject({ ok: { messages: [{}, {}], hasOlder: false } });
  });

  it('returns the turns before and after a cursor', async () => {
    const { page } = await tenTurns();
    const middle = { messages: 'q4 a4 b4 q5 a5 b5', hasOlder: true, hasNewer: true };
    expect(await page({ before: 'q6' })).toMatchObject(middle);
    expect(await page({ after: 'b3' })).toMatchObject(middle);
  });

  it('returns whole turns, also if the cursor is inside one', async () => {
    const { page } = await tenTurns();
    expect(await page({ before: 'a6' })).toMatchObject({ messages: 'q5 a5 b5 q6 a6 b6' });
    expect(await page({ after: 'a6' })).toMatchObject({ messages: 'q6 a6 b6 q7 a7 b7' });
  });

  it('is empty before the first and after the last turn', async () => {
    const { page } = await tenTurns();
    const empty = { messages: '', prevCursor: null, nextCursor: null };
    expect(await page({ before: 'q1' })).toEqual({ ...empty, hasOlder: false, hasNewer: true });
    expect(await page({ after: 'b10' })).toEqual({ ...empty, hasOlder: true, hasNewer: false });
  });

  it('pages through all turns in both directions', async () => {
    const { page } = await tenTurns();
    const seen: string[] = [];
    let before: string | undefined;
    for (;;) {
      const at = await page(before === undefined ? {} : { before }, 3);
      if ('error' in at) throw new Error(at.error);
      seen.unshift(at.messages);
      if (!at.hasOlder) break;
      before = at.prevCursor ?? '';
    }
    expect(seen.join(' ').split(' ')).toHaveLength(30);
    expect(seen[0]).toBe('q1 a1 b1');
  });

  it('returns an error for an unknown cursor', async () => {
    const { page } = await tenTurns();
    const other = await tenTurns();
    const unknown = { error: 'unknown-cursor' };
    expect(await page({ before: 'nothing' })).toEqual(unknown);
    expect(await page({ after: other.ids.get('q1') ?? '' })).toEqual(unknown);
  });
});

describe.each(engines)('MessageStore with two sessions of a user on %s', (engine) => {
  const test = useStore(engine);

  it('MessageStore.append answers the question of the same session', async () => {
    const { sessions, messages } = test.store;
    const { owner, say } = await newSession(test);
    const { sessionId } = await sessions.create({ owner, oracleDid });
    await messages.append(say('human', 'the first message of the other session'));
    await messages.append({ ...say('ai', 'welcome'), sessionId });
    const question = await messages.append({ ...say('human', 'q'), sessionId });
    const answer = await messages.append({ ...say('ai', 'a'), sessionId });
    expect(answer?.parent).toBe(question?.id);
  });

  it('MessageStore.find and findQuestion return the message that was asked for', async () => {
    const { messages } = test.store;
    const { owner, sessionId, say } = await newSession(test);
    const question = await messages.append(say('human', 'q1'));
    const answer = await messages.append(say('ai', 'a1'));
    const messageId = answer?.id ?? '';
    expect(await messages.find({ owner, messageId })).toEqual(answer);
    expect(await messages.find({ owner, messageId: 'unknown' })).toBeUndefined();
    expect(await messages.findQuestion({ owner, sessionId, messageId })).toEqual(question);
    const elsewhere = { owner, sessionId: 'another', messageId };
    expect(await messages.findQuestion(elsewhere)).toBeUndefined();
  });

  it('MessageStore.copy fills one session and changes no other', async () => {
    const { sessions, messages } = test.store;
    const { owner, sessionId, say } = await newSession(test);
    const { sessionId: copyId } = await sessions.create({ owner, oracleDid });
    await messages.append(say('human', 'q1'));
    const answer = await messages.append(say('ai', 'a1'));
    await messages.append(say('human', 'q2'));
    const before = await sessions.find({ owner, sessionId });
    if (answer) await messages.copy(answer, copyId);
    expect(await sessions.find({ owner, sessionId })).toEqual(before);
    const next = await messages.append({ ...say('human', 'next'), sessionId: copyId });
    const copied = await allMessages(test.store, { owner, sessionId: copyId });
    expect(copied.map(({ content, turn, seq }) => [content, turn, seq])).toEqual([
      ['q1', 1, 1],
      ['a1', 1, 2],
      ['next', 2, 3],
    ]);
    expect(next?.parent).toBe(copied[1]?.id);
    expect(await allMessages(test.store, { owner, sessionId })).toHaveLength(3);
  });

  it('RunStore.start changes the active branch of one session only', async () => {
    const { sessions, runs } = test.store;
    const other = await newSession(test);
    const { owner } = other;
    const { sessionId } = await sessions.create({ owner, oracleDid });
    const before = await sessions.find(other);
    const { key } = await startTestRun(test.store, { owner, sessionId });
    await finishTestRun(runs, key);
    const edited = createRunRequest({ owner, sessionId, origin: { parentId: null } });
    const run = expectStarted(await runs.start(edited));
    expect(await sessions.find({ owner, sessionId })).toMatchObject({
      branch: 1,
      isBranched: true,
      activeMessageId: run.messageId,
    });
    expect(await sessions.find(other)).toEqual(before);
  });
});
