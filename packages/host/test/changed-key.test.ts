import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { defineTool } from '@sibyl/plugin-kit';
import { Approval, buildDecisionClaims } from '@sibyl/protocol';
import { mintDelegation } from '@sibyl/ucan';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import {
  type HttpMcpServer,
  startHttpServer,
} from '../../../plugins/mcp/test/support/http-server.js';
import { type ControlledModel, startControlledModel } from './support/controlled-model.js';
import { startHost, type TestHost } from './support/host.js';
import { testPlugin } from './support/plugin.js';
import { openSession, stream } from './support/stream.js';
import { createTestDatabase, engines, type TestDatabase } from './support/test-database.js';
import { TestUser } from './support/user.js';

const ran: string[] = [];
const bank = testPlugin('bank', {
  getTools: () => [
    defineTool({
      name: 'transfer',
      description: 'Transfers.',
      inputSchema: z.object({ to: z.string() }),
      needsApproval: true,
      run: ({ to }) => void ran.push(to),
    }),
  ],
});

let model: ControlledModel;
let server: HttpMcpServer;

beforeAll(async () => {
  model = await startControlledModel();
  server = await startHttpServer();
});

afterAll(async () => {
  model?.close();
  await server?.close();
});

async function sign(user: TestUser, { id, args }: Approval, decision: 'approve' | 'deny') {
  const { did } = user.host;
  const nb = await buildDecisionClaims({ id, decision, originalArgs: args });
  const minted = mintDelegation({
    signer: user.signer,
    audience: did,
    capabilities: [{ can: 'oracle/approve', with: `ixo:oracle:${did}`, nb: nb as never }],
    expiration: Math.floor(Date.now() / 1000) + 120,
    nonce: crypto.randomUUID(),
  });
  return { decision, invocation: minted.ok?.token ?? '' };
}

async function requestApproval(user: TestUser): Promise<Approval> {
  const sessionId = await openSession(user);
  const live = await stream(user, sessionId, { message: 'Transfer' });
  (await model.next()).call({ name: 'transfer', input: { to: 'bob' } });
  await live.toEnd();
  const { body } = await user.request('GET', `/approvals?sessionId=${sessionId}`);
  return body.approvals[0];
}

describe.each(engines)('after the key of the oracle has changed, on %s', (engine) => {
  let database: TestDatabase;
  let dataDir: string;
  let host: TestHost;

  beforeEach(async () => {
    database = await createTestDatabase(engine);
    dataDir = await mkdtemp(join(tmpdir(), 'sibyl-key-'));
    host = await start('the first key');
  });

  afterEach(async () => {
    await host?.close();
    await database?.drop();
    await rm(dataDir, { recursive: true, force: true });
    ran.splice(0);
  });

  const start = (mnemonic: string) =>
    startHost({
      plugins: [bank],
      hasTwins: false,
      env: {
        ...model.env,
        ...database.env,
        DATA_DIR: dataDir,
        ORACLE_DID: 'did:web:oracle.invalid',
        ORACLE_MNEMONIC: mnemonic,
        MCP_USER_SERVERS: 'true',
        MCP_USER_SERVERS_ALLOW: '127.0.0.1',
      },
    });

  async function changeKey() {
    await host.close();
    host = await start('the second key');
  }

  it('GET /mcp/servers says which servers must be added again, and the others work', async () => {
    const before = new TestUser(host);
    const add = (user: TestUser, name: string, headers = {}) =>
      user.request('POST', '/mcp/servers', { body: { name, url: server.url, headers } });
    await add(before, 'plain');
    await add(before, 'secret', { 'x-api-key': 'secret' });
    await changeKey();
    const user = before.at(host);
    const list = async () => (await user.request('GET', '/mcp/servers')).body.servers;
    const ready = { own: true, url: server.url, state: 'ready', tools: expect.any(Number) };
    const problem = expect.stringContaining('remove the server and add it again');
    await expect.poll(list).toEqual([
      { ...ready, name: 'plain' },
      { name: 'secret', own: true, url: server.url, state: 'unavailable', problem },
    ]);
    const live = await stream(user, await openSession(user), { message: 'Go' });
    const asked = await model.next();
    expect(asked.tools.some((name) => name.startsWith('plain__'))).toBe(true);
    expect(asked.notes.join()).toMatch(/MCP server secret: .*remove the server and add it again/);
    asked.answer('ok');
    await live.toEnd();
    const signIn = await user.request('POST', '/mcp/servers/secret/sign-in');
    expect([signIn.status, signIn.body.code, signIn.body.message]).toEqual([
      409,
      'key_changed',
      problem,
    ]);
    expect((await user.request('DELETE', '/mcp/servers/secret')).status).toBe(200);
    expect((await add(user, 'secret', { 'x-api-key': 'secret' })).status).toBe(201);
    await expect.poll(list).toContainEqual({ ...ready, name: 'secret' });
  });

  it('POST /approvals/:id refuses to approve arguments that cannot be read; they can be denied', async () => {
    const before = new TestUser(host);
    const { id } = await requestApproval(before);
    await changeKey();
    const user = before.at(host);
    const { body } = await user.request('GET', '/approvals');
    const approval = Approval.parse(body.approvals[0]);
    expect(approval).toMatchObject({ id, status: 'pending', args: {} });
    const decide = async (decision: 'approve' | 'deny') =>
      user.request('POST', `/approvals/${id}`, { body: await sign(user, approval, decision) });
    const approved = await decide('approve');
    expect([approved.status, approved.body.code]).toEqual([409, 'key_changed']);
    expect((await decide('deny')).body).toMatchObject({ id, status: 'denied' });
    expect(ran).toEqual([]);
  });

  it('GET /approvals/:id/receipt says that the receipt cannot be read', async () => {
    const before = new TestUser(host);
    const approval = await requestApproval(before);
    const { id } = approval;
    const decided = await before.request('POST', `/approvals/${id}`, {
      body: await sign(before, approval, 'approve'),
    });
    expect(decided.status).toBe(200);
    (await model.next()).answer('Done.');
    expect((await before.request('GET', `/approvals/${id}/receipt`)).status).toBe(200);
    await changeKey();
    const { status, body } = await before.at(host).request('GET', `/approvals/${id}/receipt`);
    expect([status, body.code]).toEqual([409, 'key_changed']);
  });
});
