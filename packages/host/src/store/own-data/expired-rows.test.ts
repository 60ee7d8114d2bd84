import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { insertRows } from '../../../test/support/stored-rows.js';
import { createTestDatabase } from '../../../test/support/test-database.js';
import type { Database } from '../database.js';
import { openDatabase } from '../open-database.js';
import { ExpiredRows, type Expiring } from './expired-rows.js';
import type { StoredRow } from './owner-rows.js';

const HOUR_MS = 60 * 60 * 1000;
const ALICE = 'did:key:zAlice';
const BOB = 'did:key:zBob';
/** What is older has expired. */
const BEFORE = 1_000;

let now = 0;
let database: Database;
let expired: ExpiredRows;

beforeEach(async () => {
  now = Date.UTC(2026, 0, 1);
  const { options, drop } = await createTestDatabase('sqlite');
  database = await openDatabase(options);
  expired = new ExpiredRows({ database, clock: () => now, newId: () => crypto.randomUUID() });
  onTestFinished(async () => {
    await database.close();
    await drop();
  });
});

const insert = (table: string, ...rows: readonly StoredRow[]) =>
  insertRows(database, table, ...rows);

const createSession = (owner: string, id: string, updatedAt: number): StoredRow => ({
  ...{ owner, id, title: 't', created_at: 1, last_updated_at: updatedAt, last_turn: 1 },
  ...{ active_branch: 0, last_branch: 0 },
  ...{ oracle_did: 'did:o', room_id: 'room', last_seq: 1 },
});

interface RunOptions {
  readonly status: string;
  readonly updatedAt?: number;
  readonly turn?: number;
}

const createRun = (
  owner: string,
  sessionId: string,
  { status, updatedAt = 1, turn = 1 }: RunOptions,
): StoredRow => ({
  ...{ owner, id: `${sessionId} ${turn}`, session_id: sessionId, turn, request_id: 'r', status },
  ...{ last_seq: 0, input_tokens: 5, output_tokens: 6, cached_tokens: 0, attempt: 1, branch: 0 },
  ...{ updated_at: updatedAt, created_at: 1 },
});

const createApproval = (owner: string, id: string, expiresAt: number): StoredRow => ({
  ...{ owner, id, session_id: 's', run_id: 'r', call: '{}', call_id: 'c', tool: 't', plugin: 'p' },
  ...{ args_hash: 'h', required_by: 'user', request: 'x', created_at: 1, expires_at: expiresAt },
});

const createActivity = (owner: string, id: string, createdAt: number): StoredRow => ({
  ...{ owner, id, kind: 'tool', created_at: createdAt },
});

async function find(kind: Expiring, before = BEFORE): Promise<string[][]> {
  const pages: string[][] = [];
  for await (const page of expired.find(kind, before))
    pages.push(page.map(({ owner, id }) => `${owner} ${id}`));
  return pages;
}

async function listIds(table: 'sessions' | 'approvals' | 'activity'): Promise<string[]> {
  const query = database.tables.selectFrom(table).select(['owner', 'id']);
  const rows = await query.orderBy('owner').orderBy('id').execute();
  return rows.map(({ owner, id }) => `${owner} ${id}`);
}

const toId = (i: number) => String(i).padStart(5, '0');
const range = (length: number) => Array.from({ length }, (_, i) => i);

describe('ExpiredRows.find', () => {
  it('finds sessions of all users that were last used before a time', async () => {
    await insert('sessions', createSession(ALICE, 'old', BEFORE - 1));
    await insert('sessions', createSession(ALICE, 'new', BEFORE));
    await insert('sessions', createSession(BOB, 'new', BEFORE - 1));
    expect(await find('sessions')).toEqual([[`${ALICE} old`, `${BOB} new`]]);
    expect(await find('sessions', 0)).toEqual([]);
  });

  it('does not find a session with a turn that runs or is queued', async () => {
    for (const status of ['queued', 'running', 'paused', 'finished']) {
      await insert('sessions', createSession(ALICE, status, 1), createSession(BOB, status, 1));
      await insert('runs', createRun(ALICE, status, { status }));
    }
    expect(await find('sessions')).toEqual([
      [
        ...[`${ALICE} finished`, `${ALICE} paused`],
        ...['finished', 'paused', 'queued', 'running'].map((id) => `${BOB} ${id}`),
      ],
    ]);
  });

  it('finds receipts by when their requests expired, and activity by when it happened', async () => {
    await insert('approvals', createApproval(ALICE, 'old', BEFORE - 1));
    await insert('approvals', createApproval(ALICE, 'new', BEFORE));
    await insert('activity', createActivity(BOB, 'old', BEFORE - 1));
    await insert('activity', createActivity(BOB, 'new', BEFORE));
    expect(await find('receipts')).toEqual([[`${ALICE} old`]]);
    expect(await find('activity')).toEqual([[`${BOB} old`]]);
  });

  it('reads the whole table in pages, and returns no empty ones', async () => {
    // The first thousand rows have not expired.
    const ids = range(1500).map(toId);
    await insert(
      'activity',
      ...ids.map((id, i) => createActivity(ALICE, id, i < 1000 ? BEFORE : 1)),
    );
    await insert('activity', ...ids.map((id) => createActivity(BOB, id, 1)));
    const pages = await find('activity');
    expect(pages.map((page) => page.length)).toEqual([1000, 1000]);
    expect(pages.flat()).toEqual([
      ...ids.slice(1000).map((id) => `${ALICE} ${id}`),
      ...ids.map((id) => `${BOB} ${id}`),
    ]);
  });
});

describe('ExpiredRows.delete', () => {
  it('deletes an expired row of one user', async () => {
    for (const owner of [ALICE, BOB]) {
      await insert('sessions', createSession(owner, 'a', 1), createSession(owner, 'b', 1));
      await insert('approvals', createApproval(owner, 'a', 1), createApproval(owner, 'b', 1));
      await insert('activity', createActivity(owner, 'a', 1), createActivity(owner, 'b', 1));
    }
    const left = [`${ALICE} b`, `${BOB} a`, `${BOB} b`];
    expect(await expired.delete('sessions', { owner: ALICE, id: 'a' }, BEFORE)).toBe(true);
    expect(await listIds('sessions')).toEqual(left);
    expect(await listIds('approvals')).toHaveLength(4);
    expect(await expired.delete('receipts', { owner: ALICE, id: 'a' }, BEFORE)).toBe(true);
    expect(await listIds('approvals')).toEqual(left);
    expect(await expired.delete('activity', { owner: ALICE, id: 'a' }, BEFORE)).toBe(true);
    expect(await listIds('activity')).toEqual(left);
    expect(await expired.delete('activity', { owner: ALICE, id: 'a' }, BEFORE)).toBe(false);
  });

  it('keeps a row that was used since it was found', async () => {
    await insert('sessions', createSession(ALICE, 'a', BEFORE));
    await insert('approvals', createApproval(ALICE, 'a', BEFORE));
    await insert('activity', createActivity(ALICE, 'a', BEFORE));
    for (const kind of ['sessions', 'receipts', 'activity'] as const)
      expect(await expired.delete(kind, { owner: ALICE, id: 'a' }, BEFORE), kind).toBe(false);
    for (const table of ['sessions', 'approvals', 'activity'] as const)
      expect(await listIds(table)).toEqual([`${ALICE} a`]);
  });

  it('keeps a session in which a turn has begun', async () => {
    await insert('sessions', createSession(ALICE, 'a', 1), createSession(BOB, 'a', 1));
    await insert('runs', createRun(ALICE, 'a', { status: 'running' }));
    await insert('runs', createRun(BOB, 'a', { status: 'paused' }));
    expect(await expired.delete('sessions', { owner: ALICE, id: 'a' }, BEFORE)).toBe(false);
    // Its usage is counted from its turns, not a second time.
    expect(await database.tables.selectFrom('usage_days').selectAll().execute()).toEqual([]);
    expect(await expired.delete('sessions', { owner: BOB, id: 'a' }, BEFORE)).toBe(true);
    expect(await listIds('sessions')).toEqual([`${ALICE} a`]);
  });

  it('keeps what a deleted session has used, once', async () => {
    await insert('sessions', createSession(ALICE, 'a', 1));
    await insert('runs', createRun(ALICE, 'a', { status: 'finished' }));
    await insert('activity', createActivity(ALICE, 'a', 1));
    const readUsage = () => database.tables.selectFrom('usage_days').selectAll().execute();
    await expired.delete('activity', { owner: ALICE, id: 'a' }, BEFORE);
    expect(await readUsage()).toEqual([]);
    await expired.delete('sessions', { owner: ALICE, id: 'a' }, BEFORE);
    const used = { session_id: 'a', turns: 1, input_tokens: 5, output_tokens: 6 };
    const kept = await readUsage();
    expect(kept).toContainEqual(expect.objectContaining({ owner: ALICE, ...used }));
    await expired.delete('sessions', { owner: ALICE, id: 'a' }, BEFORE);
    expect(await readUsage()).toEqual(kept);
  });
});

describe('paused turns', () => {
  it('findPaused and countPaused know turns that have waited since before a time', async () => {
    const runs = [
      createRun(ALICE, 'old', { status: 'paused', updatedAt: BEFORE - 1 }),
      createRun(BOB, 'old', { status: 'paused', updatedAt: BEFORE }),
      createRun(ALICE, 'queued', { status: 'queued' }),
      createRun(ALICE, 'running', { status: 'running' }),
      createRun(ALICE, 'finished', { status: 'finished' }),
    ];
    for (const run of runs) {
      await insert('sessions', createSession(String(run.owner), String(run.session_id), 1));
      await insert('runs', run);
    }
    expect(await expired.findPaused(BEFORE)).toEqual([{ owner: ALICE, sessionId: 'old' }]);
    expect(await expired.countPaused(BEFORE)).toBe(1);
    expect(await expired.countPaused(BEFORE - 1)).toBe(0);
  });

  it('findPaused returns at most 100, and countPaused counts all', async () => {
    const ids = range(103).map(toId);
    await insert('sessions', ...ids.map((id) => createSession(ALICE, id, 1)));
    await insert('runs', ...ids.map((id) => createRun(ALICE, id, { status: 'paused' })));
    expect(await expired.findPaused(BEFORE)).toHaveLength(100);
    expect(await expired.countPaused(BEFORE)).toBe(103);
  });
});

describe('ExpiredRows.alone', () => {
  /** Whether another host could run a task now. */
  async function canRun(): Promise<boolean> {
    let hasRun = false;
    await expired.alone(async () => {
      hasRun = true;
    });
    return hasRun;
  }

  it('runs a task while no other host runs one', async () => {
    const inside: boolean[] = [];
    await expired.alone(async () => {
      inside.push(await canRun());
    });
    expect(inside).toEqual([false]);
    expect(await canRun()).toBe(true);
  });

  it('lets others run a task after one that failed', async () => {
    const failing = expired.alone(async () => {
      throw new Error('the disk is full');
    });
    await expect(failing).rejects.toThrow('the disk is full');
    expect(await canRun()).toBe(true);
  });

  it('runs a task an hour after the one of a host that died', async () => {
    const stuck = Promise.withResolvers<void>();
    const started = Promise.withResolvers<void>();
    const dead = expired.alone(async () => {
      started.resolve();
      await stuck.promise;
    });
    await started.promise;
    now += HOUR_MS;
    expect(await canRun()).toBe(false);
    now += 1;
    expect(await canRun()).toBe(true);
    stuck.resolve();
    await dead;
  });

  it('a task that ends after another host has taken over leaves that one its claim', async () => {
    const ended = Promise.withResolvers<void>();
    let late: Promise<void> | undefined;
    const slow = expired.alone(async () => {
      now += HOUR_MS + 1;
      const begun = Promise.withResolvers<void>();
      late = expired.alone(async () => {
        begun.resolve();
        await ended.promise;
      });
      await begun.promise;
    });
    await slow;
    expect(await canRun()).toBe(false);
    ended.resolve();
    await late;
    expect(await canRun()).toBe(true);
  });

  it('a task that takes over claims another hour, and leaves other facts about the database', async () => {
    await insert(
      'database_info',
      { key: 'retention', value: String(now - 1) },
      { key: 'oracle_did', value: 'did:key:zOracle' },
      { key: 'same_value', value: String(now + HOUR_MS) },
    );
    const inside: boolean[] = [];
    await expired.alone(async () => {
      now += HOUR_MS;
      inside.push(await canRun());
    });
    expect(inside).toEqual([false]);
    const facts = await database.tables.selectFrom('database_info').select('key').execute();
    expect(facts.map(({ key }) => key).sort()).toEqual(['oracle_did', 'same_value']);
  });
});
