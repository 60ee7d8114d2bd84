import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, expect, it } from 'vitest';
import { engines, newOwner, useStore } from '../../test/support/test-database.js';
import { copySession, finishTestRun, startTestRun } from '../../test/support/test-runs.js';

const oracleDid = 'did:key:zOracle';

describe.each(engines)('SessionStore on %s', (engine) => {
  const test = useStore(engine);

  it('stores all fields', async () => {
    const owner = newOwner();
    const { sessions } = test.store;
    const session = await sessions.create({
      owner,
      oracleDid,
      oracleName: 'Pythia',
      oracleEntityDid: 'did:ixo:entity:1',
      title: 'Naming',
      roomId: '!room:example.org',
    });
    expect(session).toMatchObject({ owner, title: 'Naming', roomId: '!room:example.org' });
    expect(await sessions.find({ owner, sessionId: session.sessionId })).toEqual(session);
  });

  it("creates untitled sessions in the user's room by default", async () => {
    const owner = newOwner();
    const session = await test.store.sessions.create({ owner, oracleDid });
    expect(session.title).toBe('Untitled');
    expect(session.roomId).toBe(await test.store.rooms.getRoom({ owner, oracleDid }));
  });

  it('treats the session of another user as unknown', async () => {
    const { sessions } = test.store;
    const owner = newOwner();
    const { sessionId } = await sessions.create({ owner, oracleDid });
    const foreign = { owner: newOwner(), sessionId };
    const unknown = { owner, sessionId: 'nothing\u0000here' };
    for (const key of [foreign, unknown]) {
      expect(await sessions.find(key)).toBeUndefined();
      await expect(sessions.get(key)).rejects.toMatchObject({ code: 'session_not_found' });
      expect(await sessions.rename({ ...key, title: 'Mine now' })).toBe(false);
      expect(await sessions.delete(key)).toBe(false);
    }
    await sessions.nameOnce({ ...foreign, title: 'Mine now' });
    expect(await sessions.find({ owner, sessionId })).toMatchObject({ title: 'Untitled' });
    await sessions.nameOnce({ owner, sessionId, title: 'Named' });
    await sessions.nameOnce({ owner, sessionId, title: 'Named again' });
    expect(await sessions.find({ owner, sessionId })).toMatchObject({ title: 'Named' });
    expect((await sessions.list({ owner: foreign.owner, limit: 10, offset: 0 })).total).toBe(0);
  });

  it('SessionStore.nameOnce names one session and leaves the others', async () => {
    const { sessions } = test.store;
    const owner = newOwner();
    const { sessionId: other } = await sessions.create({ owner, oracleDid });
    const { sessionId } = await sessions.create({ owner, oracleDid });
    expect(await sessions.nameOnce({ owner, sessionId, title: 'Named' })).toBe(true);
    expect(await sessions.nameOnce({ owner, sessionId, title: 'Again' })).toBe(false);
    expect(await sessions.find({ owner, sessionId })).toHaveProperty('title', 'Named');
    expect(await sessions.find({ owner, sessionId: other })).toHaveProperty('title', 'Untitled');
  });

  it('delete returns true only once', async () => {
    const { sessions } = test.store;
    const owner = newOwner();
    const { sessionId } = await sessions.create({ owner, oracleDid });
    expect(await sessions.delete({ owner, sessionId })).toBe(true);
    expect(await sessions.delete({ owner, sessionId })).toBe(false);
    expect(await sessions.find({ owner, sessionId })).toBeUndefined();
  });

  it('SessionStore.deleteEmpty deletes a session without turns, and no other', async () => {
    const { sessions } = test.store;
    const owner = newOwner();
    const [empty, used] = [
      await sessions.create({ owner, oracleDid }),
      await sessions.create({ owner, oracleDid }),
    ];
    await startTestRun(test.store, { owner, sessionId: used.sessionId });
    expect(await sessions.deleteEmpty({ owner: newOwner(), sessionId: empty.sessionId })).toBe(
      false,
    );
    expect(await sessions.deleteEmpty({ owner, sessionId: empty.sessionId })).toBe(true);
    expect(await sessions.deleteEmpty({ owner, sessionId: used.sessionId })).toBe(false);
    expect(await sessions.find({ owner, sessionId: empty.sessionId })).toBeUndefined();
    expect(await sessions.find({ owner, sessionId: used.sessionId })).toBeDefined();
  });

  it('createWithin creates no more sessions than the limit, and another one after a deletion', async () => {
    const { sessions } = test.store;
    const wanted = { owner: newOwner(), oracleDid };
    const first = await sessions.createWithin(2, wanted);
    expect(await sessions.createWithin(2, wanted)).toBeDefined();
    expect(await sessions.createWithin(2, wanted)).toBeUndefined();
    expect(await sessions.createWithin(2, { ...wanted, owner: newOwner() })).toBeDefined();
    await sessions.delete({ owner: wanted.owner, sessionId: first?.sessionId ?? '' });
    expect(await sessions.createWithin(2, wanted)).toBeDefined();
    expect(await sessions.createWithin(Number.POSITIVE_INFINITY, wanted)).toBeDefined();
  });

  it('stores text that PostgreSQL would reject', async () => {
    const owner = newOwner();
    const session = await test.store.sessions.create({
      owner,
      oracleDid,
      title: 'a\u0000b\ud800c',
    });
    const found = await test.store.sessions.find({ owner, sessionId: session.sessionId });
    expect(found?.title).toBe('a\ufffdb\ufffdc');
  });
});

describe.each(engines)('SessionStore.list on %s', (engine) => {
  let now = 1_700_000_000_000;
  const test = useStore(engine, { clock: () => now });

  it('pages through 1,000 sessions of each of two users without gaps or duplicates', async () => {
    const owners = [newOwner(), newOwner()];
    const created = new Map<string, string[]>();
    for (const owner of owners) {
      const ids: string[] = [];
      while (ids.length < 1_000) {
        // Groups of ten share a timestamp, so that the tie-break has work to do. One group at a time: a pool
        // refuses those who wait too long for a connection, which a busy machine makes them do.
        now += 1;
        const group = Array.from({ length: 10 }, () =>
          test.store.sessions.create({ owner, oracleDid }),
        );
        for (const { sessionId: id } of await Promise.all(group)) ids.push(id);
      }
      created.set(owner, ids.sort());
    }
    for (const owner of owners) {
      const pages = await Promise.all(
        Array.from({ length: 11 }, (_, page) =>
          test.store.sessions.list({ owner, limit: 100, offset: page * 100 }),
        ),
      );
      expect(pages.map(({ total }) => total)).toEqual(Array(11).fill(1_000));
      expect(pages[10]?.sessions).toEqual([]);
      const listed = pages.flatMap(({ sessions }) => sessions);
      expect(listed.map(({ sessionId: id }) => id).sort()).toEqual(created.get(owner));
      const sorted = listed.toSorted(
        (a, b) => b.lastUpdatedAt - a.lastUpdatedAt || (a.sessionId < b.sessionId ? 1 : -1),
      );
      expect(listed).toEqual(sorted);
    }
  });

  it('lists sessions that were renamed or got a message first', async () => {
    const owner = newOwner();
    const { sessions, messages } = test.store;
    const ids: string[] = [];
    for (let i = 0; i < 4; i++) {
      now += 1;
      ids.push((await sessions.create({ owner, oracleDid })).sessionId);
    }
    const [first = '', second = '', third = ''] = ids;
    const order = async () =>
      (await sessions.list({ owner, limit: 10, offset: 0 })).sessions.map(
        ({ sessionId: id }) => id,
      );
    now += 1;
    await sessions.rename({ owner, sessionId: first, title: 'First' });
    expect((await order())[0]).toBe(first);
    now += 1;
    await sessions.rename({ owner, sessionId: second, title: 'Renamed' });
    expect((await order())[0]).toBe(second);
    now += 1;
    const message = { type: 'human', content: 'hi', requestId: 'r', isComplete: true } as const;
    await messages.append({ ...message, owner, sessionId: third });
    expect((await order()).slice(0, 3)).toEqual([third, second, first]);
  });
});

describe.each(engines)('SessionStore with unlisted sessions on %s', (engine) => {
  let now = 1_700_000_000_000;
  const test = useStore(engine, { clock: () => now });

  async function create(owner: string, isUnlisted: boolean): Promise<string> {
    now += 1;
    return (await test.store.sessions.create({ owner, oracleDid, isUnlisted })).sessionId;
  }

  const exists = async (owner: string, sessionId: string) =>
    (await test.store.sessions.find({ owner, sessionId })) !== undefined;

  it('SessionStore.list omits and does not count unlisted sessions, and isUnlisted knows them', async () => {
    const { sessions } = test.store;
    const owner = newOwner();
    const listed = await create(owner, false);
    const unlisted = await create(owner, true);
    const list = await sessions.list({ owner, limit: 10, offset: 0 });
    expect(list).toMatchObject({ sessions: [{ sessionId: listed }], total: 1 });
    expect(await sessions.isUnlisted({ owner, sessionId: listed })).toBe(false);
    expect(await sessions.isUnlisted({ owner, sessionId: unlisted })).toBe(true);
    expect(await sessions.isUnlisted({ owner: newOwner(), sessionId: unlisted })).toBe(false);
  });

  it('SessionStore.createWithin deletes the oldest unlisted session without a turn to make room', async () => {
    const { sessions, runs } = test.store;
    const owner = newOwner();
    await create(newOwner(), true);
    const listed = await create(owner, false);
    const busy = await create(owner, true);
    const oldest = await create(owner, true);
    const newer = await create(owner, true);
    await startTestRun(test.store, { owner, sessionId: busy });
    const ended = await startTestRun(test.store, { owner, sessionId: oldest });
    await finishTestRun(runs, ended.key);
    for (const sessionId of [oldest, newer]) {
      now += 1;
      await sessions.rename({ owner, sessionId, title: 'Used' });
    }
    const last = await sessions.createWithin(4, { owner, oracleDid });
    expect(await exists(owner, oldest)).toBe(false);
    for (const id of [listed, busy, newer, last?.sessionId ?? ''])
      expect(await exists(owner, id)).toBe(true);
    expect(await sessions.createWithin(4, { owner, oracleDid })).toBeDefined();
    expect(await exists(owner, newer)).toBe(false);
    expect(await sessions.createWithin(4, { owner, oracleDid })).toBeUndefined();
    expect(await exists(owner, busy)).toBe(true);
  });

  it('SessionStore.createWithin deletes a session also if another user has a turn in one with the same id', async () => {
    const { sessions } = test.store;
    const [owner, other] = [newOwner(), newOwner()];
    const sessionId = await create(owner, true);
    await copySession(test.store, other, { owner, sessionId });
    await startTestRun(test.store, { owner: other, sessionId });
    expect(await sessions.createWithin(1, { owner, oracleDid })).toBeDefined();
    expect(await exists(owner, sessionId)).toBe(false);
    expect(await exists(other, sessionId)).toBe(true);
  });
});

describe.each(engines)('SessionStore.pruneUnlisted on %s', (engine) => {
  let now = 1_700_000_000_000;
  const test = useStore(engine, { clock: () => now, hasTwins: false });

  it('SessionStore.pruneUnlisted deletes unlisted sessions that were not used for 30 days', async () => {
    const { sessions } = test.store;
    const owner = newOwner();
    const listed = await sessions.create({ owner, oracleDid });
    const unused = await sessions.create({ owner, oracleDid, isUnlisted: true });
    now += 1;
    const used = await sessions.create({ owner, oracleDid, isUnlisted: true });
    now += 30 * 86_400_000;
    expect(await sessions.pruneUnlisted()).toBe(1);
    expect(await sessions.find({ owner, sessionId: unused.sessionId })).toBeUndefined();
    expect(await sessions.find({ owner, sessionId: used.sessionId })).toEqual(used);
    expect(await sessions.find({ owner, sessionId: listed.sessionId })).toEqual(listed);
  });

  it('deletes more than fit into a page', async () => {
    const { sessions } = test.store;
    const owner = newOwner();
    for (let i = 0; i < 201; i++) await sessions.create({ owner, oracleDid, isUnlisted: true });
    now += 31 * 86_400_000;
    expect(await sessions.pruneUnlisted()).toBeGreaterThanOrEqual(201);
    expect(await sessions.pruneUnlisted()).toBe(0);
  });
});

describe('SessionStore.pruneUnlisted on SQLite', () => {
  let now = 1_700_000_000_000;
  const test = useStore('sqlite', { clock: () => now, hasTwins: false });

  it('keeps a session that is used after it was found', async () => {
    const { sessions } = test.store;
    const owner = newOwner();
    for (const title of ['first', 'second'])
      await sessions.create({ owner, oracleDid, title, isUnlisted: true });
    now += 31 * 86_400_000;
    const handle = new DatabaseSync(join(test.options.dataDir, 'sibyl.db'), { timeout: 5_000 });
    // The deletion of one counts as a use of the other.
    handle.exec(`create trigger use_meanwhile after delete on sessions
      begin update sessions set last_updated_at = ${now}; end`);
    handle.close();
    expect(await sessions.pruneUnlisted()).toBe(1);
    expect(await sessions.pruneUnlisted()).toBe(0);
  });
});
