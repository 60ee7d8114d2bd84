import { Session, SessionPage } from '@sibyl/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startHost, type TestHost } from './support/host.js';
import { createTestDatabase, engines, type TestDatabase } from './support/test-database.js';
import { TestUser } from './support/user.js';

let host: TestHost;
beforeAll(async () => {
  host = await startHost({
    env: { ORACLE_NAME: 'Pythia', ORACLE_ENTITY_DID: 'did:ixo:entity:delphi' },
  });
});
afterAll(() => host.close());

const open = async (user: TestUser, body?: object) =>
  Session.parse((await user.request('POST', '/sessions', { body })).body);

it('POST /sessions creates a session', async () => {
  const alice = new TestUser(host);
  const { status, body } = await alice.request('POST', '/sessions');
  expect(status).toBe(201);
  expect(body).toEqual({
    sessionId: expect.stringMatching(/^[A-Za-z0-9-]+$/),
    title: 'Untitled',
    createdAt: body.lastUpdatedAt,
    lastUpdatedAt: expect.stringMatching(/^\d{4}-.*Z$/),
    oracleName: 'Pythia',
    oracleDid: host.did,
    oracleEntityDid: 'did:ixo:entity:delphi',
    roomId: expect.any(String),
  });
});

it('POST /sessions accepts a title', async () => {
  expect((await open(new TestUser(host), { title: 'Soil carbon' })).title).toBe('Soil carbon');
});

describe.each(engines)('POST /sessions with an Idempotency-Key on %s', (engine) => {
  let database: TestDatabase;
  let idempotent: TestHost;
  beforeAll(async () => {
    database = await createTestDatabase(engine);
    idempotent = await startHost({ env: database.env });
  }, 120_000);
  afterAll(async () => {
    await idempotent?.close();
    await database?.drop();
  });

  const create = (user: TestUser, key: string, body?: object) =>
    user.request('POST', '/sessions', { body, headers: { 'idempotency-key': key } });

  it('creates one session, also for concurrent requests', async () => {
    const user = new TestUser(idempotent);
    const replies = await Promise.all(Array.from({ length: 5 }, () => create(user, 'first')));
    replies.push(await create(user, 'first'));
    expect(new Set(replies.map(({ status }) => status))).toEqual(new Set([201]));
    expect(new Set(replies.map(({ body }) => body.sessionId)).size).toBe(1);
    expect((await user.request('GET', '/sessions')).body.total).toBe(1);
    expect((await create(user, 'second')).body.sessionId).not.toBe(replies[0]?.body.sessionId);
    const other = (await create(new TestUser(idempotent), 'first')).body.sessionId;
    expect(other).not.toBe(replies[0]?.body.sessionId);
  });

  it('may use the key of a message', async () => {
    const user = new TestUser(idempotent);
    const { sessionId } = (await create(user, 'both')).body;
    const options = { body: { message: 'Hello' }, headers: { 'idempotency-key': 'both' } };
    expect((await user.request('POST', `/messages/${sessionId}`, options)).status).toBe(200);
    expect((await create(user, 'both')).body.sessionId).toBe(sessionId);
  });

  it('refuses another body and a malformed key, and replaces a deleted session', async () => {
    const user = new TestUser(idempotent);
    const { sessionId } = (await create(user, 'k', { title: 'One' })).body;
    expect((await create(user, 'k', { title: 'Two' })).body).toMatchObject({
      statusCode: 409,
      code: 'idempotency_conflict',
    });
    expect((await create(user, 'not a key')).status).toBe(400);
    await user.request('DELETE', `/sessions/${sessionId}`);
    const again = (await create(user, 'k', { title: 'One' })).body.sessionId;
    expect(again).not.toBe(sessionId);
    expect((await create(user, 'k', { title: 'One' })).body.sessionId).toBe(again);
  });
});

it('POST /sessions uses one room per user', async () => {
  const [alice, bob] = [new TestUser(host), new TestUser(host)];
  const rooms = [await open(alice), await open(alice), await open(bob)].map((s) => s.roomId);
  expect(rooms[0]).toBe(rooms[1]);
  expect(rooms[2]).not.toBe(rooms[0]);
});

it('POST /sessions returns ids that sort by creation', async () => {
  const alice = new TestUser(host);
  const ids = [];
  for (let i = 0; i < 5; i++) ids.push((await open(alice)).sessionId);
  expect(ids.toSorted()).toEqual(ids);
});

describe('GET /sessions of two users with 1,000 sessions each', () => {
  const users: TestUser[] = [];
  const created = new Map<TestUser, string[]>();

  beforeAll(async () => {
    for (let u = 0; u < 2; u++) {
      const user = new TestUser(host);
      const ids: string[] = [];
      for (let i = 0; i < 20; i++) {
        const batch = await Promise.all(Array.from({ length: 50 }, () => open(user)));
        ids.push(...batch.map(({ sessionId }) => sessionId));
      }
      users.push(user);
      created.set(user, ids);
    }
  }, 120_000);

  const page = async (user: TestUser, limit: number, offset: number) => {
    const { body } = await user.request('GET', `/sessions?limit=${limit}&offset=${offset}`);
    return SessionPage.parse(body);
  };

  it('returns stable pages, newest first, with the total', async () => {
    for (const user of users) {
      const seen: Session[] = [];
      for (let offset = 0; offset < 1000; offset += 100) {
        const { sessions, total } = await page(user, 100, offset);
        expect(total).toBe(1000);
        seen.push(...sessions);
      }
      expect(new Set(seen.map((s) => s.sessionId))).toEqual(new Set(created.get(user)));
      const order = seen.map((s) => `${s.lastUpdatedAt} ${s.sessionId}`);
      expect(order).toEqual(order.toSorted().reverse());
    }
  });

  it('is empty past the end, with the total', async () => {
    const [alice] = users as [TestUser];
    expect(await page(alice, 100, 1000)).toEqual({ sessions: [], total: 1000 });
    expect(await page(alice, 100, 999_999)).toEqual({ sessions: [], total: 1000 });
    expect((await page(alice, 100, 950)).sessions).toHaveLength(50);
  });

  it('returns twenty by default', async () => {
    const { body } = await (users[0] as TestUser).request('GET', '/sessions');
    expect(body.sessions).toHaveLength(20);
  });
});

describe('another user', () => {
  it('sees and deletes nothing, and gets the same response as for an unknown id', async () => {
    const [alice, eve] = [new TestUser(host), new TestUser(host)];
    const { sessionId } = await open(alice);
    expect((await eve.request('GET', '/sessions')).body).toEqual({ sessions: [], total: 0 });
    const foreign = await eve.request('DELETE', `/sessions/${sessionId}`);
    const unknown = await eve.request('DELETE', `/sessions/${sessionId.replace(/.$/, '0')}`);
    expect(foreign.status).toBe(404);
    expect({ ...foreign.body, requestId: '' }).toEqual({ ...unknown.body, requestId: '' });
    expect((await alice.request('GET', '/sessions')).body.total).toBe(1);
  });

  it('gets the response in the same time', async () => {
    const [alice, eve] = [new TestUser(host), new TestUser(host)];
    const { sessionId } = await open(alice);
    const unknownId = `${sessionId.slice(0, -4)}0000`;
    const time = async (id: string) => {
      const start = performance.now();
      await eve.request('DELETE', `/sessions/${id}`);
      return performance.now() - start;
    };
    const times: [number, number][] = [];
    for (let i = 0; i < 200; i++) times.push([await time(sessionId), await time(unknownId)]);
    const median = (values: number[]) => values.toSorted((a, b) => a - b)[100] ?? 0;
    const [foreign, unknown] = [median(times.map(([f]) => f)), median(times.map(([, u]) => u))];
    // The same query answers both; a wide band keeps a noisy machine from failing this.
    expect(foreign / unknown).toBeGreaterThan(0.5);
    expect(foreign / unknown).toBeLessThan(2);
  });
});

describe('PATCH /sessions/:sessionId', () => {
  const rename = (user: TestUser, id: string, body: object) =>
    user.request('PATCH', `/sessions/${id}`, { body });

  it('answers with the session under its new title', async () => {
    const alice = new TestUser(host);
    const session = await open(alice);
    const { status, body } = await rename(alice, session.sessionId, { title: ' Soil ' });
    expect(status).toBe(200);
    expect(Session.parse(body)).toMatchObject({ sessionId: session.sessionId, title: 'Soil' });
    expect((await alice.request('GET', '/sessions')).body.sessions[0].title).toBe('Soil');
  });

  it.each([[{}], [{ title: ' ' }], [{ title: 'x'.repeat(201) }], [{ title: 'a', roomId: 'b' }]])(
    'refuses %j',
    async (body) => {
      const alice = new TestUser(host);
      const { sessionId } = await open(alice);
      expect((await rename(alice, sessionId, body)).body.code).toBe('validation_failed');
    },
  );

  it('treats the session of another user as unknown', async () => {
    const [alice, eve] = [new TestUser(host), new TestUser(host)];
    const { sessionId } = await open(alice);
    for (const id of [sessionId, 'nothing', '%00'])
      expect((await rename(eve, id, { title: 'mine' })).body.code).toBe('session_not_found');
    expect((await alice.request('GET', '/sessions')).body.sessions[0].title).toBe('Untitled');
  });
});

describe('DELETE /sessions/:sessionId', () => {
  it('answers with a body, once', async () => {
    const alice = new TestUser(host);
    const { sessionId } = await open(alice);
    const first = await alice.request('DELETE', `/sessions/${sessionId}`);
    expect([first.status, first.body]).toEqual([200, { message: expect.any(String) }]);
    expect((await alice.request('DELETE', `/sessions/${sessionId}`)).status).toBe(404);
    expect((await alice.request('GET', '/sessions')).body.total).toBe(0);
  });

  it.each(['%00', '..%2f..', 'x'.repeat(500), "' or 1=1 --", '💥'])(
    'treats %s as an unknown session',
    async (id) => {
      const { status, body } = await new TestUser(host).request(
        'DELETE',
        `/sessions/${id.includes('%') ? id : encodeURIComponent(id)}`,
      );
      expect([status, body.code]).toEqual([404, 'session_not_found']);
    },
  );
});
