import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { newOwner } from '../../test/support/test-database.js';
import {
  copySession,
  finishTestRun,
  openTestSession,
  startTestRun,
} from '../../test/support/test-runs.js';
import type { CallEvent, SessionKey } from '../bus/event-bus.js';
import type { Database } from './database.js';
import { createIdSource } from './database.js';
import { openDatabase } from './open-database.js';
import { SocketStore } from './socket-store.js';
import { openStore, type Store } from './store.js';

let dataDir = '';
let database: Database;
let now = 1_000_000;
const clock = () => now;

beforeAll(async () => {
  dataDir = mkdtempSync(join(tmpdir(), 'sibyl-sockets-'));
  database = await openDatabase({ dataDir });
});
afterAll(async () => {
  await database.close();
  rmSync(dataDir, { recursive: true, force: true });
});

const openSockets = (hostId: string) =>
  new SocketStore({ database, clock, newId: createIdSource(clock) }, hostId);

/** The directories of three hosts with ids that no other test uses. */
function openHosts() {
  const [a, b, c] = ['a', 'b', 'c'].map((name) => `${name} ${crypto.randomUUID()}`);
  if (!a || !b || !c) throw new Error('no ids');
  return { ids: { a, b, c }, a: openSockets(a), b: openSockets(b), c: openSockets(c) };
}

const newSession = (owner = newOwner()): SessionKey => ({ owner, sessionId: crypto.randomUUID() });

describe('SocketStore.setCounts', () => {
  it('other hosts find the hosts that hold sockets of a session, until the last one closes', async () => {
    const { ids, a, b, c } = openHosts();
    const key = newSession();
    await a.setCounts([{ ...key, sockets: 1 }]);
    await b.setCounts([{ ...key, sockets: 2 }]);
    expect([...(await c.findHosts(key))].sort()).toEqual([ids.a, ids.b].sort());
    expect(await a.findHosts(key)).toEqual([ids.b]);
    await a.setCounts([{ ...key, sockets: 0 }]);
    expect(await c.findHosts(key)).toEqual([ids.b]);
    await b.setCounts([{ ...key, sockets: 1 }]);
    expect(await c.findHosts(key)).toEqual([ids.b]);
  });

  it('keeps sessions and users apart, also with the same id of a session', async () => {
    const { ids, a, b } = openHosts();
    const key = newSession();
    const sameId = { ...key, owner: newOwner() };
    const sameOwner = newSession(key.owner);
    await a.setCounts([key, sameId, sameOwner].map((each) => ({ ...each, sockets: 1 })));
    await a.setCounts([{ ...key, sockets: 0 }]);
    expect(await b.findHosts(key)).toEqual([]);
    expect(await b.findHosts(sameId)).toEqual([ids.a]);
    expect(await b.findHosts(sameOwner)).toEqual([ids.a]);
  });

  it('opens and closes sessions in one call, and accepts an empty one', async () => {
    const { ids, a, b } = openHosts();
    const [closing, opening] = [newSession(), newSession()];
    await a.setCounts([{ ...closing, sockets: 1 }]);
    await a.setCounts([
      { ...closing, sockets: 0 },
      { ...opening, sockets: 1 },
    ]);
    await a.setCounts([]);
    expect(await b.findHosts(closing)).toEqual([]);
    expect(await b.findHosts(opening)).toEqual([ids.a]);
  });
});

describe('how SocketStore counts the sockets of users', () => {
  beforeEach(async () => {
    const { a } = openHosts();
    for (const hostId of await a.listHosts()) await a.removeHost(hostId);
  });

  it('countElsewhere adds up the sockets of one user at other hosts', async () => {
    const { a, b, c } = openHosts();
    const [key, stranger] = [newSession(), newSession()];
    expect(await a.countElsewhere(key.owner)).toBe(0);
    await a.setCounts([{ ...key, sockets: 1 }]);
    await b.setCounts([
      { ...key, sockets: 2 },
      { ...newSession(key.owner), sockets: 4 },
    ]);
    await c.setCounts([
      { ...key, sockets: 8 },
      { ...stranger, sockets: 16 },
    ]);
    expect(await a.countElsewhere(key.owner)).toBe(14);
    expect(await b.countElsewhere(key.owner)).toBe(9);
    await c.setCounts([{ ...key, sockets: 3 }]);
    expect(await a.countElsewhere(key.owner)).toBe(9);
    expect(await c.countElsewhere(stranger.owner)).toBe(0);
  });

  it('listUsers returns the users with most sockets at all hosts first, up to the limit', async () => {
    const { a, b } = openHosts();
    const [few, many, some] = [newSession(), newSession(), newSession()];
    await a.setCounts([
      { ...few, sockets: 1 },
      { ...many, sockets: 2 },
      { ...some, sockets: 3 },
    ]);
    await b.setCounts([{ ...many, sockets: 2 }]);
    const expected = [
      { did: many.owner, count: 4 },
      { did: some.owner, count: 3 },
      { did: few.owner, count: 1 },
    ];
    expect(await a.listUsers(10)).toEqual(expected);
    expect(await a.listUsers(2)).toEqual(expected.slice(0, 2));
  });

  it('listHosts returns each host that holds sockets or calls a page, and removeHost removes all of one', async () => {
    const { ids, a, b, c } = openHosts();
    const key = newSession();
    await a.setCounts([{ ...key, sockets: 1 }]);
    await b.setCounts([{ ...key, sockets: 1 }]);
    await b.addCall(key, createCall('of b'));
    await c.addCall(key, createCall('of c'));
    expect([...(await a.listHosts())].sort()).toEqual([ids.a, ids.b, ids.c].sort());
    await a.removeHost(ids.b);
    expect([...(await a.listHosts())].sort()).toEqual([ids.a, ids.c].sort());
    expect(await c.findHosts(key)).toEqual([ids.a]);
    expect((await a.listCalls(key)).map(({ hostId }) => hostId)).toEqual([ids.c]);
  });
});

const createCall = (toolCallId: string, args: Record<string, unknown> = {}): CallEvent => ({
  event: 'browser_tool_call',
  payload: { sessionId: 'session', requestId: 'request', toolCallId, toolName: 'click', args },
});

const createAnswer = (toolCallId: string, result: unknown) =>
  ({ event: 'browser_tool_call', toolCallId, result }) as const;

const readAnswer = async (sockets: SocketStore, key: SessionKey) =>
  (await sockets.findCall(key, 'call')).answer;

describe('calls to pages in SocketStore', () => {
  it('a call waits until it is answered, and the first answer counts', async () => {
    const { ids, a, b } = openHosts();
    const key = newSession();
    const call = createCall('call', { x: 1 });
    await a.addCall(key, call);
    expect(await b.listCalls(key)).toEqual([{ call, hostId: ids.a, isDelivered: false }]);
    expect(await a.findCall(key, 'call')).toEqual({ isStored: true, isDelivered: false });
    expect(await b.answerCall(key, ids.a, createAnswer('call', 'first'))).toBe(true);
    expect(await b.answerCall(key, ids.a, createAnswer('call', 'second'))).toBe(false);
    expect(await readAnswer(a, key)).toEqual(createAnswer('call', 'first'));
    expect(await b.listCalls(key)).toEqual([]);
  });

  it('an answer that is faster than the call is kept, for the host of the turn', async () => {
    const { ids, a, b, c } = openHosts();
    const key = newSession();
    expect(await b.answerCall(key, ids.a, createAnswer('call', 'fast'))).toBe(true);
    expect(await c.listCalls(key)).toEqual([]);
    expect(await c.listHosts()).toContain(ids.a);
    expect(await c.listHosts()).not.toContain(ids.b);
    await a.addCall(key, createCall('call'));
    expect(await c.listCalls(key)).toEqual([]);
    expect(await readAnswer(a, key)).toEqual(createAnswer('call', 'fast'));
  });

  it('calls of other sessions and users with the same id are neither listed, answered nor removed', async () => {
    const { ids, a, b, c } = openHosts();
    const key = newSession();
    const others = [{ ...key, owner: newOwner() }, newSession(key.owner)];
    for (const each of [key, ...others]) await a.addCall(each, createCall('call', { ...each }));
    await a.addCall(key, createCall('other call'));
    await b.setCounts([key, ...others].map((each) => ({ ...each, sockets: 1 })));
    await b.markDelivered(key, 'call');
    expect((await c.listCalls(key)).map(({ isDelivered }) => isDelivered).sort()).toEqual([
      false,
      true,
    ]);
    await b.answerCall(key, ids.a, createAnswer('call', 'yes'));
    for (const each of others)
      expect(await c.listCalls(each)).toEqual([
        { call: createCall('call', { ...each }), hostId: ids.a, isDelivered: false },
      ]);
    for (const each of others) {
      expect(await a.findCall(each, 'call')).toEqual({ isStored: true, isDelivered: false });
      await b.answerCall(each, ids.a, createAnswer('call', { ...each }));
    }
    for (const each of others)
      expect(await readAnswer(a, each)).toEqual(createAnswer('call', { ...each }));
    expect(await readAnswer(a, key)).toEqual(createAnswer('call', 'yes'));
    expect(await a.findCall(key, 'other call')).toEqual({ isStored: true, isDelivered: false });
    await a.removeCall(key, 'call');
    expect(await a.findCall(key, 'call')).toEqual({ isStored: false, isDelivered: false });
    expect(await b.listCalls(key)).toMatchObject([{ call: createCall('other call') }]);
    for (const each of others)
      expect(await readAnswer(a, each)).toEqual(createAnswer('call', { ...each }));
  });

  it('a call is delivered while the other host whose page received it holds a socket of the session', async () => {
    const { a, b, c } = openHosts();
    const key = newSession();
    await a.addCall(key, createCall('call'));
    await a.addCall(key, createCall('second call'));
    const readDelivered = async (sockets: SocketStore) => {
      const calls = await sockets.listCalls(key);
      return calls.filter((each) => each.isDelivered).map(({ call }) => call.payload.toolCallId);
    };
    await b.setCounts([{ ...key, sockets: 1 }]);
    await c.setCounts([{ ...key, sockets: 1 }]);
    expect(await readDelivered(c)).toEqual([]);
    await b.markDelivered(key, 'call');
    expect(await readDelivered(c)).toEqual(['call']);
    // The page of this host may have been replaced.
    expect(await readDelivered(b)).toEqual([]);
    await b.setCounts([{ ...key, sockets: 0 }]);
    expect(await readDelivered(c)).toEqual([]);
    expect(await c.listCalls(key)).toHaveLength(2);
    expect(await c.claimDelivery(key, 'call')).toBe(true);
    await b.setCounts([{ ...key, sockets: 1 }]);
    const claims = await Promise.all([a, b, c].map((each) => each.claimDelivery(key, 'call')));
    expect(claims).toEqual([false, false, true]);
    expect(await a.claimDelivery(key, 'unknown call')).toBe(true);
    await c.setCounts([{ ...key, sockets: 0 }]);
    expect(await b.claimDelivery(key, 'call')).toBe(true);
    await b.setCounts([{ ...key, sockets: 0 }]);
    // Sockets of other sessions do not show the call.
    await b.setCounts([
      { ...newSession(key.owner), sockets: 1 },
      { ...key, owner: newOwner(), sockets: 1 },
    ]);
    expect(await readDelivered(c)).toEqual([]);
  });
});

describe('SocketStore.findTurnsElsewhere', () => {
  let host: Store;
  let other: Store;
  beforeAll(async () => {
    const options = { dataDir, clock, secretKey: new Uint8Array(32) };
    host = await openStore({ ...options, hostId: 'own' });
    other = await openStore({ ...options, hostId: 'elsewhere' });
  });
  afterAll(async () => {
    await host.close();
    await other.close();
  });

  it('returns each of the sessions with a turn that runs at another host, without a stored socket too', async () => {
    const own = openSockets('own');
    const session = await openTestSession(host);
    const here = await openTestSession(host);
    const many = Array.from({ length: 1_000 }, () => newSession());
    const find = (hostId?: string) => own.findTurnsElsewhere([...many, here, session], hostId);
    expect(await find()).toEqual([]);
    await startTestRun(host, here);
    await startTestRun(other, await openTestSession(host));
    const { owner } = session;
    const { sessionId } = await host.sessions.create({ owner, oracleDid: 'did:key:zOracle' });
    await startTestRun(other, { owner, sessionId });
    await startTestRun(other, await copySession(host, newOwner(), session));
    expect(await find()).toEqual([]);
    const { key } = await startTestRun(other, session);
    const second = await startTestRun(other, session);
    now += 120_000;
    expect(await find()).toEqual([session]);
    expect(await find('elsewhere')).toEqual([session]);
    expect(await find('another')).toEqual([]);
    expect(await own.findTurnsElsewhere([])).toEqual([]);
    await other.runs.withdraw(second.key);
    await finishTestRun(other.runs, key);
    now += 59_999;
    expect(await find()).toEqual([session]);
    now += 1;
    expect(await find()).toEqual([]);
  });

  it('returns a session with a turn that has paused at another host meanwhile', async () => {
    const session = await openTestSession(host);
    const find = (hostId?: string) => openSockets('own').findTurnsElsewhere([session], hostId);
    const { key } = await startTestRun(other, session);
    await other.runs.pause({
      ...{ ...key, interrupts: [], steps: [], request: {}, limit: 10 },
      end: { message: { content: '', isComplete: false } },
    });
    now += 59_999;
    expect(await find()).toEqual([session]);
    expect(await find('elsewhere')).toEqual([session]);
    now += 1;
    expect(await find()).toEqual([]);
  });
});
