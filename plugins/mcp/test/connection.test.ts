import { fileURLToPath } from 'node:url';
import { createSafeFetch } from '@sibyl/safe-fetch';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { McpServer } from '../src/config.js';
import { Connection, INVOCATION_META } from '../src/connection.js';
import { startHttpServer } from './support/http-server.js';

const logger = { info() {}, warn() {}, error() {} };
const fetch = createSafeFetch({ allow: ['127.0.0.1'] });
const open: { close(): Promise<void> }[] = [];

afterEach(async () => {
  for (const part of open.splice(0).reverse()) await part.close();
});

function connect(server: unknown): Connection {
  const context = { fetch, logger };
  const connection = new Connection({ name: 'demo', server: McpServer.parse(server), context });
  open.push(connection);
  return connection;
}

async function overHttp() {
  const server = await startHttpServer();
  open.push(server);
  return { server, connection: connect({ url: server.url, timeoutMs: 5000 }) };
}

const stdio = fileURLToPath(new URL('support/stdio-server.ts', import.meta.url));
const call = (args = {}) => ({
  tool: 'add.numbers',
  args: { a: 2, b: 3, ...args },
  signal: new AbortController().signal,
  invocation: undefined,
});

describe('a connection', () => {
  it.each([
    ['HTTP', async () => (await overHttp()).connection],
    ['stdio', async () => connect({ command: process.execPath, args: [stdio] })],
  ])('lists and calls tools over %s, their schemas kept', async (_, start) => {
    const connection = await start();
    const tools = await connection.tools();
    expect(tools.map(({ name }) => name)).toEqual(['add.numbers', 'fail', 'hang']);
    expect(tools[0]?.inputSchema).toMatchObject({
      type: 'object',
      properties: { a: { type: 'number', description: 'The first' } },
      required: ['a', 'b'],
    });
    await expect(connection.call(call())).resolves.toBe('5');
    await expect(connection.call({ ...call(), tool: 'fail' })).rejects.toThrow('out of paper');
  });

  it("passes the user's invocation on with its call only", async () => {
    const { server, connection } = await overHttp();
    await Promise.all([
      connection.call({ ...call({ a: 1 }), invocation: 'token' }),
      connection.call(call({ a: 2 })),
    ]);
    const of = (a: number) => server.calls.find((asked) => (asked as { a: number }).a === a);
    expect(of(1)).toMatchObject({ _meta: { [INVOCATION_META]: 'token' } });
    expect(JSON.stringify(of(2))).not.toContain('token');
  });

  it('Connection.call times out, and ends when the turn is aborted', async () => {
    const { server } = await overHttp();
    const connection = connect({ url: server.url, timeoutMs: 3000 });
    await connection.tools();
    await expect(connection.call({ ...call(), tool: 'hang' })).rejects.toThrow(/within 3 s/);
    const abort = new AbortController();
    const waiting = connection.call({ ...call(), tool: 'hang', signal: abort.signal });
    abort.abort(new Error('enough'));
    await expect(waiting).rejects.toThrow('enough');
    await expect(connection.call(call())).resolves.toBe('5');
  });

  it('comes back after the server was away', async () => {
    const { server, connection } = await overHttp();
    await connection.tools();
    await server.close();
    await expect(connection.call(call())).rejects.toThrow();
    await expect(connection.tools()).rejects.toThrow('demo is not connected');
    const again = await startHttpServer(server.port);
    open.push(again);
    await expect
      .poll(() =>
        connection.tools().then(
          ({ length }) => length,
          () => 0,
        ),
      )
      .toBe(3);
    await expect(connection.call(call())).resolves.toBe('5');
  });

  it('comes back although the time of day was set back', async () => {
    const { server, connection } = await overHttp();
    await connection.tools();
    await server.close();
    await expect(connection.call(call())).rejects.toThrow('cannot be reached');
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() - 60 * 60_000 });
    open.push({ close: async () => void vi.useRealTimers() }, await startHttpServer(server.port));
    const count = () =>
      connection.tools().then(
        ({ length }) => length,
        () => 0,
      );
    await expect.poll(count, { timeout: 15_000 }).toBe(3);
  });

  it('Connection rejects a private address that is not allowed', async () => {
    const { server } = await overHttp();
    const context = { fetch: createSafeFetch(), logger };
    const refused = new Connection({
      name: 'x',
      server: McpServer.parse({ url: server.url }),
      context,
    });
    await expect(refused.tools()).rejects.toThrow();
    expect(server.calls).toEqual([]);
  });
});
