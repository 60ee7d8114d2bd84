import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer, request as forward, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import {
  type ControlledModel,
  startControlledModel,
} from '../../../packages/host/test/support/controlled-model.js';
import { findFreePort } from '../../../packages/host/test/support/free-port.js';
import { startHost, type TestHost } from '../../../packages/host/test/support/host.js';
import { openSession, stream } from '../../../packages/host/test/support/stream.js';
import { TestUser } from '../../../packages/host/test/support/user.js';

/** The published reference server, which has every feature. */
const EVERYTHING = fileURLToPath(
  import.meta.resolve('@modelcontextprotocol/server-everything/dist/index.js'),
);
const ECHO = { name: 'every__echo', input: { message: 'hi' } };

let model: ControlledModel;
const open: (() => unknown)[] = [];

beforeAll(async () => {
  model = await startControlledModel();
});

afterAll(() => model.close());

afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close();
});

async function startEverything(transport: 'streamableHttp' | 'sse', port: number) {
  const child = spawn(process.execPath, [EVERYTHING, transport], {
    env: { ...process.env, PORT: String(port) },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  open.push(() => stop(child));
  // Both print that they listen to stderr.
  for await (const text of child.stderr.iterator({ destroyOnReturn: false }))
    if (/running on port|listening on port/.test(String(text))) break;
  child.stderr.resume();
  return child;
}

async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill('SIGKILL');
  await once(child, 'exit');
}

/** Passes requests on, and records the methods of the messages. */
async function startProxy(port: number): Promise<{ url: string; methods: string[] }> {
  const methods: string[] = [];
  const proxy: Server = createServer(async (request, response) => {
    const body = await buffer(request);
    if (body.length > 0) methods.push(JSON.parse(body.toString()).method);
    const { method, url, headers } = request;
    const options = { host: '127.0.0.1', port, method, path: url, headers, agent: false };
    const outgoing = forward(options, (reply) => {
      response.writeHead(reply.statusCode ?? 502, reply.headers);
      reply.pipe(response);
    });
    outgoing.on('error', () => response.destroy());
    response.on('close', () => outgoing.destroy());
    outgoing.end(body);
  }).listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  open.push(() => {
    proxy.closeAllConnections();
    proxy.close();
  });
  const { port: own } = proxy.address() as AddressInfo;
  return { url: `http://127.0.0.1:${own}/mcp`, methods };
}

async function startOracle(every: object): Promise<{ host: TestHost; user: TestUser }> {
  const MCP_SERVERS = JSON.stringify({ every: { timeoutMs: 60_000, ...every } });
  const host = await startHost({
    env: { ...model.env, MCP_SERVERS, OUTGOING_ALLOW: '127.0.0.1' },
  });
  open.push(() => host.close());
  const user = new TestUser(host);
  const readState = async () => (await user.request('GET', '/mcp/servers')).body.servers[0].state;
  await expect.poll(readState).toBe('ready');
  return { host, user };
}

/** Sends a message; the model calls a tool. */
async function use(user: TestUser, call: { name: string; input: object }) {
  const reply = await stream(user, await openSession(user), { message: 'Go' });
  const asked = await model.next();
  expect(asked.tools).toContain(call.name);
  asked.call(call);
  const after = await model.next();
  after.answer('ok');
  await reply.toEnd();
  return { result: after.results[0] ?? '', tools: asked.tools, frames: reply.frames };
}

describe('server-everything', () => {
  it.each(['streamableHttp', 'sse'] as const)(
    'works again at once after it was restarted between two calls (%s)',
    async (transport) => {
      const port = await findFreePort();
      const first = await startEverything(transport, port);
      const path = transport === 'sse' ? 'sse' : 'mcp';
      const { user } = await startOracle({ url: `http://127.0.0.1:${port}/${path}` });
      expect((await use(user, ECHO)).result).toBe('"Echo: hi"');
      await stop(first);
      await startEverything(transport, port);
      expect((await use(user, ECHO)).result).toBe('"Echo: hi"');
    },
  );

  it('cancels a call on the server when the turn is stopped', async () => {
    const port = await findFreePort();
    await startEverything('streamableHttp', port);
    const { url, methods } = await startProxy(port);
    const { user } = await startOracle({ url });
    const sessionId = await openSession(user);
    const reply = await stream(user, sessionId, { message: 'Go' });
    const asked = await model.next();
    asked.call({
      name: 'every__trigger-long-running-operation',
      input: { duration: 600, steps: 600 },
    });
    await expect.poll(() => methods).toContain('tools/call');
    await user.request('POST', '/messages/abort', { body: { sessionId } });
    await reply.toEnd();
    await expect.poll(() => methods).toContain('notifications/cancelled');
    expect((await use(user, ECHO)).result).toBe('"Echo: hi"');
  });

  it('offers its images, resources, prompts and questions over stdio', async () => {
    const { user, host } = await startOracle({ command: process.execPath, args: [EVERYTHING] });
    const image = await use(user, { name: 'every__get-tiny-image', input: {} });
    expect(JSON.parse(image.result)).toContainEqual(
      expect.stringMatching(/^\[image\/png, \d+ bytes\]/),
    );
    const server = 'every';
    const listed = await use(user, { name: 'mcp_list_resources', input: { server } });
    const [resource] = JSON.parse(listed.result).resources;
    const read = await use(user, {
      name: 'mcp_read_resource',
      input: { server, uri: resource.uri },
    });
    expect(read.result.length).toBeGreaterThan(10);
    const prompts = await use(user, { name: 'mcp_list_prompts', input: { server } });
    expect(JSON.parse(prompts.result).prompts.length).toBeGreaterThan(0);
    const asked = await use(user, { name: 'every__trigger-elicitation-request', input: {} });
    expect(asked.result).toContain('declined');
    expect(host.log).toContainEqual(expect.objectContaining({ msg: 'stderr of an MCP server' }));
  });
});
