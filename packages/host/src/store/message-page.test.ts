import { DatabaseSync } from 'node:sqlite';
import { Kysely } from 'kysely';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { engines, useStore } from '../../test/support/test-database.js';
import { finishTestRun, openTestSession, startTestRun } from '../../test/support/test-runs.js';
import type { TurnOrigin } from './branches.js';
import { readPage, readSpan } from './message-store.js';
import { hostSchema, migrate } from './migrations.js';
import type { Schema } from './schema/index.js';
import { SqliteDialect } from './sqlite/sqlite-dialect.js';

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
