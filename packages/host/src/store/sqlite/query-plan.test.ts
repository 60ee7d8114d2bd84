import { DatabaseSync, type SQLInputValue } from 'node:sqlite';
import { type CompiledQuery, Kysely } from 'kysely';
import { expect, it } from 'vitest';
import { allMessages } from '../../../test/support/all-messages.js';
import {
  createRunRequest,
  expectStarted,
  finishTestRun,
  flushFrames,
} from '../../../test/support/test-runs.js';
import { ActivityStore } from '../activity-store.js';
import { AnswerDetailsStore } from '../answer-details.js';
import { ApprovalStore } from '../approval-store.js';
import { CallerStore } from '../caller-store.js';
import { createIdSource, readSnapshot, type StoreContext } from '../database.js';
import { DelegationStore } from '../delegation-store.js';
import { createVault } from '../encryption.js';
import { IdempotencyStore } from '../idempotency-store.js';
import { MessageStore } from '../message-store.js';
import { hostSchema, migrate } from '../migrations.js';
import { TurnReports } from '../operators/turn-reports.js';
import { BlobStore, SecretStore, SessionStateStore } from '../plugin-stores.js';
import { RevocationStore, SingleUseStore } from '../revocation-store.js';
import { RoomStateStore, RoomStore } from '../room-store.js';
import { TurnStore } from '../runs/run.js';
import { RunStore } from '../runs/run-store.js';
import type { Schema } from '../schema/index.js';
import { SessionStore } from '../session-store.js';
import { ModelUsageStore } from '../usage-store.js';
import { SqliteDialect } from './sqlite-dialect.js';

const owner = 'did:a';

/** Runs store calls on an empty database and returns SQLite's plan of every query they sent. */
async function explainQueries(use: (context: StoreContext) => Promise<unknown>): Promise<string[]> {
  const { handle, queries } = await recordQueries(use);
  return queries.map(({ sql, parameters }) => explain(handle, sql, parameters));
}

async function recordQueries(use: (context: StoreContext) => Promise<unknown>) {
  const handle = new DatabaseSync(':memory:');
  const queries: CompiledQuery[] = [];
  const tables = new Kysely<Schema>({
    dialect: new SqliteDialect(handle),
    log: ({ query }) => {
      queries.push(query);
    },
  });
  await migrate(tables, hostSchema);
  queries.length = 0;
  await use({
    database: {
      engine: 'sqlite',
      tables,
      write: (unit) => tables.transaction().execute(unit),
      now: Date.now,
      writeFor: (_owner, unit) => tables.transaction().execute(unit),
      estimateDelay: () => 0,
      isStoring: () => true,
      read: (unit) => readSnapshot(tables, unit),
      migrate: (plan) => migrate(tables, plan),
      reclaim: async () => undefined,
      close: () => tables.destroy(),
    },
    clock: Date.now,
    newId: createIdSource(Date.now),
  });
  return { handle, queries };
}

function explain(handle: DatabaseSync, sql: string, parameters: readonly unknown[]): string {
  return handle
    .prepare(`explain query plan ${sql}`)
    .all(...(parameters as SQLInputValue[]))
    .map(({ detail }) => detail)
    .join('; ');
}

it('SessionStore.list uses an index and does not sort', async () => {
  const plans = await explainQueries((context) =>
    new SessionStore(context).list({ owner, limit: 20, offset: 0 }),
  );
  expect(plans).toEqual([
    'SEARCH sessions USING COVERING INDEX sessions_by_update (owner=?)',
    'SEARCH sessions USING INDEX sessions_by_update (owner=?)',
  ]);
});

it('no query of a request scans a table or sorts', async () => {
  const plans = await explainQueries(async (context) => {
    const sessions = new SessionStore(context);
    const messages = new MessageStore(context);
    const runs = new RunStore(context, createVault(new Uint8Array(32)), { hostId: 'host' });
    const opened = await sessions.createWithin(1000, { owner, oracleDid: 'did:o' });
    const sessionId = opened?.sessionId ?? '';
    const started = await runs.start(createRunRequest({ owner, sessionId }));
    const { runId } = expectStarted(started);
    const key = { owner, runId };
    await flushFrames(runs, key, [{ seq: 1, event: 'message', data: '{}' }]);
    await runs.current({ owner, sessionId });
    await runs.list({ owner, sessionId, fromTurn: 1 });
    await runs.frames({ ...key, after: 0 });
    await finishTestRun(runs, key, { content: 'hello' });
    await runs.current({ owner, sessionId });
    await allMessages({ messages }, { owner, sessionId });
    await messages.recent({ owner, sessionId, branch: 0, throughTurn: 1, bytes: 1000 });
    await messages.page({ owner, sessionId, branch: 0, limit: 20 });
    const [question] = await allMessages({ messages }, { owner, sessionId });
    await messages.page({ owner, sessionId, branch: 0, limit: 20, before: question?.id });
    await messages.page({ owner, sessionId, branch: 0, limit: 20, after: question?.id });
    const details = new AnswerDetailsStore(context);
    const all = await allMessages({ messages }, { owner, sessionId });
    const answer = { owner, sessionId, messageId: all[1]?.id ?? '' };
    await details.setFeedback(answer, { rating: 'up' });
    await details.read(all);
    await details.deleteFeedback(answer);
    await runs.ofHost('host');
    await runs.ofHost(undefined);
    await runs.release('dead');
    await runs.claim({ ...key, from: 'dead' });
    await runs.cancel(key, 'aborted');
    await runs.expiredInterrupts();
    await sessions.delete({ owner, sessionId });
  });
  expect(plans.length).toBeGreaterThan(30);
  expect(plans.filter(isSlow)).toEqual([]);
  expect(plans).toContain('SEARCH runs USING INDEX runs_open_by_owner (owner=?)');
});

it('runs are read without their requests and traces, which may be large', async () => {
  const { queries } = await recordQueries(async (context) => {
    const runs = new RunStore(context, createVault(new Uint8Array(32)), { hostId: 'host' });
    const key = { owner, sessionId: 's' };
    await runs.ofHost('host');
    await runs.ofHost(undefined);
    await runs.find({ owner, runId: 'r' });
    await runs.current(key);
    await runs.list({ ...key, fromTurn: 1 });
    await new TurnStore(context).list({ owner, limit: 10 });
  });
  expect(queries.length).toBeGreaterThanOrEqual(6);
  for (const { sql } of queries) expect(sql).not.toMatch(/"request"|"trace"|select \*/);
});

it('a turn starts and ends without reading the earlier runs of its session', async () => {
  const plans = await explainQueries(async (context) => {
    const runs = new RunStore(context, createVault(new Uint8Array(32)), { hostId: 'host' });
    const { sessionId } = await new SessionStore(context).create({ owner, oracleDid: 'did:o' });
    const { runId } = expectStarted(await runs.start(createRunRequest({ owner, sessionId })));
    await finishTestRun(runs, { owner, runId }, { content: 'hello' });
  });
  const ofRuns = plans.filter((plan) => plan.startsWith('SEARCH runs '));
  const [start, finish, next] = ofRuns;
  expect(start).toBe('SEARCH runs USING INDEX runs_open_by_owner (owner=?)');
  expect(finish).toBe('SEARCH runs USING INDEX sqlite_autoindex_runs_1 (owner=? AND id=?)');
  expect(next).toBe(start);
  expect(ofRuns).toHaveLength(3);
});

it('a turn cancels those before it without reading the earlier runs of its session', async () => {
  const plans = await explainQueries(async (context) => {
    const runs = new RunStore(context, createVault(new Uint8Array(32)), { hostId: 'host' });
    const { sessionId } = await new SessionStore(context).create({ owner, oracleDid: 'did:o' });
    const request = { owner, sessionId, multitask: 'interrupt' } as const;
    expectStarted(await runs.start(createRunRequest(request)));
    const second = await runs.start(createRunRequest(request));
    expect(second).toMatchObject({ canceled: [{ sessionId }] });
  });
  const [, select, cancel, ...others] = plans.filter((plan) => plan.startsWith('SEARCH runs '));
  expect(select).toBe('SEARCH runs USING INDEX runs_open_by_owner (owner=?)');
  expect(cancel).toBe(select);
  expect(others).toEqual([]);
});

it('queries for a branch look up the rows of its path only', async () => {
  const plans = await explainQueries(async (context) => {
    const sessions = new SessionStore(context);
    const messages = new MessageStore(context);
    const runs = new RunStore(context, createVault(new Uint8Array(32)), { hostId: 'host' });
    const { sessionId } = await sessions.create({ owner, oracleDid: 'did:o' });
    const first = expectStarted(await runs.start(createRunRequest({ owner, sessionId })));
    await finishTestRun(runs, { owner, runId: first.runId }, { content: 'hello' });
    const origin = { parentId: null };
    const second = expectStarted(await runs.start(createRunRequest({ owner, sessionId, origin })));
    const third = expectStarted(await runs.start(createRunRequest({ owner, sessionId })));
    await runs.withdraw({ owner, runId: third.runId });
    await finishTestRun(runs, { owner, runId: second.runId }, { content: 'hello' });
    const path = { owner, sessionId, branch: 1, isBranched: true };
    for await (const page of messages.pages(path)) expect(page.length).toBeGreaterThan(0);
    await messages.recent({ ...path, throughTurn: 9, bytes: 100 });
    await messages.page({ ...path, limit: 2 });
    await sessions.activate({ owner, sessionId, messageId: first.messageId });
  });
  const ofMessages = plans.filter((plan) => plan.includes('messages'));
  expect(ofMessages.filter((plan) => plan.includes('SCAN messages'))).toEqual([]);
  expect(plans.join()).toContain('SCAN path; SEARCH b USING ');
  expect(plans.join()).toContain('messages_of_branch (owner=? AND session_id=? AND branch=?');
  expect(plans.join()).toContain('branches_by_parent (owner=? AND session_id=? AND parent_id=?)');
});

it('no query of the smaller stores scans a table or sorts', async () => {
  const vault = createVault(new Uint8Array(32));
  const scope = { owner, plugin: 'p' };
  const plans = await explainQueries(async (context) => {
    const { sessionId } = await new SessionStore(context).create({ owner, oracleDid: 'did:o' });
    const rooms = new RoomStore(context);
    await rooms.getRoom({ owner, oracleDid: 'did:o' });
    const preferences = new RoomStateStore(context, rooms).of('did:o');
    await preferences.update({ owner }, 'tone', () => ({ short: true }));
    await preferences.read({ owner }, 'tone');
    const state = new SessionStateStore(context).of({ ...scope, sessionId });
    await state.set('key', 1);
    await state.get('key');
    const secrets = new SecretStore(context, vault).of(scope);
    await secrets.set('name', 'value');
    await secrets.get('name');
    const blobs = new BlobStore(context).of(scope);
    await blobs.get(await blobs.put({ mediaType: 'text/plain', data: new Uint8Array(1) }));
    const delegations = new DelegationStore(context, vault);
    const facts = { owner, audience: 'did:o', cid: 'bafy', capabilities: [], expiresAt: null };
    await delegations.put({ ...facts, raw: 'token' });
    await delegations.get(facts);
    await delegations.recordUse(facts);
    await delegations.recordPlugins([{ ...facts, purpose: 'services', plugin: 'notes', at: 1 }]);
    await delegations.revoke(owner, 'bafy');
    await new RevocationStore(context).has('bafy');
    const claims = new SingleUseStore(context).of(owner);
    await claims.claim('bafy', 1);
    await claims.release('bafy');
    await new CallerStore(context).has(owner);
    await new IdempotencyStore(context).find({ owner, key: 'k' });
    await new ModelUsageStore(context).add('2026-01-31', 1);
  });
  expect(plans.length).toBeGreaterThan(30);
  expect(plans.filter(isSlow)).toEqual([]);
  expect(plans).toContain(
    'SEARCH delegations USING INDEX delegations_current (owner=? AND purpose=? AND audience=?)',
  );
});

it('queries about the attempts of a turn use an index', async () => {
  const plans = await explainQueries(async (context) => {
    const runs = new RunStore(context, createVault(new Uint8Array(32)), { hostId: 'host' });
    const turn = { owner, sessionId: 's', turn: 1 };
    await runs.interrupts(turn);
    await runs.steps(turn);
    await runs.hosts();
  });
  expect(plans[0]).toBe(
    'SEARCH interrupts USING INDEX interrupts_by_turn (owner=? AND session_id=? AND turn=?)',
  );
  expect(plans.filter((plan) => /\bSCAN /.test(plan))).toEqual([]);
});

const isSlow = (plan: string) => /\bSCAN (?!CONSTANT|\d+-ROW)|TEMP B-TREE/.test(plan);

it('queries of reports, revocations, activity and answers use an index', async () => {
  const plans = await explainQueries(async (context) => {
    await new TurnReports(context).find('run');
    await new RevocationStore(context).listExpiring({
      owners: ['did:a', 'did:b'],
      withinSeconds: 60,
      limit: 10,
    });
    await new ActivityStore(context).list({ owner, sessionId: 's', before: 'z', limit: 10 });
    const answers = [1, 9].map((turn) => ({ owner, sessionId: 's', turn, id: 'm', type: 'ai' }));
    await new AnswerDetailsStore(context).read(answers as never);
  });
  expect(plans).toEqual([
    'SEARCH runs USING INDEX runs_by_id (id=?)',
    'SEARCH revocations USING INDEX revocations_by_owner (owner=?)',
    'SEARCH activity USING INDEX activity_by_session (owner=? AND session_id=? AND id<?)',
    'SEARCH feedback USING INDEX sqlite_autoindex_feedback_1 (owner=? AND session_id=? AND message_id=?)',
    'SEARCH runs USING INDEX runs_in_order (owner=? AND session_id=? AND turn=?)',
  ]);
});

it('ApprovalStore.pending looks up the open interrupts, not all approvals', async () => {
  const vault = createVault(new Uint8Array(32));
  const plans = await explainQueries(async (context) => {
    const approvals = new ApprovalStore(context, vault, 'host');
    await approvals.pending(owner);
    await approvals.pending(owner, 's');
  });
  const lookup = 'SEARCH a USING INDEX sqlite_autoindex_approvals_1 (owner=? AND id=?)';
  expect(plans.map((plan) => plan.split('; ').slice(0, 2))).toEqual([
    ['SEARCH i USING INDEX interrupts_open (owner=?)', lookup],
    ['SEARCH i USING INDEX interrupts_open (owner=? AND session_id=?)', lookup],
  ]);
});

it('RunStore.pruneFrames looks up the runs that have frames, not all that have ended', async () => {
  const [plan, ...others] = await explainQueries((context) =>
    new RunStore(context, createVault(new Uint8Array(32)), { hostId: 'host' }).pruneFrames({
      endedBefore: 1,
    }),
  );
  expect(plan).toContain('SEARCH frames USING COVERING INDEX');
  expect(plan).toContain('SEARCH runs USING INDEX sqlite_autoindex_runs_1 (owner=? AND id=?)');
  expect(plan).not.toContain('TEMP B-TREE');
  expect(others).toEqual([]);
});
