import { afterEach, describe, expect, it } from 'vitest';
import { allMessages } from '../../../test/support/all-messages.js';
import { openOldDatabase } from '../../../test/support/old-database.js';
import { engines, type TestDatabase } from '../../../test/support/test-database.js';
import { createVault } from '../encryption.js';
import type { Frame } from '../runs/frames.js';
import { openStore, type Store } from '../store.js';
import { hostSchema } from './migrate.js';

const owner = 'did:key:zAlice';
const oracleDid = 'did:key:zOracle';
const sessionId = 'session-1';
const oldSteps = Object.fromEntries(
  Object.entries(hostSchema.steps).filter(([name]) => name < '0004'),
);

const session = {
  id: sessionId,
  owner,
  title: 'Soil',
  created_at: 1,
  last_updated_at: 9,
  oracle_did: oracleDid,
  oracle_name: 'Pythia',
  oracle_entity_did: null,
  room_id: 'room-1',
  last_seq: 6,
  last_turn: 4,
};
const message = {
  session_id: sessionId,
  owner,
  request_id: 'r',
  run_id: null,
  is_complete: 1,
  content: '',
  tool_calls: null,
  reasoning: null,
  attachments: null,
  metadata: null,
};
const run = {
  session_id: sessionId,
  owner,
  request_id: 'r',
  error_kind: null,
  error_message: null,
  message_id: null,
  last_seq: 0,
  input_tokens: 0,
  output_tokens: 0,
  cached_tokens: 0,
  report: null,
  started_at: 5,
  updated_at: 6,
  host_id: 'machine/1/0',
  lease_until: 7,
};
const call = { id: 'c', name: 'add', args: { a: 1 }, status: 'done', output: '"2"' } as const;
const file = { mxcUri: 'mxc://a/b', filename: 'f.txt', mimetype: 'text/plain' };
const LOG_FRAMES = 3000;

/** Sessions, turns and files as the version before this migration stored them. */
const oldRows: Record<string, object[]> = {
  sessions: [session, { ...session, id: 'session-2', owner: 'did:key:zBob', last_updated_at: 3 }],
  rooms: [{ id: 'room-1', owner, oracle_did: oracleDid, created_at: 1 }],
  room_state: [{ owner, room_id: 'room-1', key: 'tone', data: '{"short":true}', updated_at: 2 }],
  messages: [
    {
      ...message,
      ...{ id: 'm1', turn: 1, seq: 1, type: 'human', created_at: 1 },
      content: 'Look at this',
      attachments: JSON.stringify([file]),
      metadata: '{"spaceId":"s"}',
    },
    {
      ...message,
      ...{ id: 'm2', turn: 1, seq: 3, type: 'ai', created_at: 3, run_id: 'run-1' },
      content: 'It is 2.',
      reasoning: 'Adding.',
      tool_calls: JSON.stringify([call, { ...call, id: 'd' }]),
    },
    { ...message, id: 'm3', turn: 2, seq: 2, type: 'human', content: 'And?', created_at: 2 },
    {
      ...message,
      ...{ id: 'm4', turn: 2, seq: 4, type: 'ai', created_at: 4, is_complete: 0 },
      content: 'Well',
    },
    { ...message, id: 'm5', turn: 3, seq: 5, type: 'human', content: 'Next', created_at: 5 },
    { ...message, id: 'm6', turn: 4, seq: 6, type: 'human', content: 'Last', created_at: 6 },
    {
      ...message,
      ...{ id: 'm7', turn: 1, seq: 1, type: 'human', content: 'Hi', created_at: 1 },
      ...{ session_id: 'session-2', owner: 'did:key:zBob' },
    },
  ],
  runs: [
    {
      ...run,
      ...{ id: 'run-1', turn: 1, status: 'finished', message_id: 'm2', last_seq: LOG_FRAMES },
      ...{ input_tokens: 10, output_tokens: 5, cached_tokens: 2 },
      report: '{"warnings":[{"code":"w","message":"left out"}]}',
    },
    {
      ...run,
      ...{ id: 'run-2', turn: 2, status: 'failed', message_id: 'm4' },
      ...{ error_kind: 'server', error_message: 'broken' },
    },
    { ...run, id: 'run-3', turn: 3, status: 'running' },
    { ...run, id: 'run-4', turn: 4, status: 'queued' },
  ],
  run_frames: Array.from({ length: LOG_FRAMES }, (_, i) => ({
    run_id: 'run-1',
    owner,
    seq: i + 1,
    event: 'message',
    data: JSON.stringify({ content: `${i} ${'x'.repeat(200)}` }),
  })),
  session_state: [{ session_id: sessionId, owner, plugin: 'p', key: 'k', value: '[1]' }],
  blobs: [
    {
      ...{ id: 'blob-1', owner, plugin: 'p', media_type: 'text/plain', size: 3, created_at: 1 },
      data: new Uint8Array([1, 2, 3]),
    },
  ],
  idempotency_keys: [
    { owner, key: 'k', body_hash: 'h', run_id: 'run-1', created_at: 1, expires_at: 9e12 },
  ],
  delegations: [
    {
      ...{ owner, cid: 'bafyone', audience: oracleDid, capabilities: '[]', created_at: 3 },
      ...{ expires_at: 1_900_000_000, stored_at: 3, last_used_at: 4 },
      ciphertext: createVault(new Uint8Array(32).fill(7)).seal('token', [
        'delegation',
        owner,
        oracleDid,
      ]),
    },
  ],
  revocations: [{ owner, cid: 'bafyrevoked', expires_at: null }],
  single_use: [{ cid: 'bafyused', owner, expires_at: 9e12 }],
  callers: [{ did: 'did:key:zBob', cid: 'bafyinvite', created_at: 1 }],
  model_usage: [{ day: '2026-01-31', tokens: 17 }],
};

let database: TestDatabase;
let store: Store;

afterEach(async () => {
  await store?.close();
  await database.drop();
});

async function migrateOld(engine: (typeof engines)[number], rows: Record<string, object[]>) {
  database = await openOldDatabase(engine, { steps: oldSteps, rows });
  store = await openStore(database.options);
}

describe.each(engines)('migration 0004 on %s', (engine) => {
  it('keeps messages, with their parts in order and their parents', async () => {
    await migrateOld(engine, oldRows);
    const messages = await allMessages(store, { owner, sessionId });
    expect(messages.map(({ id, parent }) => [id, parent])).toEqual([
      ['m1', undefined],
      ['m2', 'm1'],
      ['m3', 'm2'],
      ['m4', 'm3'],
      ['m5', 'm4'],
      ['m6', 'm5'],
    ]);
    expect(messages[0]).toMatchObject({
      ...{ id: 'm1', sessionId, owner, turn: 1, seq: 1, type: 'human', requestId: 'r' },
      ...{ content: 'Look at this', isComplete: true, createdAt: 1, metadata: { spaceId: 's' } },
      parts: [
        { type: 'text', text: 'Look at this' },
        { type: 'file', file },
      ],
    });
    expect(messages[1]).toMatchObject({
      content: 'It is 2.',
      runId: 'run-1',
      parts: [
        { type: 'reasoning', text: 'Adding.' },
        { type: 'tool-call', call },
        { type: 'tool-call', call: { ...call, id: 'd' } },
        { type: 'text', text: 'It is 2.' },
      ],
    });
    expect(messages[3]).toMatchObject({ content: 'Well', isComplete: false });
    for (const plain of messages.slice(2)) expect(plain).not.toHaveProperty('parts');
    const other = { owner: 'did:key:zBob', sessionId: 'session-2' };
    expect(await allMessages(store, other)).toMatchObject([{ id: 'm7', content: 'Hi' }]);
  });

  it('keeps runs as first attempts, with their logs', async () => {
    await migrateOld(engine, oldRows);
    const runs = await store.runs.list({ owner, sessionId, fromTurn: 1 });
    expect(runs).toMatchObject([
      {
        ...{ id: 'run-1', status: 'finished', messageId: 'm2', startedAt: 5, updatedAt: 6 },
        usage: { input: 10, output: 5, cached: 2 },
        report: { warnings: [{ code: 'w', message: 'left out' }] },
      },
      { id: 'run-2', status: 'failed', error: { kind: 'server', message: 'broken' } },
      { id: 'run-3', status: 'running' },
      { id: 'run-4', status: 'queued' },
    ]);
    const frames: Frame[] = [];
    for await (const page of store.runs.framePages({ owner, runId: 'run-1', after: 0 }))
      frames.push(...page);
    expect(frames).toHaveLength(LOG_FRAMES);
    expect(frames.at(-1)).toMatchObject({ seq: LOG_FRAMES, event: 'message' });
    expect(await store.idempotency.find({ owner, key: 'k' })).toMatchObject({ runId: 'run-1' });
  });

  it('keeps everything else', async () => {
    await migrateOld(engine, oldRows);
    expect(await store.sessions.find({ owner, sessionId })).toMatchObject({
      ...{ id: sessionId, owner, title: 'Soil', createdAt: 1, lastUpdatedAt: 9 },
      ...{ oracleDid, oracleName: 'Pythia', roomId: 'room-1' },
    });
    expect(await store.rooms.getRoom({ owner, oracleDid })).toBe('room-1');
    expect(await store.roomState.of(oracleDid).read({ owner }, 'tone')).toEqual({ short: true });
    const state = store.sessionState.of({ owner, sessionId, plugin: 'p' });
    expect(await state.get('k')).toEqual([1]);
    const blob = await store.blobs.of({ owner, plugin: 'p' }).get('blob-1');
    expect(blob).toEqual({ mediaType: 'text/plain', data: new Uint8Array([1, 2, 3]) });
    expect(await store.delegations.get({ owner, audience: oracleDid })).toEqual({
      ok: { cid: 'bafyone', expiresAt: 1_900_000_000, raw: 'token' },
    });
    expect(await store.delegations.list(owner)).toMatchObject([
      { cid: 'bafyone', purpose: 'services', isCurrent: true, lastUsedAt: 4 },
    ]);
    expect(await store.revocations.has('bafyrevoked')).toBe(true);
    expect(await store.singleUse.has('bafyused')).toBe(true);
    expect(await store.callers.has('did:key:zBob')).toBe(true);
    expect(await store.modelUsage.total('2026-01-31')).toBe(17);
  });

  it('continues a session after its last message, and finds its messages (migration 0005)', async () => {
    await migrateOld(engine, oldRows);
    const session = await store.sessions.find({ owner, sessionId });
    const added = await store.messages.append({
      ...{ owner, sessionId, type: 'human', content: 'a quokka', requestId: 'r', isComplete: true },
    });
    expect(added?.parent).toBe(session?.activeMessageId);
    while (await store.search.indexPass());
    for (const text of ['Soil', 'quokka'])
      expect(
        (await store.search.findMessages({ owner, text, limit: 9, offset: 0 }))?.found.length,
      ).toBeGreaterThan(0);
  });

  it('deletes a session with everything that belongs to it', async () => {
    await migrateOld(engine, oldRows);
    expect(await store.sessions.delete({ owner, sessionId })).toBe(true);
    expect(await allMessages(store, { owner, sessionId })).toEqual([]);
    expect(await store.runs.find({ owner, runId: 'run-1' })).toBeUndefined();
    expect(await store.runs.frames({ owner, runId: 'run-1', after: 0 })).toEqual([]);
    const state = store.sessionState.of({ owner, sessionId, plugin: 'p' });
    expect(await state.get('k')).toBeUndefined();
    expect(
      await store.sessions.find({ owner: 'did:key:zBob', sessionId: 'session-2' }),
    ).toBeDefined();
  });

  it('leaves one running run to a session in which two hosts ran turns at once', async () => {
    const runs = [3, 4, 5].map((turn) => ({ ...run, id: `run-${turn}`, turn, status: 'running' }));
    await migrateOld(engine, { sessions: [session], runs });
    const stored = await store.runs.list({ owner, sessionId, fromTurn: 1 });
    expect(stored.map(({ status }) => status)).toEqual(['running', 'queued', 'queued']);
  });

  it('converts any number of messages with parts', async () => {
    const messages = Array.from({ length: 160 }, (_, i) => ({
      ...message,
      ...{ id: `m${i}`, turn: i + 1, seq: i + 1, type: 'ai', content: '', created_at: i },
      reasoning: `thought ${i}`,
    }));
    await migrateOld(engine, { sessions: [session], messages });
    const stored = await allMessages(store, { owner, sessionId });
    expect(stored.map(({ parts }) => parts)).toEqual(
      messages.map(({ reasoning }) => [{ type: 'reasoning', text: reasoning }]),
    );
  });
});
