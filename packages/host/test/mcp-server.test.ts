import {
  type CallToolResult,
  Client,
  type RequestOptions,
  StreamableHTTPClientTransport,
} from '@modelcontextprotocol/client';
import { defineRoute } from '@sibyl/plugin-kit';
import { MCP_SERVER } from '@sibyl/plugin-mcp-server';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { z } from 'zod';
import { createKey } from './support/access-key.js';
import { runStatement } from './support/cluster.js';
import { startHost } from './support/host.js';
import { testPlugin } from './support/plugin.js';
import { openSession } from './support/stream.js';
import { bearer, useSurfaceHost } from './support/surface-host.js';
import { createTestDatabase } from './support/test-database.js';
import { TestUser } from './support/user.js';

/** What a page of the user does. */
const page = testPlugin('page', {
  routes: ({ surface }) => [
    defineRoute({
      method: 'POST',
      path: '/answers/:sessionId',
      summary: 'Answers the question of a session',
      body: z.object({ value: z.unknown() }),
      handler: async ({ caller, params: { sessionId }, body: { value } }) => {
        const turns = surface.for(caller);
        const [question] = await turns.pending(sessionId);
        return turns.answer({ id: question?.id ?? '', value });
      },
    }),
  ],
});

/** Whose servers an extension takes from the host. */
let takenFrom: string | undefined;

/** Adds to the MCP server; one of its extensions fails. */
const notes = testPlugin('notes', {
  dependsOn: ['mcp-server'],
  setup: ({ shared }) => {
    const server = shared.require(MCP_SERVER);
    server.extend(() => {
      throw new Error('broken');
    });
    server.extend(async (mcp, { did }) => {
      if (did !== takenFrom) return;
      // The host cannot connect it any more.
      await mcp.connect({ start: async () => {}, send: async () => {}, close: async () => {} });
    });
    server.extend((mcp, { did }) => {
      mcp.registerTool('count_notes', { description: 'Counts' }, () => ({
        content: [{ type: 'text', text: `none of ${did}` }],
      }));
      mcp.registerResource('note', 'notes://first', { description: 'A note' }, ({ href: uri }) => ({
        contents: [{ uri, text: 'Buy milk' }],
      }));
    });
  },
});

const ORIGIN = 'https://oracle.example';
const PAGE = `${ORIGIN}/app/`;
const STREAMS = 3;
const env = { PUBLIC_URL: ORIGIN, STREAMS_PER_USER: String(STREAMS) };
const test = useSurfaceHost({ plugins: [page, notes], env });

const MODERN = '2026-07-28';
const LEGACY = '2025-11-25';

async function connect(
  headers: Record<string, string>,
  version = MODERN,
  host: { readonly url: string } = test.host,
): Promise<Client> {
  const client = new Client(
    { name: 'test', version: '1.0.0' },
    { versionNegotiation: { mode: version === MODERN ? 'auto' : 'legacy' } },
  );
  const url = new URL(`${host.url}/mcp`);
  await client.connect(new StreamableHTTPClientTransport(url, { requestInit: { headers } }));
  expect(client.getNegotiatedProtocolVersion()).toBe(version);
  return client;
}

const call = async (client: Client, name: string, args: object, options?: RequestOptions) =>
  (await client.callTool(
    { name, arguments: args as Record<string, unknown> },
    options,
  )) as CallToolResult;

const ask = (client: Client, args: object, options?: RequestOptions) =>
  call(client, 'ask', args, options);

// biome-ignore lint/suspicious/noExplicitAny: a test states by its assertions what it expects.
const data = (result: CallToolResult): any => result.structuredContent;
const text = ({ content }: CallToolResult) =>
  content.map((block) => ('text' in block ? block.text : '')).join('\n');

const runStatus = async (sessionId: string, user = test.alice) =>
  (await user.request('GET', `/sessions/${sessionId}/run`)).body.run?.status;

describe.each([MODERN, LEGACY])('an MCP client of %s', (version) => {
  it('asks, receives progress, and continues the session', async () => {
    const client = await connect(bearer(test.key), version);
    const progress: string[] = [];
    const first = ask(
      client,
      { message: 'Add 1 and 2' },
      { onprogress: ({ message = '' }) => void progress.push(message) },
    );
    (await test.model.next()).call({ name: 'add', input: { a: 1, b: 2 } });
    (await test.model.next()).answer('It is 3.');
    const result = await first;
    expect(result.isError).toBeFalsy();
    expect(data(result)).toEqual({
      session_id: expect.any(String),
      status: 'finished',
      answer: 'It is 3.',
    });
    expect(progress).toEqual(['The oracle has begun', 'The oracle uses add', 'It is 3.']);
    const { session_id } = data(result);
    expect(text(result)).toBe(`It is 3.\nsession_id: ${session_id}`);
    const second = ask(client, { message: 'Thanks', session_id });
    const step = await test.model.next();
    expect(JSON.stringify(step.body.messages)).toContain('It is 3.');
    step.answer('Gladly.');
    expect(data(await second)).toMatchObject({ session_id, answer: 'Gladly.' });
    const { messages } = (await test.alice.request('GET', `/messages/${session_id}`)).body;
    expect(messages).toHaveLength(4);
    await client.close();
  });

  it('aborts the turn when it cancels the call', async () => {
    const client = await connect(bearer(test.key), version);
    const session_id = await openSession(test.alice);
    const cancelled = new AbortController();
    const { signal } = cancelled;
    const pending = ask(client, { message: 'Long', session_id }, { signal }).catch(() => 'gone');
    const step = await test.model.next();
    step.say('Begun');
    cancelled.abort();
    expect(await pending).toBe('gone');
    await step.left;
    await vi.waitFor(async () => expect(await runStatus(session_id)).toBe('aborted'), 20_000);
    await client.close();
  });

  it('learns where the user answers, and reads the answer afterwards', async () => {
    const client = await connect(bearer(test.key), version);
    const asked = ask(client, { message: 'Weather?' });
    (await test.model.next()).call({ name: 'ask_city', input: {} });
    const result = await asked;
    const { session_id } = data(result);
    expect(data(result)).toMatchObject({ status: 'waiting', url: PAGE });
    expect(text(result)).toContain(`needs the user's answer to a question`);
    expect(text(result)).toContain(`at ${PAGE}. The call waits`);
    expect(result.isError).toBeFalsy();
    const body = { value: { city: 'Bern' } };
    const answered = await test.alice.request('POST', `/answers/${session_id}`, { body });
    expect([answered.status, answered.body]).toEqual([200, { runId: expect.any(String) }]);
    const rest = call(client, 'read_answer', { session_id });
    const step = await test.model.next();
    expect(step.results.join()).toContain('Bern');
    step.answer('Sunny.');
    expect(data(await rest)).toMatchObject({ status: 'finished', answer: 'Sunny.' });
    await client.close();
  });

  it('has tools that list and read sessions only with a UCAN', async () => {
    const names = async (client: Client) =>
      (await client.listTools()).tools.map(({ name }) => name);
    const limited = await connect(bearer(test.key), version);
    expect(await names(limited)).toEqual(['ask', 'read_answer']);
    for (const name of ['list_sessions', 'read_session'])
      await expect(call(limited, name, { session_id: 'x' })).rejects.toThrow(/not found/i);
    const user = new TestUser(test.host);
    const client = await connect(user.headers, version);
    const own = ['ask', 'read_answer', 'list_sessions', 'read_session'];
    expect(await names(client)).toEqual([...own, 'count_notes']);
    const asked = ask(client, { message: 'Hello' });
    (await test.model.next()).answer('Hi.');
    const { session_id } = data(await asked);
    expect(data(await call(client, 'list_sessions', {}))).toMatchObject({
      sessions: [{ session_id }],
      total: 1,
    });
    expect(data(await call(client, 'read_session', { session_id }))).toMatchObject({
      messages: [
        { role: 'user', text: 'Hello' },
        { role: 'assistant', text: 'Hi.' },
      ],
      has_older: false,
    });
    const stranger = await connect(new TestUser(test.host).headers, version);
    const refused = await call(stranger, 'read_session', { session_id });
    expect([refused.isError, text(refused)]).toEqual([
      true,
      expect.stringContaining('session_not_found'),
    ]);
    for (const each of [limited, client, stranger]) await each.close();
  });
});

it('a lost connection cancels the turn of a client of 2026-07-28, and not that of an older one', async () => {
  const modern = await connect(bearer(test.key));
  const first = ask(modern, { message: 'One' }).catch(() => 'gone');
  const cancelled = await test.model.next();
  cancelled.say('Begun');
  await modern.close();
  expect(await first).toBe('gone');
  await cancelled.left;
  const legacy = await connect(bearer(test.key), LEGACY);
  const session_id = await openSession(test.alice);
  const second = ask(legacy, { message: 'Two', session_id }).catch(() => 'gone');
  const step = await test.model.next();
  step.say('Still ');
  await legacy.close();
  expect(await second).toBe('gone');
  step.answer('here.');
  const next = await connect(bearer(test.key), LEGACY);
  expect(data(await call(next, 'read_answer', { session_id })).answer).toBe('Still here.');
  await next.close();
});

it('one client cannot cancel a call of another, though their requests have the same number', async () => {
  const [one, two] = [
    await connect(bearer(test.key), LEGACY),
    await connect(bearer(test.key), LEGACY),
  ];
  const first = ask(one, { message: 'One' });
  const kept = await test.model.next();
  const cancel = new AbortController();
  const second = ask(two, { message: 'Two' }, { signal: cancel.signal }).catch(() => 'gone');
  const left = await test.model.next();
  cancel.abort();
  expect(await second).toBe('gone');
  await left.left;
  kept.answer('Kept.');
  expect(data(await first).answer).toBe('Kept.');
  for (const each of [one, two]) await each.close();
});

it('other plugins add tools and resources with MCP_SERVER; an access key does not reach them', async () => {
  const user = new TestUser(test.host);
  const client = await connect(user.headers);
  expect(text(await call(client, 'count_notes', {}))).toBe(`none of ${user.did}`);
  const { contents } = await client.readResource({ uri: 'notes://first' });
  expect(contents).toMatchObject([{ text: 'Buy milk' }]);
  await client.close();
  const limited = await connect(bearer(test.key));
  await expect(call(limited, 'count_notes', {})).rejects.toThrow(/not found/i);
  await expect(limited.readResource({ uri: 'notes://first' })).rejects.toThrow();
  await limited.close();
});

it('calls of clients that are gone are limited by STREAMS_PER_USER, and others are refused', async () => {
  const user = new TestUser(test.host);
  const steps = [];
  for (let i = 0; i < STREAMS; i++) {
    const client = await connect(user.headers, LEGACY);
    const asked = ask(client, { message: `${i}` }).catch(() => 'gone');
    steps.push(await test.model.next());
    await client.close();
    expect(await asked).toBe('gone');
  }
  const client = await connect(user.headers, LEGACY);
  const session_id = await openSession(user);
  const refused = await ask(client, { message: 'One more', session_id });
  expect([refused.isError, text(refused)]).toEqual([
    true,
    expect.stringContaining('too_many_streams'),
  ]);
  // Nothing of the refused call has begun.
  expect(await runStatus(session_id, user)).toBeUndefined();
  expect(test.model.arrived).toBe(0);
  for (const step of steps) step.answer('Done.');
  const again = vi.waitFor(async () => {
    const result = await ask(client, { message: 'Again', session_id });
    expect(data(result)).toMatchObject({ status: 'finished', answer: 'Yes.' });
  }, 120_000);
  (await test.model.next()).answer('Yes.');
  await again;
  await client.close();
});

it('an approval is not given here: the result has the link to the page', async () => {
  const client = await connect(test.alice.headers);
  const asked = ask(client, { message: 'Pay' });
  (await test.model.next()).call({ name: 'pay', input: {} });
  const result = await asked;
  expect(data(result)).toMatchObject({ status: 'waiting', url: PAGE });
  expect(text(result)).toContain("needs the user's approval of a call");
  await client.close();
});

describe('errors', () => {
  it('are results of the tool: unknown sessions and models, failures, sessions of others, a busy session', async () => {
    const client = await connect(bearer(test.key));
    const foreign = await openSession(new TestUser(test.host));
    for (const session_id of ['x', foreign]) {
      const result = await ask(client, { message: 'Hi', session_id });
      expect([result.isError, text(result)]).toEqual([
        true,
        expect.stringContaining('session_not_found'),
      ]);
    }
    expect((await ask(client, { message: 'Hi', model: 'gpt-x' })).isError).toBe(true);
    expect((await ask(client, { message: '' })).isError).toBe(true);
    const session_id = await openSession(test.alice);
    const failing = ask(client, { message: 'Hi', session_id });
    const step = await test.model.next();
    step.say('Begun');
    expect(text(await ask(client, { message: 'Me too', session_id }))).toContain('turn_running');
    step.fail({ message: 'broken', code: 'invalid_request_error', type: 'invalid_request_error' });
    const failed = await failing;
    expect(failed.isError).toBe(true);
    expect(data(failed)).toMatchObject({ status: 'failed', answer: 'Begun' });
    await client.close();
  });

  it('a key for one session asks only there', async () => {
    const session = await openSession(test.alice);
    const narrow = await connect(bearer((await createKey(test.alice, { session })).key));
    const asked = ask(narrow, { message: 'Hi' });
    (await test.model.next()).answer('Here.');
    expect(data(await asked).session_id).toBe(session);
    const other = await openSession(test.alice);
    for (const name of ['ask', 'read_answer']) {
      const args = { session_id: other, ...(name === 'ask' && { message: 'Hi' }) };
      expect(text(await call(narrow, name, args))).toContain('session_not_found');
    }
    await narrow.close();
  });

  it('opens no stream of updates for an access key, which could keep any number of them open', async () => {
    const params = {
      notifications: { toolsListChanged: true },
      _meta: {
        'io.modelcontextprotocol/protocolVersion': MODERN,
        'io.modelcontextprotocol/clientInfo': { name: 'test', version: '1' },
        'io.modelcontextprotocol/clientCapabilities': {},
      },
    };
    const listen = { jsonrpc: '2.0', id: 1, method: 'subscriptions/listen', params };
    const named = { 'mcp-protocol-version': MODERN, 'mcp-method': 'subscriptions/listen' };
    const reply = await post(listen, { ...bearer(test.key), ...named });
    expect(reply.headers.get('content-type')).toContain('application/json');
    expect(await reply.text()).toContain('Subscription limit reached');
  });

  it('a batch has at most 10 messages, because it counts as one request', async () => {
    const ping = (id: number) => ({ jsonrpc: '2.0', id, method: 'ping' });
    const pings = Array.from({ length: 11 }, (_, i) => ping(i));
    expect((await post(pings, bearer(test.key))).status).toBe(400);
    expect((await post(pings.slice(1), bearer(test.key))).status).toBe(200);
  });

  it('a call whose server does not start does not count as one in progress', async () => {
    const ping = { jsonrpc: '2.0', id: 1, method: 'ping' };
    const statuses = new Set<number>();
    takenFrom = test.alice.did;
    onTestFinished(() => {
      takenFrom = undefined;
    });
    for (let i = 0; i < 33; i++) statuses.add((await post(ping, test.alice.headers)).status);
    expect([...statuses]).toEqual([500]);
    takenFrom = undefined;
    expect((await post(ping, test.alice.headers)).status).toBe(200);
  });

  it('a refused request leaves a short line in the log, however long its method is', async () => {
    const _meta = {
      'io.modelcontextprotocol/protocolVersion': MODERN,
      'io.modelcontextprotocol/clientInfo': { name: 'client', version: '1' },
      'io.modelcontextprotocol/clientCapabilities': {},
    };
    const request = { jsonrpc: '2.0', id: 1, method: 'x'.repeat(50_000), params: { _meta } };
    const named = { 'mcp-protocol-version': MODERN, 'mcp-method': 'tools/list' };
    const reply = await post(request, { ...bearer(test.key), ...named });
    expect(reply.status).toBe(400);
    const line = test.host.log.findLast(({ msg }) => msg === 'an MCP request was refused');
    expect(line).toMatchObject({ reason: expect.stringMatching(/^.{2000}$/s) });
  });

  const post = (body: unknown, headers: Record<string, string> = {}) =>
    fetch(`${test.host.url}/mcp`, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        ...headers,
      },
      body: JSON.stringify(body),
    });

  it('without a valid key is 401 with WWW-Authenticate, as a JSON-RPC error', async () => {
    const list = { jsonrpc: '2.0', id: 1, method: 'tools/list' };
    for (const headers of [{}, bearer('nonsense')]) {
      const reply = await post(list, headers);
      expect([reply.status, reply.headers.get('www-authenticate')]).toEqual([401, 'Bearer']);
      expect(await reply.json()).toMatchObject({
        jsonrpc: '2.0',
        id: null,
        error: { code: -32000, message: expect.any(String) },
      });
    }
    await expect(connect(bearer('nonsense'))).rejects.toThrow();
  });

  it('an unknown method and another body are JSON-RPC errors; GET is 405', async () => {
    const unknown = await post({ jsonrpc: '2.0', id: 7, method: 'nope' }, bearer(test.key));
    expect(await unknown.text()).toContain('-32601');
    const invalid = await post({ hello: 1 }, bearer(test.key));
    expect(invalid.status).toBe(400);
    expect(await invalid.json()).toMatchObject({ jsonrpc: '2.0', error: { code: -32600 } });
    const get = await fetch(`${test.host.url}/mcp`, { headers: bearer(test.key) });
    expect([get.status, get.headers.get('allow')]).toEqual([405, expect.stringContaining('POST')]);
  });
});

describe.each([MODERN, LEGACY])('an MCP client of %s', (version) => {
  /** A client of a host on PostgreSQL, and requests of it that read the store. */
  async function open() {
    const database = await createTestDatabase('postgres');
    const host = await startHost({ env: database.env });
    const alice = new TestUser(host);
    const client = await connect(alice.headers, version, host);
    onTestFinished(async () => {
      await client.close();
      await host.close();
      await database.drop();
    });
    const uri = `oracle://sessions/${await openSession(alice)}`;
    const requests = [
      () => client.listResources(),
      () => client.readResource({ uri }),
      ...(version === LEGACY ? [() => client.subscribeResource({ uri })] : []),
    ];
    const url = database.options.databaseUrl ?? '';
    for (const table of ['sessions', 'mcp_server_subscriptions'])
      await runStatement(url, `alter table ${table} rename to moved_${table}`);
    return { client, requests, run: (statement: string) => runStatement(url, statement) };
  }

  it('never receives what the database says', async () => {
    const { client, requests } = await open();
    for (const request of requests)
      await expect(request()).rejects.toThrow('Internal server error');
    expect(text(await call(client, 'list_sessions', {}))).toBe(
      'Internal server error (internal_error)',
    );
  });

  it('learns that the store is not available', async () => {
    const { client, requests, run } = await open();
    await run(`create function fail() returns boolean language plpgsql as
      $$ begin raise exception 'starting up' using errcode = '57P03'; end $$`);
    await run('create view sessions as select * from moved_sessions where fail()');
    const reason = 'The store is not available; try again';
    for (const request of requests.slice(0, 2)) await expect(request()).rejects.toThrow(reason);
    expect(text(await call(client, 'list_sessions', {}))).toBe(`${reason} (store_unavailable)`);
    expect(text(await call(client, 'ask', { message: 'hi' }))).toContain('store_unavailable');
  });
});
