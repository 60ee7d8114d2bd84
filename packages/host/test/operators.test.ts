import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readdir } from 'node:fs/promises';
import { createServer, request as httpRequest } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createServer as createTcpServer } from 'node:net';
import { join } from 'node:path';
import { generateSigner } from '@sibyl/ucan';
import { afterEach, beforeAll, describe, expect, it } from 'vitest';
import { startControlledModel } from './support/controlled-model.js';
import { findFreePort } from './support/free-port.js';
import { startHost, type TestHost, type TestHostOptions } from './support/host.js';
import { createSchedule, readRuns } from './support/schedules.js';
import { joinSession } from './support/session-socket.js';
import { openSession, stream } from './support/stream.js';
import { TestUser } from './support/user.js';

const signer = generateSigner();
let host: TestHost | undefined;
afterEach(async () => {
  await host?.close();
  host = undefined;
});

async function start({ env, ...options }: TestHostOptions = {}) {
  const started = await startHost({
    hasTwins: false,
    ...options,
    env: { OPERATORS: signer.did, ...env },
  });
  host = started;
  const operator = new TestUser(started, signer);
  const read = async (path: string) => (await operator.request('GET', `/operator/${path}`)).body;
  return { host: started, operator, read, alice: new TestUser(started) };
}

/** Answers every call of the model with this status. */
async function startRefusingModel(status: number, message: string) {
  const server = createServer((_, response) => {
    response.writeHead(status, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ error: { message, code: 'some_code' } }));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}/v1`, close: () => server.close() };
}

const useModel = (url: string) => ({
  MODEL: 'openai-compatible/test',
  MODEL_BASE_URL: url,
  MODEL_API_KEY: 'sk-secret-key-of-the-operator',
});

/** More than the buffers of a connection hold. */
const DOWNLOAD_BYTES = 40 * 1024 * 1024;

const sendMessage = async (user: TestUser, message = 'hello') =>
  user.request('POST', `/messages/${await openSession(user)}`, { body: { message } });

describe('access to /operator', () => {
  let routes: { method: string; path: string }[] = [];
  beforeAll(async () => {
    const { host: listed } = await start();
    const document = (await (await fetch(`${listed.url}/docs/openapi.json`)).json()) as {
      paths: Record<string, Record<string, unknown>>;
    };
    routes = Object.entries(document.paths)
      .filter(([path]) => path.startsWith('/operator'))
      .flatMap(([path, methods]) =>
        Object.keys(methods).map((method) => ({ method: method.toUpperCase(), path })),
      );
    await listed.close();
    host = undefined;
  });

  it('every route of the OpenAPI document answers 403 without information to everyone else', async () => {
    expect(routes.length).toBeGreaterThanOrEqual(11);
    const { alice, host: started } = await start();
    const answers = await Promise.all(
      routes.map(({ method, path }) =>
        alice.request(method, path.replace('{runId}', 'x'), {
          ...(method !== 'GET' && { body: { nonsense: true } }),
        }),
      ),
    );
    for (const { status, body } of answers) {
      expect(status).toBe(403);
      expect(body).toEqual({
        statusCode: 403,
        error: 'Forbidden',
        code: 'forbidden',
        message: 'This is not allowed',
        requestId: expect.any(String),
      });
    }
    const anonymous = await fetch(`${started.url}/operator/overview`);
    expect(anonymous.status).toBe(401);
  });

  it('a delegation of an operator is not enough, since services may have it', async () => {
    const { host: started, operator } = await start();
    const headers = { 'x-ucan-delegation': operator.delegate() };
    expect((await fetch(`${started.url}/sessions`, { headers })).status).toBe(200);
    expect((await fetch(`${started.url}/operator/overview`, { headers })).status).toBe(403);
  });

  it('OPERATORS may call although CALLERS_ALLOW does not list them', async () => {
    const { alice, operator } = await start({ env: { CALLERS_ALLOW: generateSigner().did } });
    expect((await operator.request('GET', '/operator/overview')).status).toBe(200);
    expect((await alice.request('GET', '/sessions')).status).toBe(403);
  });
});

describe('what operators see', () => {
  it('GET /operator/overview, /turns, /users and /hosts show a turn, its figures and no text', async () => {
    const { alice, operator, read } = await start();
    const secret = 'my very private question about 17 goats';
    const answer = await sendMessage(alice, secret);
    expect(answer.status).toBe(200);
    const overview = await read('overview');
    expect(overview).toMatchObject({
      hosts: { running: 1, lost: 0 },
      problems: [],
      turns: { running: 0, queued: 0, paused: 0 },
      timeToFirstToken: { turns: 1 },
      today: { users: 1, turns: 1, failed: 0 },
      failures: [],
    });
    const { turns } = await read('turns');
    expect(turns).toHaveLength(1);
    expect(turns[0]).toMatchObject({
      user: alice.did,
      status: 'finished',
      models: ['offline'],
      traceId: expect.stringMatching(/^[0-9a-f]{32}$/),
    });
    expect(turns[0].inputTokens).toBeGreaterThan(0);
    const { users } = await read('users');
    expect(users).toMatchObject([{ user: alice.did, turns: 1, failed: 0, limited: 0 }]);
    const { hosts } = await read('hosts');
    expect(hosts).toMatchObject([{ state: 'running', readiness: { status: 'ready' } }]);
    const trace = await read(`turns/${turns[0].runId}`);
    expect(trace.spans.map(({ kind }: { kind: string }) => kind)).toContain('model');
    const everything = await Promise.all(
      ['overview', 'hosts', 'turns', 'users', 'failures', 'plugins', 'jobs', 'audit'].map(
        async (path) => JSON.stringify((await operator.request('GET', `/operator/${path}`)).body),
      ),
    );
    expect([...everything, JSON.stringify(trace)].join()).not.toContain('goats');
  });

  it('GET /operator/turns/:runId shows arguments only if the user shares them, and records that', async () => {
    const { alice, read } = await start();
    const session = await openSession(alice);
    await (await stream(alice, session, { message: 'Please answer briefly' })).toEnd();
    const { turns } = await read('turns');
    const findTool = (trace: { spans: { kind: string }[] }) =>
      trace.spans.find(({ kind }) => kind === 'tool');
    const hidden = await read(`turns/${turns[0].runId}`);
    expect(hidden.argumentsShared).toBe(false);
    expect(findTool(hidden)).toMatchObject({ name: 'set_user_preferences' });
    expect(findTool(hidden)).not.toHaveProperty('arguments');
    expect((await read('audit')).actions).toEqual([]);
    const shared = await alice.request('PUT', '/me/sharing', { body: { toolArguments: true } });
    expect(shared.body).toEqual({ toolArguments: true });
    const shown = await read(`turns/${turns[0].runId}`);
    expect(findTool(shown)).toMatchObject({ arguments: { length: 'concise' } });
    expect((await read('audit')).actions).toMatchObject([
      { operator: signer.did, action: 'view_arguments', target: turns[0].runId },
    ]);
    await alice.request('PUT', '/me/sharing', { body: { toolArguments: false } });
    expect(findTool(await read(`turns/${turns[0].runId}`))).not.toHaveProperty('arguments');
  });

  it('GET /operator/plugins names what plugins are missing, and never a secret', async () => {
    const { read } = await start({ env: { SLACK_SIGNING_SECRET: 'the-signing-secret' } }).catch(
      () => start(),
    );
    const { plugins } = await read('plugins');
    const memory = plugins.find(({ name }: { name: string }) => name === 'memory');
    expect(memory).toMatchObject({ isLoaded: true });
    const missing = plugins.filter(({ isLoaded }: { isLoaded: boolean }) => !isLoaded);
    expect(missing.length).toBeGreaterThan(0);
    for (const { missing: reason } of missing) expect(reason).toMatch(/\S/);
    expect(JSON.stringify(plugins)).not.toContain('the-signing-secret');
  });

  it('GET /operator/jobs counts background work of the host and of plugins', async () => {
    const { read } = await start();
    const { jobs } = await read('jobs');
    const names = jobs.map(({ name }: { name: string }) => name);
    expect(names).toEqual(
      expect.arrayContaining(['Imports', 'Documents to read', 'Texts to index', 'Schedules']),
    );
  });
});

describe('POST /operator/block', () => {
  it('ends sockets and turns of the user at once, until POST /operator/unblock', async () => {
    const { alice, operator, read } = await start();
    const sessionId = await openSession(alice);
    const socket = await joinSession(alice, sessionId);
    const blocked = await operator.request('POST', '/operator/block', {
      body: { user: alice.did, reason: 'floods' },
    });
    expect(blocked.body).toEqual({ user: alice.did, blocked: true, changed: true });
    await socket.until('(disconnect)');
    const refused = await alice.request('GET', '/sessions');
    expect([refused.status, refused.body.code]).toEqual([403, 'caller_blocked']);
    expect((await read('users')).users).toMatchObject([
      { user: alice.did, blocked: { reason: 'floods' } },
    ]);
    await operator.request('POST', '/operator/unblock', { body: { user: alice.did } });
    expect((await alice.request('GET', '/sessions')).status).toBe(200);
    expect((await read('audit')).actions).toMatchObject([
      { action: 'unblock_user', target: alice.did },
      { action: 'block_user', target: alice.did, note: 'floods' },
    ]);
  });

  it.each([
    ['GET /me/export', () => '/me/export'],
    ['GET /files/:id', (id: string) => `/files/${id}`],
  ])('ends %s of the user', async (_, toPath) => {
    const { alice, operator, host } = await start();
    const { headers } = alice;
    const body = randomBytes(DOWNLOAD_BYTES);
    const uploaded = await fetch(`${host.url}/files?name=a.bin`, { method: 'POST', headers, body });
    const { fileId } = (await uploaded.json()) as { fileId: string };
    const reply = await fetch(host.url + toPath(fileId), { headers });
    const reader = (reply.body as ReadableStream<Uint8Array>).getReader();
    await reader.read();
    await operator.request('POST', '/operator/block', { body: { user: alice.did } });
    // The host disconnects, although the client reads nothing.
    const isAborted = ({ msg, did }: Record<string, unknown>) =>
      msg === 'request aborted' && did === alice.did;
    await expect.poll(() => host.log.some(isAborted), { timeout: 10_000 }).toBe(true);
    await reader.cancel();
  });

  it('ends an import of the user', async () => {
    const { alice, operator, host } = await start();
    const request = httpRequest(`${host.url}/me/import`, {
      method: 'POST',
      headers: alice.headers,
    });
    const reply = once(request, 'response');
    request.write('[');
    await expect.poll(() => readdir(join(host.dataDir, 'imports')).catch(() => [])).toHaveLength(1);
    await operator.request('POST', '/operator/block', { body: { user: alice.did } });
    const [response] = await reply;
    expect(response.statusCode).toBe(403);
    request.destroy();
    expect(await readdir(join(host.dataDir, 'imports'))).toEqual([]);
  });

  it('ends an upload of the user, which leaves nothing behind', async () => {
    const { alice, operator, host } = await start();
    const readUsed = async () => (await alice.request('GET', '/files')).body.usedBytes;
    const headers = { ...alice.headers, 'content-length': 1_000_000 };
    const request = httpRequest(`${host.url}/files?name=a.bin`, { method: 'POST', headers });
    const reply = once(request, 'response');
    request.write(Buffer.alloc(500_000));
    await expect.poll(readUsed).toBe(1_000_000);
    await operator.request('POST', '/operator/block', { body: { user: alice.did } });
    const [response] = await reply;
    expect(response.statusCode).toBe(403);
    request.destroy();
    await operator.request('POST', '/operator/unblock', { body: { user: alice.did } });
    await expect.poll(readUsed).toBe(0);
  });

  it('ends the delivery of results of schedules of the user', async () => {
    const model = await startControlledModel();
    let received = 0;
    const receiver = createServer((_, response) => {
      received += 1;
      response.end();
    });
    await once(receiver.listen(0, '127.0.0.1'), 'listening');
    const resultUrl = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/`;
    const env = { ...model.env, OUTGOING_ALLOW: '127.0.0.1' };
    const { alice, operator, read } = await start({ env });
    const trigger = { type: 'once', at: new Date().toISOString() } as const;
    const { id } = await createSchedule(alice, { trigger, resultUrl });
    const turn = await model.next();
    await operator.request('POST', '/operator/block', { body: { user: alice.did } });
    await turn.left;
    const isDelivery = ({ name }: { name: string }) => name === 'Deliveries of results';
    const countFailed = async () => (await read('jobs')).jobs.find(isDelivery).failed;
    await expect.poll(countFailed, { timeout: 30_000 }).toBe(1);
    expect(received).toBe(0);
    await operator.request('POST', '/operator/unblock', { body: { user: alice.did } });
    const delivery = { status: 'failed', error: expect.stringContaining('has blocked you') };
    expect(await readRuns(alice, id)).toMatchObject([{ delivery }]);
    receiver.close();
    model.close();
  });

  it('keeps blocked users in GET /operator/users, also if its limit leaves others out', async () => {
    const { alice, host, operator, read } = await start();
    await sendMessage(alice);
    const { did: user } = new TestUser(host);
    await operator.request('POST', '/operator/block', { body: { user } });
    const { users, total } = await read('users?limit=1');
    expect(users).toMatchObject([{ user, blocked: {} }]);
    expect(total).toBe(2);
    expect((await read('users?limit=2')).users).toMatchObject([{ user: alice.did }, { user }]);
    const one = await read(`users?user=${alice.did}`);
    expect(one).toMatchObject({ users: [{ user: alice.did, turns: 1 }], total: 1 });
    // Operators can block it before its first message.
    const { did: unseen } = new TestUser(host);
    expect((await read(`users?user=${unseen}`)).users).toMatchObject([{ user: unseen, turns: 0 }]);
  });

  it('does not block an operator', async () => {
    const { operator } = await start();
    const refused = await operator.request('POST', '/operator/block', {
      body: { user: signer.did },
    });
    expect(refused.status).toBe(400);
    expect((await operator.request('GET', '/sessions')).status).toBe(200);
  });
});

describe('causes that operators see', () => {
  const refusals = [
    { cause: 'wrong_key', status: 401, says: 'Incorrect API key provided' },
    { cause: 'provider_error', status: 500, says: 'Something broke over here' },
    { cause: 'rate_limit', status: 429, says: 'Slow down please' },
  ];
  for (const { cause, status, says } of refusals)
    it(`a model that answers ${status}: ${cause}, in the log with status and message`, async () => {
      const model = await startRefusingModel(status, says);
      const { alice, read, host: started } = await start({ env: useModel(model.url) });
      expect((await sendMessage(alice)).status).toBe(503);
      model.close();
      const { turns, models } = await read('failures');
      expect(turns).toMatchObject([{ cause, count: 1 }]);
      expect(models).toMatchObject([{ cause, model: 'openai-compatible/test' }]);
      expect(models[0].detail).toContain(`127.0.0.1 ${status}`);
      expect(models[0].detail).toContain(says);
      const line = started.log.find(({ msg }) => msg === 'model call failed');
      expect(line).toMatchObject({ cause, status, code: 'some_code', host: '127.0.0.1' });
      expect(line?.reason).toContain(says);
      expect((await read('overview')).problems.length).toBeGreaterThan(0);
      expect(JSON.stringify([started.log, models])).not.toContain('sk-secret');
      // Every line of the turn has its ids.
      const ids = { requestId: line?.requestId, runId: line?.runId, traceId: line?.traceId };
      expect(ids).toEqual({
        requestId: expect.any(String),
        runId: expect.any(String),
        traceId: expect.stringMatching(/^[0-9a-f]{32}$/),
      });
      expect((await read('turns')).turns[0]).toMatchObject(ids);
    });

  it('a model whose name does not resolve: dns', async () => {
    const { alice, read } = await start({ env: useModel('http://model.invalid/v1') });
    expect((await sendMessage(alice)).status).toBe(503);
    const { turns, models } = await read('failures');
    expect(turns).toMatchObject([{ cause: 'dns' }]);
    expect(models[0].detail).toMatch(/model\.invalid (ENOTFOUND|EAI_AGAIN)/);
  });

  it('a model that is down: connection_refused', async () => {
    const port = await findFreePort();
    const { alice, read } = await start({ env: useModel(`http://127.0.0.1:${port}/v1`) });
    expect((await sendMessage(alice)).status).toBe(503);
    const { models } = await read('failures');
    expect(models[0]).toMatchObject({ cause: 'connection_refused', count: 3 });
    expect(models[0].detail).toContain('ECONNREFUSED');
  });

  it('a model that does not speak TLS: tls', async () => {
    const server = createTcpServer((socket) => socket.end('hello\n'));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const { alice, read } = await start({ env: useModel(`https://127.0.0.1:${port}/v1`) });
    await sendMessage(alice);
    server.close();
    expect((await read('failures')).models[0].cause).toBe('tls');
  });

  it('a user who floods the host: limited, in /operator/users and /operator/failures', async () => {
    const { alice, read } = await start({ env: { RATE_LIMIT_PER_MINUTE: '20' } });
    for (let i = 0; i < 30; i++) await alice.request('GET', '/sessions');
    const { users } = await read('users');
    const [flooding] = users;
    expect(flooding).toMatchObject({ user: alice.did });
    expect(flooding.limited).toBeGreaterThanOrEqual(5);
    const { requests } = await read('failures');
    expect(requests).toContainEqual(expect.objectContaining({ code: 'rate_limited' }));
  });

  it('a disk below DISK_MIN_FREE', async () => {
    const { alice, read } = await start({ env: { DISK_MIN_FREE: '100000000gb' } });
    const refused = await alice.request('POST', '/sessions');
    expect(refused.body.code).toBe('disk_full');
    const { problems } = await read('overview');
    expect(problems[0].text).toContain('DISK_MIN_FREE');
    const { requests } = await read('failures');
    expect(requests).toMatchObject([{ code: 'disk_full', count: 1 }]);
  });
});
