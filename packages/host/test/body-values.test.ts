import { describe, expect, it, onTestFinished } from 'vitest';
import { createKey } from './support/access-key.js';
import { startHost, type TestHostOptions } from './support/host.js';
import { joinSession } from './support/session-socket.js';
import { openSession } from './support/stream.js';
import { TestUser } from './support/user.js';

const KB = 1024;
const LIMIT = 600;

async function start(env: TestHostOptions['env'] = {}) {
  const host = await startHost({ env: { RATE_LIMIT_PER_MINUTE: String(LIMIT), ...env } });
  onTestFinished(host.close);
  return { host, alice: new TestUser(host) };
}

async function post(user: TestUser, path: string, body: string, headers = {}) {
  const response = await fetch(user.host.url + path, {
    method: 'POST',
    headers: {
      ...user.headers,
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      'a2a-version': '1.0',
      ...headers,
    },
    body,
  });
  const remaining = Number(response.headers.get('ratelimit-remaining') ?? LIMIT);
  return { status: response.status, charged: LIMIT - remaining, text: await response.text() };
}

const repeat = (count: number, make: (i: number) => string) =>
  Array.from({ length: count }, (_, i) => make(i)).join();
const names = (count: number) => `{${repeat(count, (i) => `"k${i}":1`)}}`;
const UNKNOWN = '/messages/01990000-0000-7000-8000-000000000000';

/** The routes whose bodies may have history, tools or metadata; what they answer to unusual fields differs. */
const LARGE: readonly (readonly [string, (value: string) => string])[] = [
  [UNKNOWN, (value) => `{"message":"x","metadata":{"a":${value}}}`],
  ['/mcp', (value) => `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":${value}}`],
  ['/v1/chat/completions', (value) => `{"model":"none","messages":${value}}`],
  ['/v1/responses', (value) => `{"model":"none","input":${value}}`],
  ['/ui/chat', (value) => `{"id":"x","messages":[],"trigger":${value}}`],
  ['/v2/agent/run', (value) => `{"threadId":"t","state":${value}}`],
  ['/a2a', (value) => `{"jsonrpc":"2.0","id":1,"method":"None","params":${value}}`],
  ['/a2a/message:send', (value) => `{"message":${value}}`],
];

const TOO_MANY: readonly (readonly [string, string])[] = [
  ['more than 20000 members of objects', names(20_001)],
  ['more than 100000 values', `[${repeat(100_001, () => '1')}]`],
  ['more than 128 levels', '['.repeat(900 * KB)],
];

describe('BodyInterceptor', () => {
  it.each(LARGE)('refuses JSON for POST %s that takes long to parse', async (path, wrap) => {
    const { alice } = await start();
    for (const [reason, value] of TOO_MANY) {
      const { status, text } = await post(alice, path, wrap(value));
      expect(text).toContain(reason);
      // Clients of MCP and A2A find the status in the body.
      expect([200, 400]).toContain(status);
    }
    // A little less arrives.
    const { text } = await post(alice, path, wrap(names(19_900)));
    expect(text).not.toContain('body: has');
  });

  it('refuses at a fifth of that on routes without history, tools or metadata', async () => {
    const { alice } = await start();
    for (const path of ['/sessions', '/messages/abort', '/memory', '/schedules']) {
      const members = await post(alice, path, names(5_001));
      expect(JSON.parse(members.text)).toMatchObject({
        statusCode: 400,
        code: 'validation_failed',
        message: ['body: has more than 5000 members of objects; send less'],
      });
      const values = await post(alice, path, `{"a":[${repeat(20_000, () => '1')}]}`);
      expect(values.text).toContain('more than 20000 values');
    }
    expect((await post(alice, '/sessions', names(4_999))).text).toContain('validation_failed');
  });

  it('charges 1,000 members or 8,000 values as a request, also of a body that it refuses', async () => {
    const { host } = await start();
    const charge = async (path: string, body: string) =>
      (await post(new TestUser(host), path, body)).charged;
    expect(await charge('/sessions', '{}')).toBe(1);
    expect(await charge('/sessions', names(4_500))).toBeGreaterThanOrEqual(5);
    expect(await charge(UNKNOWN, `{"message":"x","metadata":${names(19_000)}}`)).toBeGreaterThan(
      19,
    );
    expect(await charge('/mcp', `{"a":[${repeat(80_000, () => '1')}]}`)).toBeGreaterThan(10);
    expect(await charge('/sessions', names(70_000))).toBeGreaterThan(10);
    // A long text is one value.
    expect(await charge('/sessions', `{"title":"${',{[:'.repeat(10_000)}"}`)).toBe(1);
  });

  it('accepts a long message, many tools and a long history', async () => {
    const { alice } = await start({ RATE_LIMIT_PER_MINUTE: '100000' });
    const sessionId = await openSession(alice);
    const csv = 'id,"name, first",{"a":[1,2]}\n'.repeat(6_896).slice(0, 200_000);
    const sent = await alice.request('POST', `/messages/${sessionId}`, { body: { message: csv } });
    expect(sent).toMatchObject({ status: 200, body: { status: 'finished' } });
    const tools = Array.from({ length: 128 }, (_, i) => createTool(i));
    const body = { message: 'Hello', tools };
    // The most that the schemas may hold.
    expect(countValues(tools.map(({ schema }) => schema))).toBeGreaterThan(19_500);
    const declared = await alice.request('POST', `/messages/${sessionId}`, { body });
    expect(declared).toMatchObject({ status: 200, body: { status: 'finished' } });
    const { key } = await createKey(alice);
    const history = Array.from({ length: 1_999 }, (_, i) => ({
      role: i % 2 === 0 ? 'user' : 'assistant',
      content: [{ type: 'text', text: `Message ${i}` }],
    }));
    const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
    const { data } = await (await fetch(`${alice.host.url}/v1/models`, { headers })).json();
    const messages = [...history, { role: 'user', content: 'Hi' }];
    const answer = await fetch(`${alice.host.url}/v1/chat/completions`, {
      ...{ method: 'POST', headers },
      body: JSON.stringify({ model: data[0].id, messages }),
    });
    expect(await answer.json()).toMatchObject({ choices: [{ index: 0 }] });
  });
});

/** A schema of about 156 values. */
function createTool(i: number) {
  const fields = Array.from({ length: 38 }, (_, field) => `f${field}`);
  const properties = Object.fromEntries(fields.map((field) => [field, { type: 'string' }]));
  const required = [...fields, ...fields];
  return {
    name: `tool_${i}`,
    description: 'A tool of the page',
    schema: { type: 'object', properties, required },
  };
}

const countValues = (value: unknown): number =>
  typeof value === 'object' && value !== null
    ? Object.values(value).reduce<number>((sum, inner) => sum + countValues(inner), 1)
    : 1;

describe('POST bodies that are empty or encoded', () => {
  const chunked = (user: TestUser, text: string, headers: object) =>
    fetch(`${user.host.url}/sessions`, {
      method: 'POST',
      headers: { ...user.headers, ...headers },
      body: new Blob(text === '' ? [] : [text]).stream(),
      duplex: 'half',
    } as RequestInit);

  it('POST /sessions accepts an empty body in chunks, with and without a media type', async () => {
    const { alice } = await start();
    expect((await chunked(alice, '', {})).status).toBe(201);
    expect((await chunked(alice, '', { 'content-type': 'application/json' })).status).toBe(201);
    expect((await chunked(alice, '', { 'content-type': 'text/plain' })).status).toBe(201);
    const text = await chunked(alice, 'x', { 'content-type': 'text/plain' });
    expect(await text.json()).toMatchObject({ code: 'unsupported_media_type' });
  });

  it('POST /sessions says that a body must not be encoded', async () => {
    const { alice } = await start();
    const reply = await post(alice, '/sessions', '{}', { 'content-encoding': 'gzip' });
    expect(JSON.parse(reply.text)).toMatchObject({
      statusCode: 415,
      message: 'Send the body as it is, without a Content-Encoding',
    });
  });
});

describe('limitPackets', () => {
  it.each(TOO_MANY)('disconnects a socket whose result has %s', async (reason, value) => {
    const { host, alice } = await start({ SOCKET_MESSAGE_LIMIT: '1mb' });
    const { socket, until } = await openRaw(alice);
    // As the client would send it: `value` need not be JSON.
    (socket.io.engine as unknown as { write(text: string): void }).write(
      `2["tool_result",{"toolCallId":"x","result":${value}}]`,
    );
    await until('(disconnect)');
    await expect
      .poll(() => host.log.map(({ msg }) => msg))
      .toContain(`socket disconnected: a message has ${reason}`);
  });

  it('charges the members of results that no call waits for', async () => {
    const { alice } = await start({ SOCKET_MESSAGE_LIMIT: '1mb', RATE_LIMIT_PER_MINUTE: '100' });
    const { socket, until } = await openRaw(alice);
    const result = JSON.parse(names(15_000));
    for (let i = 0; i < 8; i++) socket.emit('tool_result', { toolCallId: 'x', result });
    const { reason } = await until('closing');
    expect(reason).toBe('rate_limited');
  });

  async function openRaw(user: TestUser) {
    const open = await joinSession(user, await openSession(user), { reconnection: false });
    return { socket: open.socket, until: (name: string) => open.until(name) };
  }
});
