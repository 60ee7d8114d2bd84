import { describe, expect, it } from 'vitest';
import { engines, newOwner, useStore } from '../../../test/support/test-database.js';
import { copySession, startTestRun } from '../../../test/support/test-runs.js';
import type { ImportProgress } from './import-store.js';

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
    const message = (turn: number, length: number) => createMessage(session.id, turn, length);
    const first = [message(1, 6 * MB), message(1, 6 * MB), message(1, 6 * MB), message(2, 6 * MB)];
    const fitting = await test.store.imports.filterFitting(owner, first);
    expect(fitting).toEqual([first[0], first[1], first[3]]);
    expect(await test.store.imports.insert(owner, 'messages', fitting)).toBe(3);
    const other = await test.store.sessions.create({ owner, oracleDid });
    const ofOther = createMessage(other.id, 1, 6 * MB);
    const later = [message(1, 6 * MB), message(2, 6 * MB), message(3, 6 * MB), ofOther];
    expect(await test.store.imports.filterFitting(owner, later)).toEqual(later.slice(1));
  });
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

  it('ImportStore.findSession and countSessions know the sessions of the user only', async () => {
    const { imports, sessions } = test.store;
    const owner = newOwner();
    const { id } = await sessions.create({ owner, oracleDid });
    await sessions.create({ owner, oracleDid });
    expect(await imports.findSession(owner, id)).toEqual({ createdAt: expect.any(Number) });
    expect(await imports.findSession(owner, 'none')).toBeUndefined();
    expect(await imports.findSession(newOwner(), id)).toBeUndefined();
    expect(await imports.countSessions(owner)).toBe(2);
  });

  it('ImportStore.completeSession continues one session after its last message', async () => {
    const { imports, sessions } = test.store;
    const owner = newOwner();
    const open = async () => ({
      owner,
      sessionId: (await sessions.create({ owner, oracleDid })).id,
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
    const { id: sessionId } = await sessions.create({ owner: victim, oracleDid });
    await imports.insert(victim, 'messages', [createMessage(sessionId, 7)]);
    const session = await copySession(test.store, newOwner(), { owner: victim, sessionId });
    const own = createMessage(sessionId, 2);
    await imports.insert(session.owner, 'messages', [own]);
    await imports.completeSession(session.owner, sessionId);
    expect(await sessions.find(session)).toMatchObject({ activeMessageId: own.id });
    expect((await startTestRun(test.store, session)).run.turn).toBe(3);
  });
});
