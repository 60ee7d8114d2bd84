import { setTimeout as sleep } from 'node:timers/promises';
import { MCP_SERVER } from '@sibyl/plugin-mcp-server';
import { afterAll, afterEach, beforeEach, describe, expect, it } from 'vitest';
import { runStatement } from './support/cluster.js';
import { type ControlledModel, startControlledModel } from './support/controlled-model.js';
import { emitter, routedSteps } from './support/emitter.js';
import { useHostPair } from './support/host-pair.js';
import {
  connectMcp,
  createAsking,
  findProgress,
  LEGACY,
  RawMcpClient,
  readEvents,
} from './support/mcp.js';
import { chart, resultsIn, scroll } from './support/page-tools.js';
import { joinSession, openRejectedSocket, type SessionSocket } from './support/session-socket.js';
import { openSession, stream } from './support/stream.js';
import { TestUser } from './support/user.js';

const SOCKETS_PER_USER = 4;

let model: ControlledModel;
const hosts = useHostPair(async () => {
  model = await startControlledModel();
  const limits = {
    SOCKETS_PER_USER: String(SOCKETS_PER_USER),
    BROWSER_CALL_TIMEOUT_SECONDS: '60',
  };
  return { env: { ...model.env, ...limits }, plugins: [emitter, createAsking(MCP_SERVER)] };
});
afterAll(() => model.close());
afterEach(() => hosts.busProxy.unmute());

let alice: TestUser;
let atB: TestUser;
let sessionId: string;
beforeEach(async () => {
  alice = new TestUser(hosts.a);
  atB = alice.at(hosts.b);
  sessionId = await openSession(alice);
});

/** A client that reconnects with a fresh token. */
const join = (user: TestUser, options: object = {}) =>
  joinSession(user, sessionId, {
    auth: (send: (auth: object) => void) => send({ invocation: user.mint() }),
    ...options,
  });

/** Emits routing steps in a separate turn. */
async function route(user: TestUser, ...steps: string[]): Promise<void> {
  const live = await stream(user, sessionId, { message: 'go' });
  (await model.next()).call({ name: 'route', input: { steps } });
  (await model.next()).finish();
  await live.toEnd();
}

/** Starts a turn that calls a function of the page; returns what ends it, and the result that the model receives. */
async function callPage(user: TestUser, call = { name: 'scroll', input: { by: 3 } }) {
  const live = await stream(user, sessionId, {
    message: 'go',
    tools: [scroll],
    agActions: [chart],
  });
  (await model.next()).call(call);
  const untilResult = async () => {
    const next = await model.next();
    const [result] = resultsIn(next);
    next.finish();
    await live.toEnd();
    return result;
  };
  return { live, untilResult };
}

const untilCall = (socket: SessionSocket) => socket.until('browser_tool_call');

describe('events of a turn', () => {
  it('reach the sockets of the session at every host, in order and once', async () => {
    const sockets = [await join(alice), await join(atB), await join(atB)];
    const other = await joinSession(atB, await openSession(atB));
    const steps = Array.from({ length: 50 }, (_, i) => `${i}`);
    await route(alice, ...steps);
    await route(atB, 'from b');
    for (const socket of sockets) {
      await socket.until('router_update', ({ step }) => step === 'from b');
      expect(routedSteps(socket)).toEqual([...steps, 'from b']);
    }
    expect(routedSteps(other)).toEqual([]);
  });

  it('reach a socket that reconnects to another host during the turn, each once', async () => {
    const socket = await join(alice, { reconnection: false });
    const live = await stream(alice, sessionId, { message: 'go' });
    (await model.next()).call({ name: 'route', input: { steps: ['a', 'b'] } });
    await expect.poll(() => routedSteps(socket)).toEqual(['a', 'b']);
    socket.dropNetwork();
    await socket.until('(disconnect)');
    (await model.next()).call({ name: 'route', input: { steps: ['c'] } });
    const next = await model.next();
    Object.assign(socket.socket.io, { uri: hosts.b.url });
    socket.socket.connect();
    await expect.poll(() => socket.all('connected').length).toBe(2);
    next.call({ name: 'route', input: { steps: ['d'] } });
    (await model.next()).finish();
    await live.toEnd();
    await expect.poll(() => routedSteps(socket)).toEqual(['a', 'b', 'c', 'd']);
  });

  it('reach the sockets of another host if they are too large for a message between hosts', async () => {
    const socket = await join(atB);
    const live = await stream(alice, sessionId, { message: 'go' });
    (await model.next()).call({ name: 'route_and_wait', input: { length: 1_100_000 } });
    await expect.poll(() => routedSteps(socket).map((step) => step.length)).toEqual([1_100_000]);
    await alice.request('POST', '/messages/abort', { body: { sessionId } });
    await live.toEnd();
    await route(alice, 'b');
    await expect.poll(() => routedSteps(socket).at(-1)).toBe('b');
    expect(routedSteps(socket)).toHaveLength(2);
    expect(socket.all('connected')).toHaveLength(2);
  });

  it('reach sockets even if no notification arrives', async () => {
    const socket = await join(atB);
    hosts.busProxy.mute();
    await route(alice, 'a', 'b');
    await expect.poll(() => routedSteps(socket)).toEqual(['a', 'b']);
  });

  it('reach sockets before those of the next turn, also if they are late', async () => {
    const socket = await join(atB);
    hosts.busProxy.mute();
    await route(alice, 'a', 'b');
    await route(atB, 'c');
    hosts.busProxy.unmute();
    await route(alice, 'd');
    await expect.poll(() => routedSteps(socket).at(-1)).toBe('d');
    expect(routedSteps(socket)).toEqual(['a', 'b', 'c', 'd']);
  });

  it('DELETE /sessions/:sessionId closes the sockets at every host', async () => {
    const sockets = [await join(alice), await join(atB)];
    await alice.request('DELETE', `/sessions/${sessionId}`);
    for (const socket of sockets)
      expect(await socket.until('closing')).toMatchObject({ reason: 'session_deleted' });
  });
});

describe('a page at another host than the turn', () => {
  it('runs a browser tool, also with a large result', async () => {
    const socket = await join(atB);
    const { untilResult } = await callPage(alice);
    const call = await untilCall(socket);
    expect(call).toMatchObject({ sessionId, toolName: 'scroll', args: { by: 3 } });
    const result = { text: 'x'.repeat(20_000) };
    socket.socket.emit('tool_result', { toolCallId: call.toolCallId, result });
    expect(await untilResult()).toEqual(result);
    const { env } = hosts.database;
    const rows = () => runStatement(env.DATABASE_URL ?? '', 'select * from page_calls');
    await expect.poll(rows).toEqual([]);
  });

  it('runs a browser tool with arguments that are too large for a message between hosts', async () => {
    const socket = await join(atB);
    const input = { by: 3, text: 'é'.repeat(600_000) };
    const { untilResult } = await callPage(alice, { name: 'scroll', input });
    const { toolCallId, args } = await untilCall(socket);
    expect(args).toEqual(input);
    socket.socket.emit('tool_result', { toolCallId, result: 1 });
    expect(await untilResult()).toBe(1);
  });

  it('runs an action', async () => {
    const socket = await join(atB);
    const { untilResult } = await callPage(alice, { name: 'chart', input: {} as never });
    const { toolCallId } = await socket.until('action_call');
    socket.socket.emit('action_call_result', { sessionId, toolCallId, result: { shown: true } });
    expect(await untilResult()).toEqual({ shown: true });
  });

  it('may answer after the time in which a page must have connected', async () => {
    const socket = await join(atB);
    const { untilResult } = await callPage(alice);
    const { toolCallId } = await untilCall(socket);
    await sleep(4_000);
    socket.socket.emit('tool_result', { toolCallId, result: 'late' });
    expect(await untilResult()).toBe('late');
  });

  it('competes with a page at the host of the turn: the first answer is used', async () => {
    const [here, there] = [await join(alice), await join(atB)];
    const { untilResult } = await callPage(alice);
    const { toolCallId } = await untilCall(here);
    await untilCall(there);
    there.socket.emit('tool_result', { toolCallId, result: 'first' });
    expect(await untilResult()).toBe('first');
    here.socket.emit('tool_result', { toolCallId, result: 'second' });
    expect(await here.ask('ping', 'pong')).toBeDefined();
  });

  it('receives an open call when it connects, unless another page has received it', async () => {
    const { untilResult } = await callPage(alice);
    const socket = await join(atB);
    const { toolCallId } = await untilCall(socket);
    const second = await join(alice);
    const third = await join(atB);
    for (const page of [second, third]) await page.ask('ping', 'pong');
    expect([...second.all('browser_tool_call'), ...third.all('browser_tool_call')]).toEqual([]);
    socket.socket.emit('tool_result', { toolCallId, result: 1 });
    expect(await untilResult()).toBe(1);
  });

  it.each(['a new page', 'a page that had the call'])(
    'receives no call that a page at the host of the turn has answered: %s',
    async (which) => {
      const before = which === 'a new page' ? undefined : await join(atB);
      const page = await join(alice);
      const { untilResult } = await callPage(alice);
      const { toolCallId } = await untilCall(page);
      if (before) await untilCall(before);
      before?.socket.disconnect();
      page.socket.emit('tool_result', { toolCallId, result: 1 });
      expect(await untilResult()).toBe(1);
      page.socket.disconnect();
      const next = [await join(atB), await join(alice), await join(atB)];
      for (const each of next) await each.ask('ping', 'pong');
      expect(next.flatMap((each) => each.all('browser_tool_call'))).toEqual([]);
    },
  );

  it.each(['the same', 'another'])(
    'receives a call that it missed when it connects again to %s host, although the host seems to have sent it',
    async (where) => {
      const page = await join(alice, { reconnection: false });
      page.dropNetwork();
      await page.until('(disconnect)');
      // To the host, a connection whose network was lost looks like this one.
      const lost = await join(alice);
      const { untilResult } = await callPage(alice);
      const { toolCallId } = await untilCall(lost);
      const { env } = hosts.database;
      const rows = () =>
        runStatement(env.DATABASE_URL ?? '', 'select delivered_by from page_calls');
      await expect.poll(rows).toEqual([{ delivered_by: expect.any(String) }]);
      if (where === 'another') Object.assign(page.socket.io, { uri: hosts.b.url });
      page.socket.connect();
      expect(await untilCall(page)).toMatchObject({ toolCallId });
      page.socket.emit('tool_result', { toolCallId, result: 'late' });
      expect(await untilResult()).toBe('late');
    },
  );

  it('receives an open call alone, if several connect at the same time to different hosts', async () => {
    const { untilResult } = await callPage(alice);
    const { env } = hosts.database;
    const rows = () => runStatement(env.DATABASE_URL ?? '', 'select * from page_calls');
    await expect.poll(rows).toHaveLength(1);
    const pages = await Promise.all([join(alice), join(atB), join(alice), join(atB)]);
    for (const page of pages) await page.ask('ping', 'pong');
    const received = pages.filter((page) => page.all('browser_tool_call').length > 0);
    expect(received).toHaveLength(1);
    const [page] = received as [SessionSocket];
    const { toolCallId } = await untilCall(page);
    page.socket.emit('tool_result', { toolCallId, result: 1 });
    expect(await untilResult()).toBe(1);
  });

  it('cannot answer a call of another user or session', async () => {
    const socket = await join(atB);
    const eve = new TestUser(hosts.b);
    const foreign = await joinSession(eve, await openSession(eve));
    const { untilResult } = await callPage(alice);
    const { toolCallId } = await untilCall(socket);
    foreign.socket.emit('tool_result', { toolCallId, result: 'stolen' });
    await foreign.ask('ping', 'pong');
    socket.socket.emit('tool_result', { toolCallId, result: 'own' });
    expect(await untilResult()).toBe('own');
  });

  it('runs a browser tool even if no notification arrives', async () => {
    const socket = await join(atB);
    hosts.busProxy.mute();
    const { untilResult } = await callPage(alice);
    const { toolCallId } = await untilCall(socket);
    socket.socket.emit('tool_result', { toolCallId, result: 'slow' });
    expect(await untilResult()).toBe('slow');
  });

  it('may leave after it has received a call: the model does not receive that it was not run', async () => {
    const socket = await join(atB);
    const { untilResult } = await callPage(alice);
    const { toolCallId } = await untilCall(socket);
    const rows = (columns: string) =>
      runStatement(hosts.database.env.DATABASE_URL ?? '', `select ${columns}`);
    await expect
      .poll(() => rows('delivered_by from page_calls'))
      .not.toContainEqual({ delivered_by: null });
    socket.socket.disconnect();
    await expect.poll(() => rows('1 from socket_hosts')).toEqual([]);
    // Longer than a call waits for a page.
    await sleep(4_000);
    const back = await join(atB);
    expect(await untilCall(back)).toMatchObject({ toolCallId });
    back.socket.emit('tool_result', { toolCallId, result: 'done' });
    expect(await untilResult()).toBe('done');
  });

  it('is required: without any, the model is informed', async () => {
    const { untilResult } = await callPage(alice);
    expect((await untilResult()).error).toContain('no page of the user is connected');
  });
});

it('SOCKETS_PER_USER counts the sockets of all hosts', async () => {
  const open = [await join(alice), await join(alice), await join(atB)];
  const last = await join(atB);
  for (const user of [alice, atB]) {
    const options = { query: { sessionId }, auth: { invocation: user.mint() } };
    const { data } = await openRejectedSocket(user.host.url, options);
    expect(data).toMatchObject({ statusCode: 429, code: 'too_many_sockets' });
  }
  last.socket.disconnect();
  const retry = async () => {
    const socket = await Promise.race([join(alice, { reconnection: false }), sleep(2_000)]);
    return socket !== undefined;
  };
  await expect.poll(retry).toBe(true);
  for (const { socket } of open) expect(socket.connected).toBe(true);
});

describe('an MCP client of 2025-11-25 whose requests reach one host, and everything else another one', () => {
  const connect = (user: TestUser, capabilities = {}) =>
    connectMcp({
      url: hosts.a.url,
      otherUrl: hosts.b.url,
      headers: user.headers,
      version: LEGACY,
      capabilities,
    });

  it('answers the question of a tool', async () => {
    const client = await connect(alice, { elicitation: {} });
    const { content } = await client.callTool({ name: 'book' });
    expect(content).toEqual([{ type: 'text', text: 'Booked in Bern' }]);
    await client.close();
  });

  it('cancels its call', async () => {
    const client = await connect(alice);
    const cancel = new AbortController();
    const asked = client.callTool(
      { name: 'ask', arguments: { message: 'Long', session_id: sessionId } },
      { signal: cancel.signal },
    );
    const step = await model.next();
    cancel.abort();
    await expect(asked).rejects.toThrow();
    await step.left;
    await client.close();
  });

  it('learns about changes of what it has subscribed to', async () => {
    const client = await connect(alice);
    const updated: string[] = [];
    client.setNotificationHandler('notifications/resources/updated', ({ params }) => {
      updated.push(params.uri);
    });
    const uri = `oracle://sessions/${sessionId}`;
    await client.subscribeResource({ uri });
    await client.subscribeResource({ uri: 'notes://mine' });
    await expect
      .poll(
        async () => {
          await client.callTool({ name: 'change' });
          await alice.request('PATCH', `/sessions/${sessionId}`, { body: { title: 'New' } });
          return new Set(updated);
        },
        { timeout: 60_000 },
      )
      .toEqual(new Set([uri, 'notes://mine']));
    await client.close();
  });

  it('reads the rest of an answer whose stream it has lost', async () => {
    const client = await new RawMcpClient(hosts.a.url, alice.headers).initialize();
    const args = { message: 'Hi', session_id: sessionId };
    const events = readEvents(await client.call(1, 'ask', args));
    const step = await model.next();
    step.say('One. ');
    const last = await findProgress(events, 'One. ');
    const resumed = readEvents(await client.at(hosts.b.url).open(last.id));
    step.answer('Two.');
    const rest = [];
    for await (const { message } of resumed) if (message) rest.push(message);
    expect(rest.map(({ params }) => params?.message)).toEqual(['Two.', undefined]);
    expect(rest[1]).toMatchObject({
      id: 1,
      result: { structuredContent: { status: 'finished', answer: 'One. Two.' } },
    });
    await events.return(undefined);
  });
});

it('GET /mcp ends when the login of the client is revoked on another host', async () => {
  const token = alice.delegate();
  const login = { 'x-ucan-delegation': token };
  const client = await new RawMcpClient(hosts.b.url, login).initialize();
  const stream = await client.open();
  expect(stream.status).toBe(200);
  const revoked = await fetch(`${hosts.a.url}/delegation`, { method: 'DELETE', headers: login });
  expect(revoked.status).toBe(200);
  await stream.text();
  expect((await client.open()).status).toBe(401);
});
