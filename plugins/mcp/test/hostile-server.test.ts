import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { createSafeFetch } from '@sibyl/safe-fetch';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { McpServer } from '../src/config.js';
import { Connection, type McpTool } from '../src/connection.js';
import { fetchDocument } from '../src/open-client.js';
import { readCallResult } from '../src/server-tools.js';

const deep = (depth: number) => '['.repeat(depth) + ']'.repeat(depth);
const buildText = (length: number) => `{"type": "text", "text": "${'x'.repeat(length)}"}`;

/** Tool → what it answers, as JSON text that no SDK would write. */
const results: Readonly<Record<string, string>> = {
  fine: `{"content": [${buildText(2)}]}`,
  failing: `{"isError": true, "content": [${buildText(1_000_000)}]}`,
  'nested text': `{"content": [{"type": "text", "text": ${deep(10_000)}}]}`,
  'no list': '{"content": {"length": 1}}',
  'no resource': '{"content": [{"type": "resource"}]}',
  nothing: 'null',
  'a number': '7',
  'too much': `{"content": [${buildText(6_000_000)}]}`,
  'no JSON': '{"content":',
  'full of values': `{"content": [], "structuredContent": {"rows": [${'[],'.repeat(60_000)}0]}}`,
  'behind many notifications': `{"content": [${buildText(2)}]}`,
  'behind many requests': `{"content": [${buildText(2)}]}`,
  'behind many questions': `{"content": [${buildText(2)}]}`,
  'behind canceled requests': `{"content": [${buildText(2)}]}`,
  'behind an invalid message': `{"content": [${buildText(2)}]}`,
};

const FINE = [
  'fine',
  'behind many questions',
  'behind canceled requests',
  'behind an invalid message',
];

/** Tool → what a stream contains before its answer. */
const streams: Readonly<Record<string, string>> = {
  'behind many notifications': 'data: {"jsonrpc": "2.0", "method": "notifications/x"}\n\n'.repeat(
    5_000,
  ),
  // Few enough messages.
  'behind many requests': 'data: {"jsonrpc": "2.0", "id": 1, "method": "ping"}\n\n'.repeat(800),
  'behind many questions': `data: ${JSON.stringify({
    jsonrpc: '2.0',
    id: 1,
    method: 'elicitation/create',
    params: { message: 'Which?', requestedSchema: { type: 'object', properties: {} } },
  })}\n\n`.repeat(100),
  'behind canceled requests': Array.from({ length: 100 }, (_, id) =>
    [
      { id, method: 'ping' },
      { method: 'notifications/cancelled', params: { requestId: id } },
    ]
      .map((message) => `data: ${JSON.stringify({ jsonrpc: '2.0', ...message })}\n\n`)
      .join(''),
  ).join(''),
  // An error would name each of its fields.
  'behind an invalid message': `data: ${JSON.stringify({
    jsonrpc: '2.0',
    method: 'notifications/x',
    ...Object.fromEntries(Array.from({ length: 20_000 }, (_, i) => [`field ${i}`, 0])),
  })}\n\n`,
};
/** What the client answered to them. */
let pongs = 0;

const replies: Readonly<Record<string, (params: { name: string }) => string | undefined>> = {
  initialize: () =>
    '{"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}',
  'tools/list': () =>
    list() ??
    JSON.stringify({
      tools: Object.keys(results).map((name) => ({ name, inputSchema: { type: 'object' } })),
    }),
  'tools/call': ({ name }) => results[name],
};

/** What is listed instead of the tools, page after page. */
let list: () => string | undefined = () => undefined;
let server: Server;
let connection: Connection;
let logged: object[] = [];

beforeEach(async () => {
  server = createServer(async (request, response) => {
    const { id, method, params, ...sent } = JSON.parse((await text(request)) || '{}');
    if (sent.result) pongs += 1;
    if (id === undefined || sent.result) return void response.writeHead(202).end();
    const result = replies[method]?.(params);
    const unknown = '"error": {"code": -32601, "message": "no such method"}';
    const answer = `{"jsonrpc": "2.0", "id": ${JSON.stringify(id)}, ${result ? `"result": ${result}` : unknown}}`;
    const before = streams[params?.name];
    response.setHeader('content-type', before ? 'text/event-stream' : 'application/json');
    response.end(before ? `${before}data: ${answer}\n\n` : answer);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  connection = connect(5000);
  logged = [];
});

function connect(timeoutMs: number, { isOwned = false } = {}): Connection {
  const { port } = server.address() as AddressInfo;
  const fetch = createSafeFetch({ allow: ['127.0.0.1'] });
  const log = (line: object) => void logged.push(line);
  const logger = { info: log, warn: log, error: log };
  return new Connection({
    name: 'hostile',
    server: McpServer.parse({ url: `http://127.0.0.1:${port}/mcp`, timeoutMs }),
    context: { fetch, logger },
    isOwned,
  });
}

afterEach(async () => {
  await connection.close();
  server.closeAllConnections();
  server.close();
});

const call = async (name: string) => {
  const tool = { name, inputSchema: { type: 'object' } } as McpTool;
  const scope = { signal: new AbortController().signal };
  return readCallResult(await connection.call(tool, {}, scope));
};

describe('an answer that is', () => {
  it.each(Object.keys(results).filter((name) => !FINE.includes(name)))(
    '%s costs its call alone',
    async (name) => {
      connection = connect(5000, { isOwned: true });
      await connection.tools();
      await expect(call(name)).rejects.toThrow();
      await expect(connection.tools()).resolves.toHaveLength(Object.keys(results).length);
      await expect(call('fine')).resolves.toBe('xx');
    },
  );
});

it.each(['too much', 'full of values', 'behind many notifications'])(
  'Connection.call says what to do about an answer that is %s, and keeps the connection',
  async (name) => {
    await connection.tools();
    const message =
      'hostile answered with more than 4 MiB or 50000 JSON values; the call may have had its effect. Ask for less, such as fewer entries or fields';
    await expect(call(name)).rejects.toThrow(message);
    await expect(call('fine')).resolves.toBe('xx');
  },
);

it('Connection continues a stream that always ends only a few times a second', async () => {
  let continued = 0;
  server.removeAllListeners('request').on('request', ({ headers }, response) => {
    if (headers['last-event-id']) continued += 1;
    response.setHeader('content-type', 'text/event-stream');
    response.end(`id: ${continued}\nretry: 0\ndata: \n\n`);
  });
  const hasty = connect(1200);
  await expect(hasty.tools()).rejects.toThrow();
  expect(continued).toBeGreaterThan(1);
  expect(continued).toBeLessThan(10);
});

it('Connection.call answers few of very many requests of a server of one user', async () => {
  connection = connect(5000, { isOwned: true });
  await connection.tools();
  pongs = 0;
  await expect(call('behind many requests')).rejects.toThrow();
  expect(pongs).toBeLessThan(40);
});

it('Connection.call keeps the connection of a server that asks many users at the same time', async () => {
  await connection.tools();
  await expect(call('behind many questions')).resolves.toBe('xx');
});

it('Connection.call does not count requests that the server has canceled', async () => {
  await connection.tools();
  await expect(call('behind canceled requests')).resolves.toBe('xx');
});

it('Connection logs no more than the beginning of an error about an invalid message', async () => {
  await connection.tools();
  await expect(call('behind an invalid message')).resolves.toBe('xx');
  expect(logged).toEqual([{ server: 'hostile', reason: expect.stringMatching(/^.{2000}$/s) }]);
});

it('Connection.tools keeps no more than 1 MB of a list that never ends', async () => {
  let pages = 0;
  list = () => {
    const tools = Array.from({ length: 10 }, (_, i) => ({
      name: `tool-${pages}-${i}`,
      description: 'x'.repeat(50_000),
      inputSchema: { type: 'object' },
    }));
    return JSON.stringify({ tools, nextCursor: `page ${pages++}` });
  };
  const tools = await connection.tools();
  list = () => undefined;
  expect(tools.length).toBeGreaterThan(10);
  expect(JSON.stringify(tools).length).toBeLessThan(1.1 * 1024 ** 2);
  expect(pages).toBeLessThan(5);
});

describe('a document about signing in', () => {
  const fetchText = (body: string) =>
    fetchDocument(async () => new Response(body, { status: 404 }), 'https://mcp.example', {});
  const letters = String.fromCodePoint(...Array.from({ length: 600 }, (_, i) => 0x4e00 + i));
  const withServers = (...authorization_servers: unknown[]) =>
    JSON.stringify({ resource: 'https://mcp.example', authorization_servers });

  it.each([withServers('https://auth.example'), 'not found', ''])(
    '%j is passed on',
    async (body) => {
      const response = await fetchText(body);
      expect([response.status, await response.text()]).toEqual([404, body]);
    },
  );

  it.each([
    ['with a very long host', withServers(`https://${letters}`)],
    [
      'with a very long host beside deep lists',
      `{"a": ${deep(50_000)}, "b": "https://${letters}"}`,
    ],
  ])('%s is refused: it would take long to parse', async (_, body) => {
    await expect(fetchText(body)).rejects.toThrow('too long');
  });

  it('is limited in size', async () => {
    const limits: unknown[] = [];
    const fetch = async (_: unknown, init: object = {}) => {
      limits.push(init);
      return new Response('{}');
    };
    await fetchDocument(fetch, 'https://mcp.example', { timeoutMs: 5 });
    expect(limits).toEqual([{ timeoutMs: 5, maxBytes: 128 * 1024 }]);
  });
});
