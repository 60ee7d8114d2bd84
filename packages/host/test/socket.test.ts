import { clientEvents, serverEvents } from '@sibyl/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startHost, type TestHost } from './support/host.js';
import { joinSession, openRejectedSocket, openSocket } from './support/session-socket.js';
import { openSession } from './support/stream.js';
import { TestUser } from './support/user.js';

let host: TestHost;
let alice: TestUser;
let sessionId: string;

beforeAll(async () => {
  host = await startHost();
  alice = new TestUser(host);
  sessionId = await openSession(alice);
});
afterAll(() => host.close());

describe('a socket handshake', () => {
  it.each(['websocket', 'polling'])('succeeds with an invocation, by %s', async (transport) => {
    const { received } = await joinSession(alice, sessionId, { transports: [transport] });
    expect(received.find(({ name }) => name === 'connected')?.data).toEqual({
      message: expect.any(String),
      sessionId,
      timestamp: expect.any(String),
    });
  });

  it('succeeds with a delegation alone', async () => {
    await joinSession(alice, sessionId, { auth: { ucanDelegation: alice.delegate() } });
  });

  it('uses the DID of the token, not one in the query', async () => {
    const query = { sessionId, userDid: 'did:key:other', did: 'did:key:other' };
    const socket = await joinSession(alice, sessionId, { query });
    expect(await socket.ask('status', 'status')).toMatchObject({ connected: true, sessionId });
  });

  const refused = (auth: object, query: object = { sessionId }) =>
    openRejectedSocket(host.url, { query: { ...query }, auth: { ...auth } });

  it.each([
    ['nothing', () => ({}), 401, 'missing_authentication'],
    ['a bad token', () => ({ invocation: 'AAAA' }), 401, 'invalid_invocation'],
    ['an empty token', () => ({ invocation: '' }), 401, 'invalid_invocation'],
    ['an expired token', () => ({ invocation: alice.mint(-1) }), 401, 'invalid_invocation'],
    ['an object', () => ({ invocation: { token: alice.mint() } }), 401, 'invalid_invocation'],
    ['a list', () => ({ invocation: [alice.mint()] }), 401, 'invalid_invocation'],
    ['too long a token', () => ({ invocation: 'A'.repeat(9000) }), 401, 'invalid_invocation'],
    [
      'a bad token beside a good delegation',
      () => ({ invocation: 'AAAA', ucanDelegation: alice.delegate() }),
      401,
      'invalid_invocation',
    ],
    ['a bad delegation', () => ({ ucanDelegation: 'AAAA' }), 401, 'missing_authentication'],
    ['no text for a delegation', () => ({ ucanDelegation: 7 }), 401, 'missing_authentication'],
    [
      'a token for another oracle',
      () => ({ invocation: new TestUser({ ...host, did: alice.did }).mint() }),
      401,
      'invalid_invocation',
    ],
  ])('is rejected with %s', async (_, auth, statusCode, code) => {
    expect((await refused(auth())).data).toMatchObject({ statusCode, code });
  });

  it('is rejected without a session', async () => {
    const auth = { invocation: alice.mint() };
    for (const query of [{}, { sessionId: '' }, { sessionId: 'no such id' }])
      expect((await refused(auth, query)).data).toMatchObject({ code: 'validation_failed' });
  });

  it("is rejected for another user's session exactly as for an unknown one", async () => {
    const auth = { invocation: new TestUser(host).mint() };
    const foreign = await refused(auth);
    const unknown = await refused(auth, { sessionId: 'unknown' });
    expect(foreign.data).toMatchObject({ statusCode: 404, code: 'session_not_found' });
    expect(foreign.data).toEqual(unknown.data);
    expect(foreign.message).toBe(unknown.message);
  });

  it('is rejected for other namespaces', async () => {
    const socket = openSocket(`${host.url}/admin`, { reconnection: false });
    expect((await socket.until('(connect_error)')).message).toBe('Invalid namespace');
  });

  it('leaves no connection open after a rejection', async () => {
    const socket = openSocket(host.url, { query: { sessionId }, reconnection: false });
    await socket.until('(connect_error)');
    await expect.poll(() => socket.socket.io.engine.readyState).toBe('closed');
  });

  it('accepts one socket per connection', async () => {
    const socket = await joinSession(alice, sessionId, { reconnection: false });
    const auth = JSON.stringify({ invocation: alice.mint() });
    // As a client would never do: to ask for another socket over the same connection.
    socket.socket.io.engine.write(`40${auth}`);
    await socket.until('(disconnect)');
  });
});

describe('client events', () => {
  it('ping, subscribe and list-events are answered', async () => {
    const socket = await joinSession(alice, sessionId);
    const timestamp = expect.any(String);
    expect(await socket.ask('ping', 'pong')).toEqual({ timestamp, sessionId });
    expect(await socket.ask('subscribe', 'subscribed')).toEqual({ sessionId, timestamp });
    expect(await socket.ask('list-events', 'available-events')).toEqual({
      clientEvents: Object.keys(clientEvents),
      serverEvents: Object.keys(serverEvents),
      sessionId,
      timestamp,
    });
  });

  it('status returns the figures of the user only', async () => {
    const [bob, carol] = [new TestUser(host), new TestUser(host)];
    const [first, second] = [await openSession(bob), await openSession(bob)];
    await joinSession(carol, await openSession(carol));
    await joinSession(bob, first);
    await joinSession(bob, second);
    const socket = await joinSession(bob, second);
    const figures = { connected: true, sessionId: second, timestamp: expect.any(String) };
    expect(await socket.ask('status', 'status')).toEqual({
      ...figures,
      activeSessions: 2,
      totalConnections: 3,
    });
  });

  it('unknown events have no effect', async () => {
    const socket = await joinSession(alice, sessionId);
    socket.socket.emit('no-such-event', { a: 1 });
    for (const sent of [undefined, null, 7, 'text', [], {}, { toolCallId: 7 }]) {
      socket.socket.emit('tool_result', sent);
      socket.socket.emit('action_call_result', sent);
    }
    expect(await socket.ask('ping', 'pong')).toMatchObject({ sessionId });
  });
});

describe('closing', () => {
  it('is sent when the session is deleted', async () => {
    const bob = new TestUser(host);
    const doomed = await openSession(bob);
    const socket = await joinSession(bob, doomed);
    const other = await joinSession(bob, await openSession(bob));
    await bob.request('DELETE', `/sessions/${doomed}`);
    expect(await socket.until('(disconnect)')).toBe('io server disconnect');
    expect(socket.all('closing')).toMatchObject([{ reason: 'session_deleted', sessionId: doomed }]);
    expect(await other.ask('ping', 'pong')).toBeDefined();
  });

  it('is sent when the host stops', async () => {
    const brief = await startHost();
    const bob = new TestUser(brief);
    const session = await openSession(bob);
    const socket = await joinSession(bob, session, { reconnection: false });
    const polling = { transports: ['polling'], reconnection: false };
    const polled = await joinSession(bob, session, polling);
    await brief.close();
    await Promise.all([socket.until('(disconnect)'), polled.until('(disconnect)')]);
    expect(socket.all('closing')).toMatchObject([{ reason: 'host_stopping' }]);
  });
});
