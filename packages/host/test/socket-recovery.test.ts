import { rm } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import { useControlledHost } from './support/controlled-host.js';
import { emitter, routedSteps } from './support/emitter.js';
import { findFreePort } from './support/free-port.js';
import { startHost } from './support/host.js';
import { resultsIn, scroll } from './support/page-tools.js';
import { joinSession, openSocket, type SessionSocket } from './support/session-socket.js';
import { openSession, stream } from './support/stream.js';
import { TestUser } from './support/user.js';

const test = useControlledHost({ plugins: [emitter] });

/** Emits routing steps in a separate turn. */
async function route(sessionId: string, ...steps: string[]): Promise<void> {
  const live = await stream(test.alice, sessionId, { message: 'go' });
  (await test.model.next()).call({ name: 'route', input: { steps } });
  (await test.model.next()).finish();
  await live.toEnd();
}

/** A client whose network goes and comes back when the test says so. */
async function joinManually(sessionId: string): Promise<SessionSocket> {
  return joinSession(test.alice, sessionId, {
    reconnection: false,
    auth: (send) => send({ invocation: test.alice.mint() }),
  });
}

async function leave(socket: SessionSocket): Promise<void> {
  socket.dropNetwork();
  await socket.until('(disconnect)');
}

async function comeBack(socket: SessionSocket): Promise<void> {
  const times = socket.all('connected').length;
  socket.socket.connect();
  await expect.poll(() => socket.all('connected').length).toBe(times + 1);
}

describe('a socket that reconnects', () => {
  it('receives all missed events, each once', async () => {
    const sessionId = await openSession(test.alice);
    const socket = await joinManually(sessionId);
    await route(sessionId, 'a', 'b');
    await socket.until('router_update', ({ step }) => step === 'b');
    await leave(socket);
    await route(sessionId, 'c');
    await route(sessionId, 'd', 'e');
    await comeBack(socket);
    expect(socket.socket.recovered).toBe(true);
    await route(sessionId, 'f');
    await socket.until('router_update', ({ step }) => step === 'f');
    expect(routedSteps(socket)).toEqual(['a', 'b', 'c', 'd', 'e', 'f']);
  });

  it('receives all missed events, also if it had received none before', async () => {
    const sessionId = await openSession(test.alice);
    const socket = await joinManually(sessionId);
    await leave(socket);
    await route(sessionId, 'a');
    await comeBack(socket);
    await socket.until('router_update', ({ step }) => step === 'a');
  });

  it('catches up with a running turn, in order', async () => {
    const sessionId = await openSession(test.alice);
    const socket = await joinManually(sessionId);
    const live = await stream(test.alice, sessionId, { message: 'go' });
    (await test.model.next()).call({ name: 'route', input: { steps: ['a'] } });
    await expect.poll(() => routedSteps(socket)).toEqual(['a']);
    await leave(socket);
    (await test.model.next()).call({ name: 'route', input: { steps: ['b', 'c'] } });
    const third = await test.model.next();
    await comeBack(socket);
    third.call({ name: 'route', input: { steps: ['d'] } });
    (await test.model.next()).finish();
    await live.toEnd();
    await socket.until('router_update', ({ step }) => step === 'd');
    expect(routedSteps(socket)).toEqual(['a', 'b', 'c', 'd']);
  });

  it('receives all missed events after a restart of the host', async () => {
    const PORT = String(await findFreePort());
    const first = await startHost({ plugins: [emitter], env: { PORT } });
    const env = { DATA_DIR: first.dataDir, PORT };
    const bob = new TestUser(first);
    const sessionId = await openSession(bob);
    const socket = await joinSession(bob, sessionId);
    const body = { message: 'use route {"steps":["a"]}' };
    await bob.request('POST', `/messages/${sessionId}`, { body });
    await expect.poll(() => routedSteps(socket)).toEqual(['a']);
    socket.socket.io.reconnection(false);
    await first.app.close();
    await socket.until('(disconnect)');
    const second = await startHost({ plugins: [emitter], env });
    const again = { message: 'use route {"steps":["b"]}' };
    await bob.at(second).request('POST', `/messages/${sessionId}`, { body: again });
    await comeBack(socket);
    await socket.until('router_update', ({ step }) => step === 'b');
    expect(routedSteps(socket)).toEqual(['a', 'b']);
    await second.close();
    await rm(first.dataDir, { recursive: true });
  });

  it('receives nothing without a valid token', async () => {
    const sessionId = await openSession(test.alice);
    let invocation = test.alice.mint();
    const socket = await joinSession(test.alice, sessionId, {
      reconnection: false,
      auth: (send) => send({ invocation }),
    });
    await leave(socket);
    await route(sessionId, 'secret');
    for (const token of [test.alice.mint(-1), new TestUser(test.host).mint()]) {
      const packets: string[] = [];
      invocation = token;
      socket.socket.connect();
      socket.socket.io.once('open', () => {
        socket.socket.io.engine.on('packet', ({ data }) => packets.push(String(data)));
      });
      const refusals = socket.all('(connect_error)').length;
      await expect.poll(() => socket.all('(connect_error)').length).toBe(refusals + 1);
      expect(packets.join()).not.toContain('secret');
    }
  });
});

describe('a socket whose token expires', () => {
  it('is closed, and the next one continues where it ended', async () => {
    const sessionId = await openSession(test.alice);
    const tokens = [test.alice.mint(2)];
    const socket = await joinSession(test.alice, sessionId, {
      reconnectionDelay: 10,
      auth: (send) => send({ invocation: tokens.pop() ?? test.alice.mint() }),
    });
    await route(sessionId, 'before');
    expect(await socket.until('(disconnect)')).toBe('transport close');
    expect(socket.all('closing')).toMatchObject([{ reason: 'token_expired', sessionId }]);
    await expect.poll(() => socket.all('connected').length).toBe(2);
    await route(sessionId, 'after');
    await socket.until('router_update', ({ step }) => step === 'after');
    expect(routedSteps(socket)).toEqual(['before', 'after']);
  });
});

describe('browser_tool_call', () => {
  /** A turn that waits for the page, and the call as the page got it. */
  async function call(socket: SessionSocket, sessionId: string) {
    const live = await stream(test.alice, sessionId, { message: 'go', tools: [scroll] });
    (await test.model.next()).call({ name: 'scroll', input: { by: 3 } });
    return { live, ...(await socket.until('browser_tool_call')) };
  }

  async function readResult(live: Awaited<ReturnType<typeof stream>>) {
    const next = await test.model.next();
    next.finish();
    await live.toEnd();
    return resultsIn(next).at(-1);
  }

  it('is not sent again to a page that reconnects, whose answer is accepted', async () => {
    const sessionId = await openSession(test.alice);
    const socket = await joinManually(sessionId);
    const { live, toolCallId } = await call(socket, sessionId);
    await leave(socket);
    await comeBack(socket);
    const newcomer = await joinSession(test.alice, sessionId);
    socket.socket.emit('tool_result', { toolCallId, result: 'from the first time' });
    expect(await readResult(live)).toBe('from the first time');
    expect(socket.all('browser_tool_call')).toHaveLength(1);
    expect(newcomer.all('browser_tool_call')).toEqual([]);
  });

  it('is sent to a page that was disconnected', async () => {
    const sessionId = await openSession(test.alice);
    const socket = await joinManually(sessionId);
    await leave(socket);
    const live = await stream(test.alice, sessionId, { message: 'go', tools: [scroll] });
    (await test.model.next()).call({ name: 'scroll', input: { by: 3 } });
    await live.untilEvent('browser_tool_call');
    await comeBack(socket);
    const { toolCallId } = await socket.until('browser_tool_call');
    socket.socket.emit('tool_result', { toolCallId, result: 'done' });
    expect(await readResult(live)).toBe('done');
  });

  it('is sent again to a page that was reloaded', async () => {
    const sessionId = await openSession(test.alice);
    const before = await joinManually(sessionId);
    const { live } = await call(before, sessionId);
    await leave(before);
    const after = await joinSession(test.alice, sessionId);
    const { toolCallId } = await after.until('browser_tool_call');
    after.socket.emit('tool_result', { toolCallId, result: 'done' });
    expect(await readResult(live)).toBe('done');
  });

  it('is not sent to a page that connects after its end', async () => {
    const sessionId = await openSession(test.alice);
    const away = await joinManually(sessionId);
    await leave(away);
    const other = await joinSession(test.alice, sessionId);
    const { live, toolCallId } = await call(other, sessionId);
    other.socket.emit('tool_result', { toolCallId, result: 'done' });
    expect(await readResult(live)).toBe('done');
    await comeBack(away);
    await away.until('tool_call', ({ payload }) => payload.status === 'done');
    expect(away.all('browser_tool_call')).toEqual([]);
  });
});

it('an invalid offset in the handshake is ignored', async () => {
  const sessionId = await openSession(test.alice);
  await route(sessionId, 'long ago');
  for (const offset of ['x', 7, { turn: 1 }, '1.1.1']) {
    const auth = { invocation: test.alice.mint(), pid: 'p', offset };
    const socket = openSocket(test.host.url, { query: { sessionId }, auth });
    await socket.until('connected');
    await socket.ask('ping', 'pong');
    expect(routedSteps(socket)).toEqual([]);
  }
});
