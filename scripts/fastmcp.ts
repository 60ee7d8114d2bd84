// Signs a user in at a FastMCP server with OAuth, through a real host: its tool works for that user and not for another.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { json } from 'node:stream/consumers';
import { MAIN } from './build.ts';
import {
  type CheckContext,
  createUser,
  getVenv,
  runCheck,
  startForeign,
  startService,
} from './third-party.ts';

const FASTMCP = { name: 'fastmcp', version: '4.1.0' };
const PUBLIC_URL = 'https://oracle.example';

/** Starts everything; returns the address of the host. */
async function startAll(context: CheckContext): Promise<string> {
  const { folder, started } = context;
  const model = await listen(createServer(answerAsModel));
  started.push(() => model.server.close());
  const { url: vault } = await startForeign(context, {
    command: join(getVenv(FASTMCP), 'bin/python'),
    args: (port) => ['scripts/conformance/fastmcp-server.py', String(port)],
    path: '/mcp',
  });
  const host = await startService([MAIN], {
    PORT: '0',
    DATA_DIR: folder,
    PUBLIC_URL,
    OUTGOING_ALLOW: '127.0.0.1',
    MODEL: 'openai-compatible/adder',
    MODEL_BASE_URL: `http://127.0.0.1:${model.port}/v1`,
    MCP_SERVERS: JSON.stringify({ vault: { url: `${vault}/mcp`, oauth: true } }),
  });
  started.push(() => host.stop());
  return host.url;
}

async function checkSignIn(url: string): Promise<void> {
  const [alice, bob] = [await createUser(url), await createUser(url)];
  assert.equal(await add(alice), 'no tool');
  const started = await alice.send('POST', '/mcp/servers/vault/sign-in', {});
  const code = await openInBrowser(started.url, url);
  const foreign = await bob.send('POST', '/mcp/servers/vault/sign-in/confirm', { code });
  assert.equal(foreign.statusCode, 400);
  await alice.send('POST', '/mcp/servers/vault/sign-in/confirm', { code });
  assert.match(await add(alice), /42/);
  assert.equal(await add(bob), 'no tool');
  const { servers } = await bob.send('GET', '/mcp/servers');
  assert.equal(servers[0].state, 'sign_in_required');
}

/** Follows the redirects of the authorization server back to the host; returns the code on its page. */
async function openInBrowser(address: string, hostUrl: string): Promise<string> {
  let next = address;
  for (let hops = 0; hops < 5; hops += 1) {
    const response = await fetch(next.replace(PUBLIC_URL, hostUrl), { redirect: 'manual' });
    const location = response.headers.get('location');
    const page = await response.text();
    if (!location) return /<code>(.*)<\/code>/.exec(page)?.[1] ?? assert.fail(page);
    next = new URL(location, next).href;
  }
  return assert.fail('too many redirects');
}

const add = async (user: Awaited<ReturnType<typeof createUser>>): Promise<string> =>
  (await user.ask('Add 20 and 22')).message.content;

interface ChatRequest {
  readonly messages: readonly { readonly role: string; readonly content: string }[];
  readonly tools?: readonly { readonly function: { readonly name: string } }[];
}

/** A model that calls the tool if it has it, and repeats the result. */
async function answerAsModel(request: IncomingMessage, response: ServerResponse): Promise<void> {
  // The host asks for the model's limits first, which this one does not publish.
  if (request.method !== 'POST') return void response.writeHead(404).end();
  const { messages, tools = [] } = (await json(request)) as ChatRequest;
  const last = messages.at(-1);
  const hasTool = tools.some(({ function: { name } }) => name === 'vault__add');
  const call = {
    index: 0,
    id: 'call_1',
    type: 'function',
    function: { name: 'vault__add', arguments: '{"a":20,"b":22}' },
  };
  const isResult = last?.role === 'tool';
  const content = isResult ? last.content : 'no tool';
  const delta = hasTool && !isResult ? { tool_calls: [call] } : { content };
  const finish_reason = 'tool_calls' in delta ? 'tool_calls' : 'stop';
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  response.write(`data: ${JSON.stringify({ choices: [{ index: 0, delta }] })}\n\n`);
  const end = { choices: [{ index: 0, delta: {}, finish_reason }] };
  response.end(`data: ${JSON.stringify(end)}\n\ndata: [DONE]\n\n`);
}

async function listen(server: Server): Promise<{ server: Server; port: number }> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { server, port: (server.address() as AddressInfo).port };
}

process.exitCode = await runCheck('FastMCP', FASTMCP, async (context) => {
  await checkSignIn(await startAll(context));
  console.log('FastMCP: the tool works for the user who signed in, and not for another');
});
