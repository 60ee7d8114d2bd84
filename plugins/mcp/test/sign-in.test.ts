import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import {
  type ControlledModel,
  startControlledModel,
} from '../../../packages/host/test/support/controlled-model.js';
import { startHost, type TestHost } from '../../../packages/host/test/support/host.js';
import { openSession, stream } from '../../../packages/host/test/support/stream.js';
import { TestUser } from '../../../packages/host/test/support/user.js';
import { buildToolName } from '../src/server-tools.js';
import { type ProtectedServer, startProtectedServer } from './support/protected-server.js';

const PUBLIC_URL = 'https://oracle.example';
const ADD = buildToolName('vault', 'add.numbers');
const SIGN_IN = '/mcp/servers/vault/sign-in';

let server: ProtectedServer;
let modern: ProtectedServer;
let model: ControlledModel;
let host: TestHost;

beforeAll(async () => {
  model = await startControlledModel();
  server = await startProtectedServer();
  modern = await startProtectedServer({
    readClient: async (url) => (await fetch(url.replace(PUBLIC_URL, host.url))).json(),
  });
  const servers = {
    vault: { url: server.url, oauth: true, timeoutMs: 20_000 },
    modern: { url: modern.url, oauth: true, timeoutMs: 20_000 },
  };
  const MCP_SERVERS = JSON.stringify(servers);
  host = await startHost({
    env: { ...model.env, MCP_SERVERS, PUBLIC_URL, OUTGOING_ALLOW: '127.0.0.1' },
  });
});

afterAll(async () => {
  await host?.close();
  model?.close();
  await server?.close();
  await modern?.close();
});

afterEach(() => server.calls.splice(0));

/** Opens the address as a browser does, and returns the page that the user sees at the end. */
async function openInBrowser(
  address: string,
  hostUrl = host.url,
): Promise<{ status: number; html: string }> {
  const { headers } = await fetch(address, { redirect: 'manual' });
  const callback = headers.get('location') ?? '';
  expect(callback).toMatch(/^https:\/\/oracle\.example\/mcp\/callback\?/);
  const page = await fetch(callback.replace(PUBLIC_URL, hostUrl));
  return { status: page.status, html: await page.text() };
}

const readCode = (html: string) => /<code>([A-Z0-9-]+)<\/code>/.exec(html)?.[1] ?? '';

async function start(user: TestUser, path = SIGN_IN): Promise<string> {
  const { status, body } = await user.request('POST', path);
  expect(status).toBe(200);
  return body.url;
}

async function signIn(user: TestUser, path = SIGN_IN): Promise<void> {
  const { html } = await openInBrowser(await start(user, path));
  const { status } = await user.request('POST', `${path}/confirm`, {
    body: { code: readCode(html) },
  });
  expect(status).toBe(200);
}

const readState = async (user: TestUser, name = 'vault') => {
  const { body } = await user.request('GET', '/mcp/servers');
  return body.servers.find((one: { name: string }) => one.name === name).state;
};

/** Sends a message; the model calls tools, and the results come back. */
async function talk(user: TestUser, ...calls: { name: string; input: object }[]) {
  // A turn waits only briefly for a server that is not connected.
  const readStates = async () =>
    (await user.request('GET', '/mcp/servers')).body.servers.map(
      ({ state }: { state: string }) => state,
    );
  await expect.poll(readStates).not.toContain('unavailable');
  const reply = await stream(user, await openSession(user), { message: 'Go' });
  const asked = await model.next();
  if (calls.length === 0) asked.answer('ok');
  else asked.call(...calls);
  const after = calls.length === 0 ? asked : await model.next();
  if (calls.length > 0) after.answer('ok');
  await reply.toEnd();
  return { tools: asked.tools, notes: asked.notes.join(), results: after.results };
}

const add = { name: ADD, input: { a: 20, b: 22 } };

describe('a server with OAuth', () => {
  it('works for the user who signed in, and not for another', async () => {
    const [alice, bob] = [new TestUser(host), new TestUser(host)];
    const before = await talk(alice);
    expect(before.tools).toContain('mcp_sign_in');
    expect(before.tools).not.toContain(ADD);
    expect(before.notes).toContain('MCP server vault: the user has to sign in first');
    await signIn(alice);
    expect(await readState(alice)).toBe('ready');
    const { results } = await talk(alice, add);
    expect(results).toEqual(['"42"']);
    expect(await readState(bob)).toBe('sign_in_required');
    const foreign = await talk(bob);
    expect(foreign.tools).toContain('mcp_sign_in');
    expect(foreign.tools).not.toContain(ADD);
    expect(server.calls).toHaveLength(1);
  });

  it('asks for the sign-in again if the key of the oracle has changed', async () => {
    const user = new TestUser(host);
    await signIn(user);
    await start(user);
    const database = new DatabaseSync(`${host.dataDir}/sibyl.db`, { timeout: 10_000 });
    database.prepare(`update secrets set ciphertext = 'v1.' where owner = ?`).run(user.did);
    database.close();
    expect(await readState(user)).toBe('sign_in_required');
    const confirmed = await user.request('POST', `${SIGN_IN}/confirm`, { body: { code: 'ABCD' } });
    expect([confirmed.status, confirmed.body.code]).toEqual([400, 'bad_request']);
    await signIn(user);
    expect(await readState(user)).toBe('ready');
  });

  it('is signed in at in a chat, with the tool mcp_sign_in', async () => {
    const user = new TestUser(host);
    const started = await talk(user, { name: 'mcp_sign_in', input: { server: 'vault' } });
    const address = /http:\/\/127\.0\.0\.1\S+/.exec(JSON.parse(started.results[0] ?? ''))?.[0];
    const { html } = await openInBrowser(address ?? '');
    const code = readCode(html).toLowerCase().replaceAll('-', ' ');
    const input = { server: 'vault', code };
    const finished = await talk(user, { name: 'mcp_sign_in', input });
    expect(finished.results[0]).toContain('is signed in');
    expect((await talk(user, add)).results).toEqual(['"42"']);
  });

  it('gives nothing to a user who sends the address of a sign-in to another person', async () => {
    const mallory = new TestUser(host);
    const { html } = await openInBrowser(await start(mallory));
    expect(html).toContain('If you did not start this sign-in yourself');
    expect(await readState(mallory)).toBe('sign_in_required');
    const guess = { body: { code: 'AAAA-AAAA-AAAA' } };
    const { status } = await mallory.request('POST', `${SIGN_IN}/confirm`, guess);
    expect(status).toBe(400);
    const stolen = { body: { code: readCode(html) } };
    const other = await new TestUser(host).request('POST', `${SIGN_IN}/confirm`, stolen);
    expect(other.status).toBe(400);
  });

  it('accepts a callback once, and only with a state that it issued', async () => {
    const address = await start(new TestUser(host));
    const { headers } = await fetch(address, { redirect: 'manual' });
    const callback = (headers.get('location') ?? '').replace(PUBLIC_URL, host.url);
    const forged = new URL(callback);
    forged.searchParams.set('state', 'x');
    expect((await fetch(forged)).status).toBe(400);
    expect((await fetch(callback)).status).toBe(200);
    const again = await fetch(callback);
    expect(again.status).toBe(400);
    expect(again.headers.get('content-security-policy')).toContain("default-src 'none'");
    expect(await again.text()).toContain('expired');
  });

  it('refreshes a token once for calls at the same time', async () => {
    const user = new TestUser(host);
    await signIn(user);
    await talk(user, add);
    const before = server.refreshes;
    server.expire();
    const second = { name: ADD, input: { a: 1, b: 1 } };
    const { results } = await talk(user, add, second, { name: ADD, input: { a: 1, b: 2 } });
    expect(results).toEqual(['"42"', '"2"', '"3"']);
    expect(server.refreshes).toBe(before + 1);
  });

  it('asks for a new sign-in once the grant was revoked', async () => {
    const user = new TestUser(host);
    await signIn(user);
    await talk(user, add);
    server.expire({ revoke: true });
    const { results } = await talk(user, add);
    expect(results[0]).toContain('The user has to sign in at vault');
    expect(await readState(user)).toBe('sign_in_required');
    await signIn(user);
    expect((await talk(user, add)).results).toEqual(['"42"']);
  });

  it('DELETE /mcp/servers/:name/sign-in forgets the grant', async () => {
    const user = new TestUser(host);
    await signIn(user);
    expect(await readState(user)).toBe('ready');
    expect((await user.request('DELETE', SIGN_IN)).status).toBe(200);
    expect(await readState(user)).toBe('sign_in_required');
  });

  it('that knows metadata documents takes the address of this host as client id', async () => {
    const user = new TestUser(host);
    await signIn(user, '/mcp/servers/modern/sign-in');
    expect(await readState(user, 'modern')).toBe('ready');
    expect([...modern.clients.keys()]).toEqual([`${PUBLIC_URL}/mcp/client.json`]);
    const [registered] = server.clients.values();
    expect(registered).toMatchObject({ redirect_uris: [`${PUBLIC_URL}/mcp/callback`] });
  });

  it('is unknown under another name', async () => {
    const { status } = await new TestUser(host).request('POST', '/mcp/servers/other/sign-in');
    expect(status).toBe(404);
  });
});

it('a grant is never sent to another server that gets the same name', async () => {
  const dataDir = await mkdtemp(join(tmpdir(), 'sibyl-mcp-'));
  const other = await startProtectedServer();
  const start = (url: string) =>
    startHost({
      env: {
        ...model.env,
        DATA_DIR: dataDir,
        MCP_SERVERS: JSON.stringify({ vault: { url, oauth: true } }),
        PUBLIC_URL,
        OUTGOING_ALLOW: '127.0.0.1',
      },
    });
  const first = await start(server.url);
  const user = new TestUser(first);
  const { body } = await user.request('POST', SIGN_IN);
  const { html } = await openInBrowser(body.url, first.url);
  await user.request('POST', `${SIGN_IN}/confirm`, { body: { code: readCode(html) } });
  expect(await readState(user)).toBe('ready');
  await first.close();
  const moved = await start(other.url);
  expect(await readState(user.at(moved))).toBe('sign_in_required');
  expect(other.seen.size).toBe(0);
  await moved.close();
  const back = await start(server.url);
  expect(await readState(user.at(back))).toBe('ready');
  await back.close();
  await other.close();
  await rm(dataDir, { recursive: true });
});
