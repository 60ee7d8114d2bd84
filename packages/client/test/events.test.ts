import { type ConnectionState, createSigner, type ServerEvent } from '@sibyl/client';
import { generateSigner } from '@sibyl/ucan';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { useControlledHost } from '../../host/test/support/controlled-host.js';
import { createTestClient } from './support/client.js';
import { type Network, startNetwork } from './support/network.js';
import { read } from './support/reading.js';

const server = useControlledHost();
let network: Network;
beforeAll(async () => {
  network = await startNetwork(server.host.url);
});
afterAll(() => network.close());
afterEach(() => network.restore());

const signer = createSigner(generateSigner());

async function listen(options = {}) {
  const client = createTestClient(network, { signer, ...options });
  const { sessionId } = await client.sessions.create();
  const events = client.events(sessionId);
  const seen: ServerEvent[] = [];
  const states: ConnectionState[] = [];
  events.onAny((event) => seen.push(event));
  events.onState((state) => states.push(state));
  const namesSeen = () => seen.map(({ name }) => name);
  return { client, sessionId, events, seen, states, namesSeen };
}

describe('client.events', () => {
  it('ping, status and catalog return the reply', async () => {
    const { client, sessionId, events } = await listen();
    await events.ready();
    expect(events.state).toBe('connected');
    expect(await events.ping()).toMatchObject({ sessionId });
    expect(await events.status()).toMatchObject({ connected: true, totalConnections: 1 });
    expect((await events.catalog()).serverEvents).toContain('tool_call');
    client.close();
    expect(events.state).toBe('disconnected');
  });

  it('ping, status and catalog reject when the connection is closed', async () => {
    const { client, sessionId, events } = await listen();
    const other = client.events(sessionId);
    await other.ready();
    const message = expect.stringContaining('The client closed the connection');
    const expectLost = (request: Promise<unknown>) =>
      expect(request).rejects.toMatchObject({ code: 'connection_lost', message });
    const own = expectLost(other.ping());
    const waiting = Promise.all([expectLost(events.status()), expectLost(events.catalog())]);
    other.close();
    const late = expectLost(other.ping());
    client.close();
    await Promise.all([own, waiting, late, expectLost(events.ping())]);
  });

  it('shares one socket until the last subscriber closes', async () => {
    const { client, sessionId, events, states } = await listen();
    const other = client.events(sessionId);
    await other.ready();
    expect(await other.status()).toMatchObject({ totalConnections: 1 });
    other.close();
    expect([other.state, events.state]).toEqual(['disconnected', 'connected']);
    events.close();
    events.close();
    expect(states).toEqual(['connected']);
    const again = client.events(sessionId);
    await again.ready();
    expect(await again.status()).toMatchObject({ totalConnections: 1 });
    again.close();
  });

  it('removes the envelope of events', async () => {
    const { client, sessionId, events, seen } = await listen();
    await events.ready();
    const names: string[] = [];
    const stop = events.on('tool_call', ({ toolName }) => names.push(toolName));
    const reading = read(client.stream(sessionId, 'go'));
    (await server.model.next()).call({ name: 'recall', input: { query: 'soil' } });
    const turn = await server.model.next();
    await expect.poll(() => names).toEqual(['recall', 'recall']);
    stop();
    turn.finish();
    await reading.ended;
    const received = seen.filter(({ name }) => name === 'tool_call').map(({ payload }) => payload);
    expect(received).toEqual(
      reading.parts.filter(({ event }) => event === 'tool_call').map(({ data }) => data),
    );
    client.close();
  });

  it('receives missed events after a reconnect', async () => {
    const { client, sessionId, events, states, namesSeen } = await listen();
    await events.ready();
    network.goDown();
    await expect.poll(() => states).toEqual(['connected', 'connecting']);
    const direct = createTestClient(server.host, { signer });
    const reading = read(direct.stream(sessionId, 'go'));
    (await server.model.next()).call({ name: 'recall', input: { query: 'soil' } });
    (await server.model.next()).finish();
    await reading.ended;
    network.restore();
    await expect.poll(() => states.at(-1)).toBe('connected');
    await expect.poll(() => namesSeen().filter((name) => name === 'tool_call')).toHaveLength(2);
    client.close();
  });

  it('reconnects when the token expires', async () => {
    const short = {
      ...signer,
      invoke: (request: { audience: string; now: number }) =>
        signer.invoke({ ...request, now: request.now - 298 }),
    };
    const { client, events, namesSeen } = await listen({ signer: short });
    await events.ready();
    await expect.poll(() => namesSeen().filter((name) => name === 'connected')).toHaveLength(2);
    expect(namesSeen()).toContain('closing');
    client.close();
  });

  it('is rejected for an unknown session and for a session of another user', async () => {
    const { client, sessionId } = await listen();
    for (const [stranger, id] of [
      [createTestClient(network), sessionId],
      [client, 'nowhere'],
    ] as const) {
      const events = stranger.events(id);
      await expect(events.ready()).rejects.toMatchObject({ code: 'connection_lost' });
      expect(events.state).toBe('disconnected');
      events.close();
    }
    client.close();
  });

  it('disconnects when the session is deleted', async () => {
    const { client, sessionId, events, states } = await listen();
    await events.ready();
    await client.sessions.delete(sessionId);
    await expect.poll(() => states.at(-1)).toBe('disconnected');
    client.close();
  });
});
