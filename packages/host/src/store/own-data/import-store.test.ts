import { DatabaseSync, type SQLInputValue } from 'node:sqlite';
import { type CompiledQuery, Kysely } from 'kysely';
import { describe, expect, it, onTestFinished } from 'vitest';
import { readRows } from '../../../test/support/stored-rows.js';
import { engines, newOwner, useStore } from '../../../test/support/test-database.js';
import { copySession, startTestRun } from '../../../test/support/test-runs.js';
import { hostSchema, migrate } from '../migrations.js';
import type { Schema } from '../schema/index.js';
import { toSqlitePath } from '../sqlite/sqlite.js';
import { SqliteDialect } from '../sqlite/sqlite-dialect.js';
import { type ImportProgress, ImportStore } from './import-store.js';
import type { StoredRow } from './owner-rows.js';

const oracleDid = 'did:key:zOracle';

let lastSeq = 0;
const createMessage = (sessionId: string, turn: number, length = 1) => ({
  ...{ session_id: sessionId, turn, parts: null, type: 'human', parent: null, branch: 0 },
  ...{ id: crypto.randomUUID(), seq: ++lastSeq, content: 'x'.repeat(length), request_id: 'r' },
  ...{ is_complete: 1, created_at: 1 },
});

describe.each(engines)('ImportStore.filterFitting on %s', (engine) => {
  const test = useStore(engine);
  const MB = 1024 ** 2;

  it('leaves out messages that do not fit into their turn, also beside those that are stored', async () => {
    const owner = 'did:key:zImporter';
    const session = await test.store.sessions.create({ owner, oracleDid });
    const message = (turn: number, length: number) =>
      createMessage(session.sessionId, turn, length);
    const first = [message(1, 6 * MB), message(1, 6 * MB), message(1, 6 * MB), message(2, 6 * MB)];
    const fitting = await test.store.imports.filterFitting(owner, first);
    expect(fitting).toEqual([first[0], first[1], first[3]]);
    expect(await test.store.imports.insert(owner, 'messages', fitting)).toBe(3);
    const other = await test.store.sessions.create({ owner, oracleDid });
    const ofOther = createMessage(other.sessionId, 1, 6 * MB);
    const later = [message(1, 6 * MB), message(2, 6 * MB), message(3, 6 * MB), ofOther];
    expect(await test.store.imports.filterFitting(owner, later)).toEqual(later.slice(1));
  });

  it('counts what is stored of a turn on all branches', async () => {
    const { imports, sessions } = test.store;
    const owner = newOwner();
    const { sessionId: id } = await sessions.create({ owner, oracleDid });
    const stored = [0, 2, 5].map((branch) => ({ ...createMessage(id, 1, 5 * MB), branch }));
    expect(await imports.insert(owner, 'messages', stored)).toBe(3);
    const [first, second] = [createMessage(id, 1, MB), createMessage(id, 2, MB)];
    expect(await imports.filterFitting(owner, [first, second])).toEqual([second]);
  });

  it('counts bytes of text and parts, and 1 KB for each message, up to 16 MB', async () => {
    const { imports, sessions } = test.store;
    const owner = newOwner();
    const { sessionId: id } = await sessions.create({ owner, oracleDid });
    const largest = createMessage(id, 1, 16 * MB - 1024);
    const tooLarge = createMessage(id, 2, 16 * MB - 1023);
    expect(await imports.filterFitting(owner, [largest, tooLarge])).toEqual([largest]);
    const characters = { ...createMessage(id, 3), content: 'é'.repeat(8 * MB - 511) };
    expect(await imports.filterFitting(owner, [characters])).toEqual([]);
    const parts = 'x'.repeat(16 * MB - 1025);
    const [fits, doesNot] = [createMessage(id, 4, 1), createMessage(id, 5, 2)];
    const withParts = [fits, doesNot].map((message) => ({ ...message, parts }));
    expect(await imports.filterFitting(owner, withParts)).toEqual(withParts.slice(0, 1));
  });

  it('counts the texts and parts that are stored, but not those of others', async () => {
    const { imports, sessions } = test.store;
    const owner = newOwner();
    const { sessionId: id } = await sessions.create({ owner, oracleDid });
    const other = await copySession(test.store, newOwner(), { owner, sessionId: id });
    const stored = { ...createMessage(id, 1, 5), parts: 'x'.repeat(6 * MB) };
    for (const each of [owner, other.owner])
      await imports.insert(each, 'messages', [{ ...stored, id: crypto.randomUUID() }]);
    const rest = 10 * MB - 5 - 2048;
    const [fits, doesNot] = [createMessage(id, 1, rest), createMessage(id, 1, rest + 1)];
    expect(await imports.filterFitting(owner, [doesNot, fits])).toEqual([fits]);
  });
});

it('ImportStore.filterFitting reads the turns that it measures, not all of their session', async () => {
  const handle = new DatabaseSync(':memory:');
  const queries: CompiledQuery[] = [];
  const tables = new Kysely<Schema>({
    dialect: new SqliteDialect(handle),
    log: ({ query }) => {
      queries.push(query);
    },
  });
  onTestFinished(() => tables.destroy());
  await migrate(tables, hostSchema);
  queries.length = 0;
  const imports = new ImportStore({ database: { tables } } as never, {} as never);
  const messages = [createMessage('s', 7), createMessage('s', 8)];
  expect(await imports.filterFitting('did:a', messages)).toEqual(messages);
  const plans = queries.flatMap(({ sql, parameters }) =>
    handle.prepare(`explain query plan ${sql}`).all(...(parameters as SQLInputValue[])),
  );
  expect(plans.map(({ detail }) => detail)).toContain(
    'SEARCH messages USING INDEX messages_of_branch (owner=? AND session_id=? AND branch=? AND turn>? AND turn<?)',
  );
});

describe.each(engines)('ImportStore on %s', (engine) => {
  const test = useStore(engine);

  const createProgress = (bytes: number): ImportProgress => ({
    ...{ status: 'running', format: 'sibyl', bytes, totalBytes: 100, stored: {} },
    ...{ present: 0, refused: 0 },
  });

  it('ImportStore.createJob keeps the last 20 jobs of a user', async () => {
    const { imports } = test.store;
    const stranger = newOwner();
    const foreign = await imports.createJob(stranger, createProgress(0));
    const owner = newOwner();
    const ids: string[] = [];
    for (let i = 0; i < 21; i++) ids.push((await imports.createJob(owner, createProgress(i))).id);
    const found = await Promise.all(ids.map((id) => imports.findJob(owner, id)));
    expect(found.map((job) => job?.bytes)).toEqual([
      undefined,
      ...Array.from({ length: 20 }, (_, i) => i + 1),
    ]);
    expect(await imports.findJob(stranger, foreign.id)).toEqual(foreign);
    expect(await imports.findJob(owner, foreign.id)).toBeUndefined();
  });

  it('ImportStore.updateJob changes one job of its user', async () => {
    const { imports } = test.store;
    const owner = newOwner();
    const other = await imports.createJob(owner, createProgress(1));
    const { id } = await imports.createJob(owner, createProgress(2));
    await imports.updateJob(newOwner(), id, createProgress(3));
    expect(await imports.findJob(owner, id)).toMatchObject({ bytes: 2 });
    await imports.updateJob(owner, id, createProgress(4));
    expect(await imports.findJob(owner, id)).toMatchObject({ bytes: 4 });
    expect(await imports.findJob(owner, other.id)).toEqual(other);
  });

  it('ImportStore.forJob stores nothing once its user is erased', async () => {
    const { imports, ownerRows } = test.store;
    const owner = newOwner();
    const other = await imports.createJob(newOwner(), createProgress(0));
    const { id } = await imports.createJob(owner, createProgress(0));
    const ofJob = imports.forJob({ owner, id });
    const session = {
      ...{ id: crypto.randomUUID(), title: 'Old', created_at: 1, last_updated_at: 1 },
      ...{ oracle_did: oracleDid, room_id: '!room', last_seq: 0, last_turn: 0 },
      ...{ active_branch: 0, last_branch: 0 },
    };
    const state = { room_id: '!room', key: 'x', data: '{}', updated_at: 1 };
    expect(await ofJob.insertSession(owner, session, 5)).toBe('stored');
    expect(await ofJob.insert(owner, 'room_state', [state])).toBe(1);
    await expect(ofJob.assertJob()).resolves.toBeUndefined();
    await ownerRows.erase(owner, 'erased');
    await expect(ofJob.insertSession(owner, session, 5)).rejects.toThrow(/import/i);
    await expect(ofJob.insert(owner, 'room_state', [state])).rejects.toThrow(/import/i);
    await expect(ofJob.assertJob()).rejects.toThrow(/import/i);
    await expect(imports.forJob({ owner, id: other.id }).assertJob()).rejects.toThrow(/import/i);
    for (const table of ['sessions', 'room_state'])
      expect(await readRows(test.store, table, owner)).toEqual([]);
  });

  it('ImportStore.createJob and updateJob say when the job began and last changed', async () => {
    let now = Date.UTC(2026, 0, 1);
    const { imports } = await test.another({ clock: () => now });
    const owner = newOwner();
    const job = await imports.createJob(owner, createProgress(1));
    const created = '2026-01-01T00:00:00.000Z';
    expect(job).toEqual({
      ...{ ...createProgress(1), id: expect.any(String) },
      ...{ createdAt: created, updatedAt: created },
    });
    now += 5_000;
    await imports.updateJob(owner, job.id, { ...createProgress(9), status: 'finished' });
    expect(await imports.findJob(owner, job.id)).toEqual({
      ...{ ...createProgress(9), status: 'finished', id: job.id },
      ...{ createdAt: created, updatedAt: '2026-01-01T00:00:05.000Z' },
    });
  });

  it('ImportStore.findSession knows the sessions of the user only', async () => {
    const { imports, sessions } = test.store;
    const owner = newOwner();
    const { sessionId: id } = await sessions.create({ owner, oracleDid });
    expect(await imports.findSession(owner, id)).toEqual({ createdAt: expect.any(Number) });
    expect(await imports.findSession(owner, 'none')).toBeUndefined();
    expect(await imports.findSession(newOwner(), id)).toBeUndefined();
  });

  it('ImportStore.insertSession holds the limit for imports and new sessions at the same moment', async () => {
    const { imports, sessions } = test.store;
    const owner = newOwner();
    const { roomId } = await sessions.create({ owner, oracleDid });
    const toRow = (id: string) => ({
      ...{ id, title: 'Old', created_at: 1, last_updated_at: 1, oracle_did: oracleDid },
      ...{ room_id: roomId, last_seq: 0, last_turn: 0, active_branch: 0, last_branch: 0 },
    });
    const ids = Array.from({ length: 8 }, (_, i) => `s${i}`);
    const outcomes = await Promise.all(
      ids.flatMap((id) => [
        imports.insertSession(owner, toRow(id), 5),
        sessions.createWithin(5, { owner, oracleDid }),
      ]),
    );
    const isNew = (outcome: unknown) => outcome === 'stored' || typeof outcome === 'object';
    expect(outcomes.filter(isNew)).toHaveLength(4);
    expect((await sessions.list({ owner, limit: 20, offset: 0 })).total).toBe(5);
    const stored = ids.filter((_, i) => outcomes[2 * i] === 'stored');
    for (const id of stored)
      expect(await imports.insertSession(owner, toRow(id), 5)).toBe('present');
  });

  it('ImportStore.completeSession continues one session after its last message', async () => {
    const { imports, sessions } = test.store;
    const owner = newOwner();
    const open = async () => ({
      owner,
      sessionId: (await sessions.create({ owner, oracleDid })).sessionId,
    });
    const [imported, other, empty] = [await open(), await open(), await open()];
    const last = createMessage(imported.sessionId, 3);
    await imports.insert(owner, 'messages', [
      ...[createMessage(imported.sessionId, 1), last, createMessage(other.sessionId, 9)],
      { ...createMessage(imported.sessionId, 4), branch: 1 },
    ]);
    await imports.completeSession(owner, imported.sessionId);
    expect(await sessions.find(imported)).toMatchObject({ activeMessageId: last.id });
    expect(await sessions.find(other)).not.toHaveProperty('activeMessageId');
    expect((await startTestRun(test.store, imported)).run.turn).toBe(5);
    expect((await startTestRun(test.store, empty)).run.turn).toBe(1);
  });

  it('ImportStore.completeSession changes nothing in a session that is ahead of its messages', async () => {
    const { imports, runs, sessions } = test.store;
    const { session } = await startTestRun(test.store);
    const waiting = await startTestRun(test.store, session);
    await runs.withdraw(waiting.key);
    const before = await sessions.find(session);
    await imports.completeSession(session.owner, session.sessionId);
    expect(await sessions.find(session)).toEqual(before);
    expect((await startTestRun(test.store, session)).run.turn).toBe(3);
  });

  it('ImportStore.completeSession ignores the messages of another user in a session with the same id', async () => {
    const { imports, sessions } = test.store;
    const victim = newOwner();
    const { sessionId } = await sessions.create({ owner: victim, oracleDid });
    await imports.insert(victim, 'messages', [createMessage(sessionId, 7)]);
    const session = await copySession(test.store, newOwner(), { owner: victim, sessionId });
    const own = createMessage(sessionId, 2);
    await imports.insert(session.owner, 'messages', [own]);
    await imports.completeSession(session.owner, sessionId);
    expect(await sessions.find(session)).toMatchObject({ activeMessageId: own.id });
    expect((await startTestRun(test.store, session)).run.turn).toBe(3);
  });

  it('ImportStore.completeSession continues after the last message, also if only one of its numbers is ahead', async () => {
    const { imports, sessions } = test.store;
    const owner = newOwner();
    const complete = async (numbers: { last_seq: number; last_turn: number }) => {
      const from = { owner, sessionId: (await sessions.create({ owner, oracleDid })).sessionId };
      const session = await copySession(test.store, newOwner(), from);
      const table = await readRows(test.store, 'sessions', session.owner);
      const copy = { ...table[0], ...numbers, id: crypto.randomUUID() };
      await imports.insert(session.owner, 'sessions', [copy]);
      const message = { ...createMessage(copy.id, 4), seq: 50 };
      await imports.insert(session.owner, 'messages', [message]);
      await imports.completeSession(session.owner, copy.id);
      const stored = await readRows(test.store, 'sessions', session.owner);
      const { last_seq, last_turn } = stored.find(({ id }) => id === copy.id) ?? {};
      return { last_seq, last_turn };
    };
    expect(await complete({ last_seq: 0, last_turn: 4 })).toEqual({ last_seq: 50, last_turn: 4 });
    expect(await complete({ last_seq: 50, last_turn: 0 })).toEqual({ last_seq: 50, last_turn: 4 });
    expect(await complete({ last_seq: 50, last_turn: 4 })).toEqual({ last_seq: 50, last_turn: 4 });
    expect(await complete({ last_seq: 90, last_turn: 9 })).toEqual({ last_seq: 90, last_turn: 9 });
  });

  it('ImportStore.completeSession shows the last turn, and in it the last message', async () => {
    const { imports, sessions } = test.store;
    const owner = newOwner();
    const { sessionId } = await sessions.create({ owner, oracleDid });
    const add = async (turn: number, seq: number) => {
      const message = { ...createMessage(sessionId, turn), seq };
      await imports.insert(owner, 'messages', [message]);
      return message.id;
    };
    await add(2, 1);
    const last = await add(2, 2);
    await add(1, 9);
    await imports.completeSession(owner, sessionId);
    expect(await sessions.find({ owner, sessionId })).toMatchObject({ activeMessageId: last });
    await add(3, 10);
    await imports.completeSession(owner, sessionId);
    expect(await sessions.find({ owner, sessionId })).toMatchObject({ activeMessageId: last });
  });
});

describe('ImportStore.insert on sqlite', () => {
  const test = useStore('sqlite');
  const activity = (id: string): StoredRow => ({ id, kind: 'tool', created_at: 1 });

  it('gives all rows to the user who imports them', async () => {
    const { imports } = test.store;
    const [owner, victim] = [newOwner(), newOwner()];
    expect(await imports.insert(owner, 'activity', [{ ...activity('a'), owner: victim }])).toBe(1);
    expect(await readRows(test.store, 'activity', owner)).toMatchObject([{ id: 'a' }]);
    expect(await imports.insert(owner, 'callers', [{ did: victim, cid: 'c', created_at: 1 }])).toBe(
      1,
    );
    expect(await readRows(test.store, 'callers', owner)).toMatchObject([{ cid: 'c' }]);
    for (const table of ['activity', 'callers'])
      expect(await readRows(test.store, table, victim)).toEqual([]);
  });

  it('does not change existing rows, and counts the new ones', async () => {
    const { imports } = test.store;
    const owner = newOwner();
    await imports.insert(owner, 'activity', [{ ...activity('a'), tool: 'first' }]);
    const again = [{ ...activity('a'), tool: 'second' }, activity('b'), activity('c')];
    expect(await imports.insert(owner, 'activity', again)).toBe(2);
    expect(await imports.insert(owner, 'activity', again)).toBe(0);
    expect(await readRows(test.store, 'activity', owner)).toMatchObject([
      { id: 'a', tool: 'first' },
      { id: 'b', tool: null },
      { id: 'c', tool: null },
    ]);
  });

  it('stores nothing in tables that belong to no user, or that do not exist', async () => {
    const { imports } = test.store;
    const usage = { day: '2026-01-01', tokens: -5 };
    expect(await imports.insert(newOwner(), 'model_usage', [usage])).toBe(0);
    expect(await imports.insert(newOwner(), 'no_table', [activity('a')])).toBe(0);
    const handle = new DatabaseSync(toSqlitePath(test.options.dataDir), { readOnly: true });
    onTestFinished(() => handle.close());
    expect(handle.prepare('select * from model_usage').all()).toEqual([]);
  });

  it('ignores columns that the table lacks', async () => {
    const { imports } = test.store;
    const owner = newOwner();
    const row = { ...activity('a'), colour: 'blue', toString: 'x' };
    expect(await imports.insert(owner, 'activity', [row])).toBe(1);
    expect(await readRows(test.store, 'activity', owner)).toMatchObject([activity('a')]);
  });

  it('leaves out rows with a value of another type, and stores the others', async () => {
    const { imports } = test.store;
    const owner = newOwner();
    const rows = [
      { ...activity('text'), tool: 5 },
      { ...activity('number'), created_at: '5' },
      { ...activity('not finite'), created_at: Number.POSITIVE_INFINITY },
      { ...activity('bytes'), tool: new Uint8Array([1]) },
      { ...activity('fits'), tool: null },
    ];
    expect(await imports.insert(owner, 'activity', rows)).toBe(1);
    expect(await readRows(test.store, 'activity', owner)).toMatchObject([{ id: 'fits' }]);
  });

  it('stores bytes only in binary columns, and nothing in computed ones', async () => {
    const { imports } = test.store;
    const handle = new DatabaseSync(toSqlitePath(test.options.dataDir));
    handle.exec(`create table notes_files
      (owner text, id text, data blob, words tsvector, primary key (owner, id))`);
    handle.close();
    const owner = newOwner();
    const rows: readonly StoredRow[] = [
      { id: 'bytes', data: new Uint8Array([1, 2]) },
      { id: 'none', data: null, words: null },
      { id: 'text', data: 'text' },
      { id: 'number', data: 5 },
      { id: 'computed', words: 'text' },
    ];
    expect(await imports.insert(owner, 'notes_files', rows)).toBe(2);
    const stored = await readRows(test.store, 'notes_files', owner);
    expect(stored.map(({ id }) => id)).toEqual(['bytes', 'none']);
  });
});
