import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { createSafeFetch } from '@sibyl/safe-fetch';
import { afterEach, beforeEach, expect, it, onTestFinished, vi } from 'vitest';
import { replaceSleep } from '../../../packages/host/test/support/replaced-sleep.js';
import { McpServer } from '../src/config.js';
import { Connection } from '../src/connection.js';

const SUBSCRIPTION = 'io.modelcontextprotocol/subscriptionId';
const SERVER_INFO = { 'io.modelcontextprotocol/serverInfo': { name: 'x', version: '1' } };
const COMPLETE = { resultType: 'complete', ttlMs: 0, cacheScope: 'private' };

/** A server of 2026-07-28 that reports changes of its tools. */
let server: Server;
let tools: string[];
/** Whether it sends something on streams of changes. */
let isSilent: boolean;
/** The streams of changes, in the order in which they were opened. */
let streams: { readonly id: string; readonly response: ServerResponse }[];
const connections: Connection[] = [];

beforeEach(async () => {
  tools = ['first'];
  isSilent = false;
  streams = [];
  server = createServer(async (request, response) => {
    const { id, method } = JSON.parse((await text(request)) || '{}');
    if (method === 'subscriptions/listen') return listen(id, response);
    const listed = tools.map((name) => ({ name, inputSchema: { type: 'object' } }));
    const result =
      method === 'server/discover'
        ? {
            supportedVersions: ['2026-07-28'],
            capabilities: { tools: { listChanged: true } },
            _meta: SERVER_INFO,
          }
        : { tools: listed };
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({ jsonrpc: '2.0', id, result: { ...COMPLETE, ...result } }));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
});

afterEach(async () => {
  for (const connection of connections.splice(0)) await connection.close();
  server.closeAllConnections();
  server.close();
});

function listen(id: string, response: ServerResponse): void {
  streams.push({ id, response });
  if (isSilent) return;
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  notify({ id, response }, 'subscriptions/acknowledged', {
    notifications: { toolsListChanged: true },
  });
}

function notify(stream: (typeof streams)[number] | undefined, name: string, params = {}): void {
  const method = `notifications/${name}`;
  const _meta = { [SUBSCRIPTION]: stream?.id };
  const message = { jsonrpc: '2.0', method, params: { ...params, _meta } };
  stream?.response.write(`data: ${JSON.stringify(message)}\n\n`);
}

function connect(options: { readonly isOwned?: boolean } = {}): Connection {
  const { port } = server.address() as AddressInfo;
  const fetch = createSafeFetch({ allow: ['127.0.0.1'] });
  const logger = { info() {}, warn() {}, error() {} };
  const connection = new Connection({
    name: 'modern',
    server: McpServer.parse({ url: `http://127.0.0.1:${port}/mcp`, timeoutMs: 5000 }),
    context: { fetch, logger },
    ...options,
  });
  connections.push(connection);
  return connection;
}

const listNames = async (connection: Connection) =>
  (await connection.tools()).map(({ name }) => name);

it('Connection sees changes of the tools, also after the stream that reports them has ended', async () => {
  const connection = connect();
  expect(await listNames(connection)).toEqual(['first']);
  tools = ['first', 'second'];
  notify(streams[0], 'tools/list_changed');
  await expect.poll(() => listNames(connection), { timeout: 20_000 }).toEqual(tools);
  streams[0]?.response.end();
  await expect.poll(() => streams.length, { timeout: 20_000 }).toBe(2);
  tools = ['third'];
  notify(streams[1], 'tools/list_changed');
  await expect.poll(() => listNames(connection), { timeout: 20_000 }).toEqual(tools);
});

it('Connection opens the stream of changes later each time it ends early, and soon after one that lasted', async () => {
  const delays = replaceSleep(async () => {});
  const connection = connect();
  await connection.tools();
  const end = async () => {
    tools = [`after ${streams.length}`];
    streams.at(-1)?.response.end();
    // It lists the tools once it listens again.
    await expect.poll(() => listNames(connection), { timeout: 20_000 }).toEqual(tools);
  };
  for (let ends = 0; ends < 3; ends++) await end();
  const now = performance.now.bind(performance);
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => now() + 60_000);
  onTestFinished(() => clock.mockRestore());
  await end();
  await expect.poll(() => delays, { timeout: 20_000 }).toEqual([500, 1000, 2000, 500]);
});

it('Connection works with a server whose stream of changes sends nothing', async () => {
  isSilent = true;
  expect(await listNames(connect())).toEqual(['first']);
  expect(streams).toHaveLength(1);
});

it('Connection of a user opens no stream of changes', async () => {
  expect(await listNames(connect({ isOwned: true }))).toEqual(['first']);
  expect(streams).toHaveLength(0);
});
