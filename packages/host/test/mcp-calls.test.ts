import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { request as sendRequest } from 'node:http';
import type { Client } from '@modelcontextprotocol/client';
import { MCP_SERVER } from '@sibyl/plugin-mcp-server';
import { describe, expect, it } from 'vitest';
import { createKey } from './support/access-key.js';
import {
  connectMcp,
  createAsking,
  findProgress,
  LEGACY,
  MODERN,
  type RawEvent,
  RawMcpClient,
  readEvents,
  waiting,
} from './support/mcp.js';
import { openSession } from './support/stream.js';
import { bearer, useSurfaceHost } from './support/surface-host.js';
import { TestUser } from './support/user.js';

const PAGE = 'https://oracle.example';
const test = useSurfaceHost({ plugins: [createAsking(MCP_SERVER)], env: { PUBLIC_URL: PAGE } });

const connect = (version: string, capabilities = {}, user = new TestUser(test.host)) =>
  connectMcp({ url: test.host.url, headers: user.headers, version, capabilities });
const raw = (user = new TestUser(test.host)) => new RawMcpClient(test.host.url, user.headers);

// biome-ignore lint/suspicious/noExplicitAny: a test states by its assertions what it expects.
const said = (result: any): string => result.content?.[0]?.text ?? '';

async function collect(response: Response): Promise<RawEvent[]> {
  const events: RawEvent[] = [];
  for await (const event of readEvents(response)) events.push(event);
  return events;
}

describe.each([MODERN, LEGACY])('a tool that asks a client of %s', (version) => {
  it('receives the answer', async () => {
    const client = await connect(version, { elicitation: {} });
    expect(said(await client.callTool({ name: 'book' }))).toBe('Booked in Bern');
    await client.close();
  });

  it('fails if the client has not declared that it can answer', async () => {
    const client = await connect(version);
    const failed = await client.callTool({ name: 'book' }).then(said, ({ message }) => message);
    expect(failed).toMatch(/capabilit/i);
    await client.close();
  });
});

describe('a question to a client of 2025-11-25', () => {
  it('reaches its model, and is refused if it has none', async () => {
    const client = await connect(LEGACY, { sampling: {} });
    expect(said(await client.callTool({ name: 'guess' }))).toContain('Seven');
    await client.close();
    const without = await connect(LEGACY, { elicitation: {} });
    expect(said(await without.callTool({ name: 'guess' }))).toContain('does not support sampling');
    await without.close();
  });

  it('is answered once, by the same user in the same session', async () => {
    const user = new TestUser(test.host);
    const client = await raw(user).initialize({ elicitation: {} });
    const events = readEvents(await client.call(1, 'book'));
    await events.next();
    const { message } = (await events.next()).value as RawEvent;
    expect(message).toMatchObject({ method: 'elicitation/create' });
    const answer = (city: string) => {
      return { id: message.id, result: { action: 'accept', content: { city } } };
    };
    const others = [
      client.at(test.host.url, new TestUser(test.host).headers),
      await raw(user).initialize({ elicitation: {} }),
      raw(user),
    ];
    for (const other of others) expect((await other.post(answer('Rome'))).status).toBe(202);
    expect((await client.post({ ...answer('Rome'), id: randomUUID() })).status).toBe(202);
    for (const city of ['Bern', 'Rome']) expect((await client.post(answer(city))).status).toBe(202);
    const { message: result } = (await events.next()).value as RawEvent;
    expect([result.id, said(result.result)]).toEqual([1, 'Booked in Bern']);
  });
});

describe('the stream of a call of 2025-11-25', () => {
  it('begins with an id, and continues after a tool has closed it', async () => {
    const client = await raw().initialize();
    const first = await collect(await client.call(1, 'wait'));
    expect(first).toEqual([{ id: expect.any(String), message: undefined }]);
    const resumed = await client.open(first[0]?.id);
    expect(resumed.status).toBe(200);
    await expect.poll(() => waiting).toHaveLength(1);
    waiting.pop()?.();
    const rest = await collect(resumed);
    expect(rest.map(({ message }) => said(message.result))).toEqual(['waited']);
    // For those that lose the connection again.
    expect(await collect(await client.open(first[0]?.id))).toEqual(rest);
    for (const other of [raw(), client.at(test.host.url, new TestUser(test.host).headers)])
      expect((await other.open(first[0]?.id)).status).toBe(404);
  });

  it('of an answer can be read again from the store, as progress after an event', async () => {
    const client = await new RawMcpClient(test.host.url, bearer(test.key)).initialize();
    const lost = new AbortController();
    const session_id = await openSession(test.alice);
    const events = readEvents(
      await client.call(7, 'ask', { message: 'Hi', session_id }, lost.signal),
    );
    const step = await test.model.next();
    step.say('One. ');
    const last = await findProgress(events, 'One. ');
    lost.abort();
    await events.return(undefined).catch(() => undefined);
    step.answer('Two.');
    const readRun = () => test.alice.request('GET', `/sessions/${session_id}/run`);
    await expect.poll(async () => (await readRun()).body.run.status).toBe('finished');
    // As after a restart: no host has the events.
    const forgotten = last.id.replace(/\.[0-9a-f-]{36}\./, `.${randomUUID()}.`);
    for (const id of [last.id, forgotten]) {
      const rest = (await collect(await client.open(id))).flatMap(({ message }) => message ?? []);
      expect(rest.map(({ params }) => params?.message)).toEqual(['Two.', undefined]);
      expect(rest[0].params.progressToken).toBe('p7');
      expect(rest[1]).toMatchObject({ id: 7, result: { structuredContent: { session_id } } });
      expect(said(rest[1].result)).toBe('One. Two.');
    }
    const stranger = await raw().initialize();
    expect((await stranger.open(forgotten)).status).toBe(404);
    const { key } = await createKey(test.alice, { session: await openSession(test.alice) });
    expect((await client.at(test.host.url, bearer(key)).open(forgotten)).status).toBe(404);
  });

  it('is one of at most 32 of a user', async () => {
    const user = new TestUser(test.host);
    const client = await raw(user).initialize();
    const lost = new AbortController();
    for (let i = 1; i <= 32; i++)
      expect((await client.call(i, 'wait', {}, lost.signal)).status).toBe(200);
    lost.abort();
    await expect.poll(() => waiting).toHaveLength(32);
    const refused = await client.call(33, 'wait');
    expect(refused.headers.get('retry-after')).toBe('5');
    expect([refused.status, await refused.json()]).toMatchObject([
      429,
      { error: { data: { code: 'too_many_streams' } } },
    ]);
    await client.post({ method: 'notifications/cancelled', params: { requestId: 5 } });
    for (const end of waiting.splice(0)) end();
    const list = () => client.post({ id: 34, method: 'tools/list' });
    await expect.poll(async () => (await list()).status).toBe(200);
  });
});

/** Subscribes to resources; the result ends the last subscription, or all of 2026-07-28. */
async function subscribe(client: Client, version: string, uris: readonly string[]) {
  if (version === MODERN) {
    const listening = await client.listen({ resourceSubscriptions: [...uris] });
    return () => listening.close();
  }
  for (const uri of uris) await client.subscribeResource({ uri });
  return () => client.unsubscribeResource({ uri: uris.at(-1) ?? '' });
}

describe.each([MODERN, LEGACY])('a client of %s that has subscribed', (version) => {
  it('learns which of its resources change, and not those of others', async () => {
    const user = new TestUser(test.host);
    const client = await connect(version, {}, user);
    const updated: string[] = [];
    client.setNotificationHandler('notifications/resources/updated', ({ params }) => {
      updated.push(params.uri);
    });
    const session_id = await openSession(user);
    const uri = `oracle://sessions/${session_id}`;
    const uris = [uri, 'notes://mine'];
    const unsubscribe = await subscribe(client, version, uris);
    const stranger = await connect(version);
    // The stream opens a little after the client has connected.
    const change = async () => {
      await stranger.callTool({ name: 'change' });
      await client.callTool({ name: 'change' });
      return updated;
    };
    await expect.poll(change).toContain('notes://mine');
    expect(updated).not.toContain(uri);
    const asked = client.callTool({ name: 'ask', arguments: { message: 'Hi', session_id } });
    (await test.model.next()).answer('Hello.');
    await asked;
    await expect.poll(() => updated).toContain(uri);
    const { contents } = await client.readResource({ uri });
    expect(JSON.stringify(contents)).toContain('Hello.');
    await expect(stranger.readResource({ uri })).rejects.toThrow();
    const { resources } = await client.listResources();
    expect(resources.map((resource) => resource.uri)).toEqual(['notes://mine', uri]);
    await unsubscribe();
    updated.length = 0;
    await client.callTool({ name: 'change' });
    await user.request('PATCH', `/sessions/${session_id}`, { body: { title: 'Renamed' } });
    // A client of 2026-07-28 ends its stream.
    if (version === LEGACY) await expect.poll(() => updated).toContain(uri);
    expect(updated).not.toContain('notes://mine');
    for (const each of [client, stranger]) await each.close();
  });
});

it('GET /mcp reports everything that a client with subscriptions may have missed', async () => {
  const client = await raw().initialize();
  const [uri, other] = ['notes://mine', 'notes://other'];
  for (const [id, each] of [uri, other].entries())
    await (await client.post({ id, method: 'resources/subscribe', params: { uri: each } })).text();
  const first = await client.open();
  const events = readEvents(first);
  const { id } = (await events.next()).value as RawEvent;
  const again = readEvents(await client.open(id));
  const missed = [await again.next(), await again.next(), await again.next()];
  expect(missed.map(({ value }) => value?.message?.params.uri)).toEqual([undefined, uri, other]);
  await events.return(undefined);
  await again.return(undefined);
});

it('resources/subscribe is refused beyond 200 subscriptions, and for an address that is too long', async () => {
  const client = await raw().initialize();
  const subscribe = async (uri: string, count = 1) => {
    const requests = Array.from({ length: count }, (_, id) => {
      return { jsonrpc: '2.0', id, method: 'resources/subscribe', params: { uri: `${uri}/${id}` } };
    });
    const replies = await collect(await client.post(requests));
    return replies.flatMap(({ message }) => message ?? []);
  };
  const refusal = async (uri: string) => (await subscribe(uri))[0].error.message;
  expect(await refusal(`notes://${'x'.repeat(2000)}`)).toContain('2000');
  for (let batch = 0; batch < 20; batch++) {
    const replies = await subscribe(`notes://${batch}`, 10);
    expect(replies.map(({ result }) => result)).toEqual(Array(10).fill({}));
  }
  expect(await refusal('notes://more')).toContain('unsubscribe');
});

it('the API document lists what /mcp answers to unknown methods and streams, and to clients that accept too little', async () => {
  const { url } = test.host;
  const { paths } = (await (await fetch(`${url}/docs/openapi.json`)).json()) as {
    paths: Record<string, Record<string, { responses: object }>>;
  };
  const client = await raw().initialize();
  const accept = 'application/json, text/event-stream';
  const headers = { ...client.headers, 'content-type': 'application/json', accept };
  const send = async (method: string, more: Record<string, string>, message?: object) => {
    const body = message ? JSON.stringify({ jsonrpc: '2.0', id: 1, ...message }) : null;
    const init = { method, headers: { ...headers, ...more }, body };
    const { status } = await fetch(`${url}/mcp`, init);
    return [status, Object.keys(paths['/mcp']?.[method.toLowerCase()]?.responses ?? {})];
  };
  const prefix = 'io.modelcontextprotocol';
  const _meta = {
    [`${prefix}/protocolVersion`]: MODERN,
    [`${prefix}/clientInfo`]: { name: 'raw', version: '1' },
    [`${prefix}/clientCapabilities`]: {},
  };
  const modern = { 'mcp-protocol-version': MODERN, 'mcp-method': 'nope' };
  const has = (status: number) => [status, expect.arrayContaining([String(status)])];
  expect(await send('POST', modern, { method: 'nope', params: { _meta } })).toEqual(has(404));
  expect(await send('POST', { accept: 'text/html' }, { method: 'ping' })).toEqual(has(406));
  const stream = { 'last-event-id': `${'0'.repeat(12)}.${randomUUID()}.1` };
  expect(await send('GET', stream)).toEqual(has(404));
  const session = { 'mcp-session-id': client.session };
  expect(await send('GET', { ...session, accept: 'text/html' })).toEqual(has(406));
});

describe('the origin of a request to /mcp', () => {
  async function ask(headers: Record<string, string>): Promise<number> {
    const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'ping' });
    const type = { 'content-type': 'application/json', accept: 'application/json' };
    const sent = sendRequest(`${test.host.url}/mcp`, {
      method: 'POST',
      headers: { ...type, ...headers },
    });
    sent.end(body);
    const [reply] = await once(sent, 'response');
    reply.resume();
    return reply.statusCode;
  }

  it('is refused before authentication if it is this machine under a foreign name', async () => {
    const evil = { host: 'evil.example', origin: 'http://evil.example' };
    expect(await ask(evil)).toBe(403);
    expect(await ask({ ...evil, ...bearer(test.key) })).toBe(403);
    const { port } = new URL(test.host.url);
    for (const host of ['localhost', '127.0.0.1', '[::1]', `localhost:${port}`, 'oracle.example'])
      expect([host, await ask({ host, origin: `http://${host}` })]).toEqual([host, 401]);
    // Neither is a page of this host, and CORS_ORIGIN allows all others.
    expect(await ask({ host: 'oracle.internal' })).toBe(401);
    expect(await ask({ origin: 'https://editor.example' })).toBe(401);
  });
});
