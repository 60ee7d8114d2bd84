import { DatabaseSync } from 'node:sqlite';
import { Kysely } from 'kysely';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { allMessages, allPages } from '../../test/support/all-messages.js';
import { engines, newOwner, type TestStore, useStore } from '../../test/support/test-database.js';
import {
  createRunRequest,
  expectStarted,
  finishTestRun,
  openTestSession,
  startTestRun,
} from '../../test/support/test-runs.js';
import type { TurnOrigin } from './branches.js';
import {
  findFirstRecentTurn,
  type NewMessage,
  readPage,
  readSpan,
  splitIntoSpans,
  takeWholeTurns,
} from './message-store.js';
import { hostSchema, migrate } from './migrations.js';
import type { Schema } from './schema/index.js';
import { SqliteDialect } from './sqlite/sqlite-dialect.js';

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

describe.each(engines)('pages of messages on %s', (engine) => {
  const test = useStore(engine);

  /** The turns q1, q2 and q3, of which the second was answered again before the third was asked. */
  async function openBranched() {
    const { store } = test;
    const session = await openTestSession(store);
    const ids = new Map<string, string>();
    const ask = async (question: string, answer: string, origin?: TurnOrigin) => {
      const message = { content: question };
      const { key } = await startTestRun(store, { ...session, message, origin });
      const ended = await finishTestRun(store.runs, key, { content: answer });
      if (!origin) ids.set(question, ended?.message.parent ?? '');
      ids.set(answer, ended?.message.id ?? '');
    };
    await ask('q1', 'a1');
    await ask('q2', 'a2');
    await ask('', 'b2', { questionId: ids.get('q2') ?? '' });
    await ask('q3', 'a3');
    const page = async (cursor: { before?: string; after?: string }, limit = 1) => {
      const result = await store.messages.page({
        ...session,
        branch: 1,
        isBranched: true,
        limit,
        before: cursor.before && ids.get(cursor.before),
        after: cursor.after && ids.get(cursor.after),
      });
      if ('error' in result) throw new Error(result.error);
      const { messages, hasOlder, hasNewer } = result.ok;
      const said = messages.map(({ content }) => content).join(' ');
      return {
        said,
        hasOlder,
        hasNewer,
        siblings: messages.flatMap((each) => each.siblings ?? []),
      };
    };
    return { page, ids };
  }

  it('MessageStore.page refuses what would exhaust the memory', async () => {
    const { store } = test;
    const session = await openTestSession(store);
    const { key } = await startTestRun(store, session);
    await finishTestRun(store.runs, key, { content: 'x'.repeat(65 * 1024 * 1024) });
    const page = store.messages.page({ ...session, branch: 0, limit: 1 });
    await expect(page).rejects.toMatchObject({ code: 'bad_request' });
  });

  it('MessageStore.page has an answer that was given again in the turn of its question', async () => {
    const { page, ids } = await openBranched();
    const siblings = [ids.get('a2'), ids.get('b2')];
    const middle = { said: 'q2 b2', hasOlder: true, hasNewer: true, siblings };
    expect(await page({ before: 'q3' })).toEqual(middle);
    expect(await page({ before: 'b2' })).toEqual(middle);
    expect(await page({ after: 'a1' })).toEqual(middle);
  });

  it('MessageStore.page ends at its limit in both directions, also on a branch', async () => {
    const { page } = await openBranched();
    expect(await page({})).toMatchObject({ said: 'q3 a3', hasOlder: true, hasNewer: false });
    expect(await page({}, 2)).toMatchObject({ said: 'q2 b2 q3 a3', hasOlder: true });
    expect(await page({ before: 'q3' }, 2)).toMatchObject({ said: 'q1 a1 q2 b2', hasOlder: false });
    expect(await page({ after: 'a1' }, 2)).toMatchObject({ said: 'q2 b2 q3 a3', hasNewer: false });
    expect(await page({ before: 'q2' })).toMatchObject({ said: 'q1 a1', hasNewer: true });
  });

  it('MessageStore.recent does not measure turns after the last one that it reads', async () => {
    const { store } = test;
    const session = await openTestSession(store);
    const message = { ...session, type: 'human', requestId: 'request', isComplete: true } as const;
    for (const size of [100, 100, 100, 100_000])
      await store.messages.append({ ...message, content: 'x'.repeat(size) });
    const request = { ...session, branch: 0, throughTurn: 3, bytes: 10_000 };
    expect(await store.messages.recent(request)).toHaveLength(3);
  });
});

describe.each(engines)('pages of one branch on %s', (engine) => {
  const test = useStore(engine);

  interface Said {
    readonly type: 'human' | 'ai';
    readonly content: string;
    readonly turn?: number;
  }

  /** A session with these messages; returns a function that reads a page around one of them, by its content. */
  async function open(said: readonly Said[]) {
    const session = await openTestSession(test.store);
    const ids = new Map<string, string>();
    for (const each of said) {
      const message = { ...session, ...each, requestId: 'request', isComplete: true };
      ids.set(each.content, (await test.store.messages.append(message))?.id ?? '');
    }
    return async (cursor: { before?: string; after?: string } = {}, limit = 10) => {
      const result = await test.store.messages.page({
        ...session,
        branch: 0,
        limit,
        before: cursor.before && ids.get(cursor.before),
        after: cursor.after && ids.get(cursor.after),
      });
      if ('error' in result) throw new Error(result.error);
      const { messages, hasOlder, hasNewer } = result.ok;
      return { said: messages.map(({ content }) => content), hasOlder, hasNewer };
    };
  }

  it('MessageStore.page of an empty session is empty', async () => {
    const read = await open([]);
    expect(await read()).toEqual({ said: [], hasOlder: false, hasNewer: false });
  });

  it('MessageStore.page after a message contains the turn of an answer that was stored later', async () => {
    const read = await open([
      { type: 'human', content: 'q1' },
      { type: 'human', content: 'q2' },
      { type: 'human', content: 'q3' },
      { type: 'ai', content: 'a2', turn: 2 },
      { type: 'ai', content: 'a3', turn: 3 },
    ]);
    const last = { said: ['q2', 'a2', 'q3', 'a3'], hasOlder: true, hasNewer: false };
    expect(await read({ after: 'q3' })).toEqual(last);
    expect(await read({ after: 'q3' }, 1)).toEqual({
      said: ['q2', 'a2'],
      hasOlder: true,
      hasNewer: true,
    });
    expect(await read({ after: 'a2' })).toMatchObject({ said: ['q3', 'a3'] });
    expect(await read({ after: 'a3' })).toEqual({ said: [], hasOlder: true, hasNewer: false });
  });

  it('MessageStore.page may begin with an answer that has no question', async () => {
    const read = await open([
      { type: 'ai', content: 'welcome' },
      { type: 'human', content: 'q1' },
      { type: 'ai', content: 'a1' },
    ]);
    expect(await read({}, 1)).toEqual({ said: ['q1', 'a1'], hasOlder: true, hasNewer: false });
    expect(await read({ before: 'q1' }, 1)).toEqual({
      said: ['welcome'],
      hasOlder: false,
      hasNewer: true,
    });
    expect(await read({}, 2)).toMatchObject({ said: ['welcome', 'q1', 'a1'], hasOlder: false });
    expect(await read({ after: 'welcome' }, 1)).toMatchObject({ said: ['q1', 'a1'] });
    expect(await read({ before: 'welcome' })).toMatchObject({ said: [], hasOlder: false });
  });

  it('MessageStore.page may have exactly 512 KiB, with all that belongs to its turns', async () => {
    const half = (label: string, more = 0) => label.padEnd(256 * 1024 + more, 'x');
    const turns = ['1', '2', '3'].map((label): Said => ({ type: 'human', content: half(label) }));
    const read = await open(turns);
    const first = (page: { readonly said: readonly string[] }) =>
      page.said.map((content) => content[0]).join('');
    expect(first(await read())).toBe('23');
    expect(first(await read({ after: half('1') }))).toBe('23');
    const larger = await open([
      ...turns.slice(0, 2),
      { type: 'ai', content: 'a', turn: 2 },
      ...turns.slice(2),
    ]);
    expect(first(await larger())).toBe('3');
    expect(first(await larger({ before: half('3') }))).toBe('2a');
    expect(first(await larger({ after: half('1') }))).toBe('2a');
  });
});

describe('what pages of messages read on sqlite', () => {
  const LENGTH = 2_000;
  const session = { owner: 'did:a', sessionId: 's' };

  /** A session with a long branch, and a second one that begins at its end. */
  async function openLongBranch() {
    const handle = new DatabaseSync(':memory:');
    const tables = new Kysely<Schema>({ dialect: new SqliteDialect(handle) });
    onTestFinished(() => tables.destroy());
    await migrate(tables, hostSchema);
    handle.exec(`pragma foreign_keys = off;
      with recursive turns (turn) as (select 1 union all
        select turn + 1 from turns where turn < ${LENGTH})
      insert into messages (owner, id, session_id, turn, seq, branch, type, content, request_id,
        is_complete, created_at)
      select 'did:a', turn, 's', turn, turn, turn / ${LENGTH}, 'human', 'x', 'r', 1, 1 from turns;
      insert into branches (owner, session_id, branch, base_branch, base_turn, base_seq, parent_id,
        first_id) values ('did:a', 's', 1, 0, ${LENGTH - 1}, ${LENGTH - 1}, 'p', 'f');`);
    return { handle, tables };
  }

  /** Calls back for each message that a query reads in an index, before its other conditions. */
  function countReads(handle: DatabaseSync, read: () => void): void {
    handle.function('counted', (seq) => {
      read();
      return seq;
    });
    handle.exec(`alter table messages rename to stored_messages;
      create view messages as select * from stored_messages where counted(seq) > 0`);
  }

  it.each([false, true])(
    'readSpan reads nothing behind its span (siblings: %s)',
    async (isBranched) => {
      const { handle, tables } = await openLongBranch();
      let reads = 0;
      countReads(handle, () => {
        reads += 1;
      });
      const path = { ...session, branch: 1, isBranched };
      const messages = await readSpan(tables, path, { first: 11, last: 20 });
      expect(messages.map(({ turn }) => turn)).toEqual([11, 12, 13, 14, 15, 16, 17, 18, 19, 20]);
      expect(reads).toBeLessThan(100);
      const all = await readSpan(tables, path, { first: 1, last: LENGTH });
      expect(all).toHaveLength(LENGTH);
      expect(reads).toBeGreaterThan(LENGTH);
    },
  );

  it('readPage looks up the first and the last turn apart: for both, SQLite reads all turns', async () => {
    const { handle, tables } = await openLongBranch();
    const prepare = vi.spyOn(handle, 'prepare');
    const page = await readPage(tables, { ...session, branch: 0, limit: 1 });
    expect(page).toMatchObject({ ok: { hasOlder: true, hasNewer: false } });
    const queries = prepare.mock.calls.map(([text]) => text);
    expect(queries.some((text) => text.includes('min('))).toBe(true);
    expect(queries.filter((text) => text.includes('min(') && text.includes('max('))).toEqual([]);
  });

  it('readPage refuses a question with more turns than the memory has room for', async () => {
    const { handle, tables } = await openLongBranch();
    handle.exec(`with recursive turns (turn) as (select ${2 * LENGTH} union all
        select turn + 1 from turns where turn < ${2 * LENGTH} + 10000)
      insert into messages (owner, id, session_id, turn, seq, branch, parent, type, content, request_id,
        is_complete, created_at)
      select 'did:a', turn, 's', turn, turn, 0, '1', 'ai', 'x', 'r', 1, 1 from turns`);
    const path = { ...session, branch: 0, limit: 1 };
    await expect(readPage(tables, path)).rejects.toMatchObject({ code: 'bad_request' });
    expect(await readPage(tables, { ...path, before: '5' })).toHaveProperty('ok');
  });
});

describe('the size of turns', () => {
  const KB = 1024;
  /** Messages of whole kilobytes, one in each turn; each takes another one beside its text. */
  const list = (sizes: readonly number[]) =>
    sizes.map((size, i) => ({ turn: i + 1, bytes: (size - 1) * KB }));
  const newest = (sizes: readonly number[]) => list(sizes).toReversed();

  it('findFirstRecentTurn begins at the same turn for many turns', () => {
    const begins = (count: number) => findFirstRecentTurn(newest(Array(count).fill(1)), 30 * KB);
    const all = Array.from({ length: 1000 }, (_, i) => begins(i + 1));
    expect(all.slice(0, 59)).toEqual(Array(59).fill(1));
    expect(all).toEqual(all.toSorted((a, b) => a - b));
    expect(new Set(all).size).toBeLessThan(1000 / 15);
    expect(findFirstRecentTurn([], 30)).toBe(0);
  });

  it('findFirstRecentTurn reads at least the requested size, and less than twice as much and one turn', () => {
    const sizes = [5, 40, 3, 17, 29, 1, 12, 8, 33, 2];
    for (let size = 1; size <= 80; size += 1) {
      const first = findFirstRecentTurn(newest(sizes), size * KB);
      const read = sizes.slice(first - 1);
      const sum = read.reduce((total, each) => total + each, 0);
      expect(sum).toBeGreaterThanOrEqual(size);
      expect(sum - (read[0] ?? 0)).toBeLessThan(2 * size);
    }
  });

  it('splitIntoSpans has all turns once, and spans of at most the size unless a turn is larger', () => {
    const end = 99;
    expect(splitIntoSpans(list([10, 10, 10, 50, 10]), 20 * KB, end)).toEqual([
      { first: 1, last: 2 },
      { first: 3, last: 3 },
      { first: 4, last: 4 },
      { first: 5, last: end },
    ]);
    expect(splitIntoSpans(list([50, 10]), 20 * KB, end)).toEqual([
      { first: 1, last: 1 },
      { first: 2, last: end },
    ]);
    expect(splitIntoSpans([], 20 * KB, end)).toEqual([{ first: 0, last: end }]);
    const gap = [
      { turn: 3, bytes: 8 * KB },
      { turn: 3, bytes: 8 * KB },
      { turn: 7, bytes: 8 * KB },
    ];
    expect(splitIntoSpans(gap, 20 * KB, end)).toEqual([
      { first: 3, last: 6 },
      { first: 7, last: end },
    ]);
  });

  it('takeWholeTurns leaves out the last turn, of which there may be more, unless it is the only one', () => {
    const measure = (...turns: readonly number[]) => turns.map((turn) => ({ turn, bytes: 1 }));
    expect(takeWholeTurns(measure(1, 1, 2))).toEqual({ sizes: measure(1, 1), last: 1 });
    expect(takeWholeTurns(measure(1, 1))).toEqual({ sizes: measure(1, 1), last: 1 });
  });
});
