import { fileURLToPath } from 'node:url';
import { createSafeFetch } from '@sibyl/safe-fetch';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { findFreePort } from '../../../packages/host/test/support/free-port.js';
import { McpServer } from '../src/config.js';
import { Connection, INVOCATION_META, type McpTool } from '../src/connection.js';
import { readCallResult, readPromptResult, readResourceResult } from '../src/server-tools.js';
import { startHttpServer } from './support/http-server.js';

const TOOLS = ['add.numbers', 'fail', 'picture', 'hang', 'announce', 'ask', 'rows', 'page', 'grow'];

const fetch = createSafeFetch({ allow: ['127.0.0.1'] });
const open: { close(): Promise<void> }[] = [];

afterEach(async () => {
  for (const part of open.splice(0).reverse()) await part.close();
});

function connect(server: unknown, log: unknown[] = []): Connection {
  const write = (fields: object, message: string) => void log.push({ message, ...fields });
  const context = { fetch, logger: { info: write, warn: write, error: write } };
  const connection = new Connection({ name: 'demo', server: McpServer.parse(server), context });
  open.push(connection);
  return connection;
}

type Options = Parameters<typeof startHttpServer>[0];

async function startServer(options: Options = {}) {
  const server = await startHttpServer(options);
  open.push(server);
  return server;
}

async function overHttp(options: Options = {}) {
  // One that stays free while the server is down.
  const port = await findFreePort();
  const server = await startServer({ port, ...options });
  return { server, connection: connect({ url: server.url, timeoutMs: 20_000 }) };
}

const overEvents = async () => (await overHttp({ kind: 'sse' })).connection;

const stdio = fileURLToPath(new URL('support/stdio-server.ts', import.meta.url));
const startStdio = (log?: unknown[]) => connect({ command: process.execPath, args: [stdio] }, log);

type Scope = Partial<Parameters<Connection['call']>[2]>;
const never = new AbortController().signal;

/** Calls a tool by its name, as the agent does. */
async function call(connection: Connection, name = 'add.numbers', scope: Scope = {}) {
  const tool = { name, inputSchema: { type: 'object' } } as McpTool;
  const args = name === 'add.numbers' ? { a: 2, b: 3 } : {};
  return readCallResult(await connection.call(tool, args, { signal: never, ...scope }));
}

const listNames = async (connection: Connection) =>
  (await connection.tools().catch(() => [])).map(({ name }) => name);

describe('Connection', () => {
  it.each([
    ['streamable HTTP', async () => (await overHttp()).connection],
    [
      'streamable HTTP without sessions',
      async () => (await overHttp({ kind: 'stateless' })).connection,
    ],
    ['server-sent events', overEvents],
    ['stdio', async () => startStdio()],
  ])('lists and calls tools, resources and prompts over %s', async (_, start) => {
    const connection = await start();
    const tools = await connection.tools();
    expect(tools.map(({ name }) => name)).toEqual(TOOLS);
    expect(tools[0]?.inputSchema).toMatchObject({
      type: 'object',
      properties: { a: { type: 'number', description: 'The first' } },
      required: ['a', 'b'],
    });
    await expect(call(connection)).resolves.toBe('5');
    await expect(call(connection, 'fail')).rejects.toThrow('out of paper');
    expect([connection.has('resources'), connection.has('prompts')]).toEqual([true, true]);
    const scope = { signal: never };
    const { resources } = await connection.listResources(undefined, scope);
    expect(resources.map(({ uri }) => uri)).toEqual(['demo://notes', 'demo://pixel']);
    const notes = await connection.readResource('demo://notes', scope);
    expect(readResourceResult(notes)).toBe('Buy milk');
    const { prompts } = await connection.listPrompts(undefined, scope);
    expect(prompts.map(({ name }) => name)).toEqual(['greet']);
    const prompt = await connection.getPrompt('greet', { name: 'Ada' }, scope);
    expect(readPromptResult(prompt)).toEqual({
      messages: [{ role: 'user', content: 'Say hello to Ada' }],
    });
  });

  it('returns images as files, in tool results and resources', async () => {
    const { connection } = await overHttp();
    const png = { mediaType: 'image/png', data: expect.any(Uint8Array) };
    await expect(call(connection, 'picture')).resolves.toEqual([
      'A pixel',
      expect.objectContaining({ ...png, description: 'image' }),
    ]);
    const pixel = await connection.readResource('demo://pixel', { signal: never });
    const file = readResourceResult(pixel) as { readonly data: Uint8Array };
    expect(file).toMatchObject({ ...png, description: 'demo://pixel' });
    expect(Buffer.from(file.data).subarray(1, 4).toString()).toBe('PNG');
  });

  it("passes the user's invocation on with its call only", async () => {
    const { server, connection } = await overHttp();
    await call(connection, 'add.numbers', { invocation: 'token' });
    await call(connection);
    expect(server.calls[0]).toMatchObject({ _meta: { [INVOCATION_META]: 'token' } });
    expect(JSON.stringify(server.calls[1])).not.toContain('token');
  });

  it.each(['sessions', 'sse'] as const)(
    'cancels a call on the server when the turn is aborted (%s)',
    async (kind) => {
      const { server, connection } = await overHttp({ kind });
      const abort = new AbortController();
      const waiting = call(connection, 'hang', { signal: abort.signal });
      waiting.catch(() => undefined);
      await expect.poll(() => server.calls).toEqual(['hang started']);
      abort.abort(new Error('enough'));
      await expect(waiting).rejects.toThrow('enough');
      await expect.poll(() => server.calls).toEqual(['hang started', 'hang cancelled']);
      await expect(call(connection)).resolves.toBe('5');
    },
  );

  it('cancels a call on the server when it times out', async () => {
    const { server } = await overHttp();
    const connection = connect({ url: server.url, timeoutMs: 3000 });
    await connection.tools();
    await expect(call(connection, 'hang')).rejects.toThrow(/within 3 s/);
    await expect.poll(() => server.calls).toContain('hang cancelled');
    await expect(call(connection)).resolves.toBe('5');
  });

  it('sees tools that a server adds, without asking again and again', async () => {
    const { connection } = await overHttp();
    expect(await listNames(connection)).toEqual(TOOLS);
    await call(connection, 'grow');
    await expect.poll(() => listNames(connection)).toContain('grown');
  });

  it('lists tools during a call that reports a change, without ending the call', async () => {
    const { connection } = await overHttp();
    await expect(call(connection, 'announce')).resolves.toBe('announced');
  });

  it('asks the user of the call that a question belongs to, and declines others', async () => {
    const { connection } = await overHttp();
    const asked: unknown[] = [];
    const ask = (color: string) =>
      call(connection, 'ask', {
        elicit: async (params) => {
          asked.push(params.message);
          return { action: 'accept', content: { color } };
        },
      });
    const answers = await Promise.all([ask('red'), call(connection, 'ask'), ask('blue')]);
    expect(answers.map((answer) => JSON.parse(String(answer)))).toEqual([
      { action: 'accept', content: { color: 'red' } },
      { action: 'decline' },
      { action: 'accept', content: { color: 'blue' } },
    ]);
    expect(asked).toEqual(['Which color?', 'Which color?']);
  });

  it.each([
    ['streamable HTTP', ['rows', 'page'], async () => (await overHttp()).connection],
    ['server-sent events', ['rows', 'page'], overEvents],
    // Operators choose processes: these are limited in bytes only.
    ['stdio', ['page'], async () => startStdio()],
  ])('fails only the call whose reply is too large over %s: %j', async (_, names, start) => {
    const connection = await start();
    await connection.tools();
    const other = call(connection, 'announce');
    other.catch(() => undefined);
    for (const name of names)
      await expect(call(connection, name)).rejects.toThrow(
        /^demo answered with more than 4 MiB or 50000 JSON values/,
      );
    await expect(other).resolves.toBe('announced');
    await expect(call(connection)).resolves.toBe('5');
  });

  it('logs what a process writes to stderr', async () => {
    const log: object[] = [];
    await startStdio(log).tools();
    await expect
      .poll(() => log)
      .toContainEqual(expect.objectContaining({ server: 'demo', line: 'demo server is ready' }));
  });
});

describe('Connection, when the server goes away', () => {
  it.each(['sessions', 'stateless', 'sse'] as const)(
    'sends a call to a restarted server at once (%s)',
    async (kind) => {
      const { server, connection } = await overHttp({ kind });
      await expect(call(connection)).resolves.toBe('5');
      await server.close();
      const again = await startServer({ kind, port: server.port });
      await expect(call(connection)).resolves.toBe('5');
      expect(again.calls).toHaveLength(1);
    },
  );

  it('starts a process that ended again', async () => {
    const log: Record<string, unknown>[] = [];
    const connection = startStdio(log);
    await expect(call(connection)).resolves.toBe('5');
    const { client } = (
      connection as unknown as { opened: { client: { transport: { pid: number } } } }
    ).opened;
    process.kill(client.transport.pid, 'SIGKILL');
    await expect.poll(() => JSON.stringify(log)).toContain('lost');
    await expect(call(connection)).resolves.toBe('5');
  });

  it('sends a call that never ran again, while the server restarts', async () => {
    const { server, connection } = await overHttp();
    await connection.tools();
    await server.close();
    const calling = call(connection);
    const again = await startServer({ port: server.port });
    await expect(calling).resolves.toBe('5');
    expect(again.calls).toHaveLength(1);
  });

  it('never sends a call again that may have run', async () => {
    let posts = 0;
    const { server, connection } = await overHttp({
      intercept: ({ method }) => {
        if (method === 'POST') posts += 1;
        return false;
      },
    });
    await connection.tools();
    const calling = call(connection, 'hang');
    calling.catch(() => undefined);
    await expect.poll(() => server.calls).toEqual(['hang started']);
    const before = posts;
    await server.close();
    const again = await startServer({ port: server.port });
    await expect(calling).rejects.toThrow('whether the call had an effect is unknown');
    expect(again.calls).toEqual([]);
    expect(posts).toBe(before);
    await expect(call(connection)).resolves.toBe('5');
  });

  it('comes back although the time of day was set back', async () => {
    const { server, connection } = await overHttp();
    await connection.tools();
    await server.close();
    await expect(call(connection)).rejects.toThrow('demo cannot be reached');
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() - 60 * 60_000 });
    open.push({ close: async () => void vi.useRealTimers() });
    await startServer({ port: server.port });
    await expect.poll(() => listNames(connection)).toEqual(TOOLS);
  });

  it('names no address in errors', async () => {
    const { server, connection } = await overHttp();
    await connection.tools();
    await server.close();
    const error = await call(connection).catch((reason) => reason);
    expect(error).toBeInstanceOf(Error);
    expect(String(error)).not.toMatch(/127\.0\.0\.1|ECONN/);
  });
});

describe('Connection, redirects', () => {
  const redirect = (to: (path: string) => string | undefined): Options => ({
    intercept: (request, response) => {
      const location = to(request.url ?? '');
      if (location) response.writeHead(307, { location }).end();
      return location !== undefined;
    },
  });

  it('follows those within the origin', async () => {
    const server = await startServer(redirect((path) => (path === '/mcp' ? '/mcp/' : undefined)));
    await expect(call(connect({ url: server.url }))).resolves.toBe('5');
  });

  it('follows none to another origin, which would receive the arguments', async () => {
    const other = await startServer();
    const server = await startServer(redirect(() => other.url));
    await expect(call(connect({ url: server.url, timeoutMs: 5000 }))).rejects.toThrow(
      'cannot be reached',
    );
    expect(other.sessions).toEqual([]);
  });

  it('refuses a private address that is not allowed', async () => {
    const server = await startServer();
    const logger = { info() {}, warn() {}, error() {} };
    const refused = new Connection({
      name: 'x',
      server: McpServer.parse({ url: server.url }),
      context: { fetch: createSafeFetch(), logger },
    });
    await expect(refused.tools()).rejects.toThrow('x cannot be reached');
    expect(server.sessions).toEqual([]);
  });
});
