import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import {
  type AddressInfo,
  createServer as createTcpServer,
  type Server as TcpServer,
} from 'node:net';
import { join } from 'node:path';
import { generateSigner } from '@sibyl/ucan';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { findFreePort } from '../../host/test/support/free-port.js';
import { startHost, type TestHost } from '../../host/test/support/host.js';
import { openSession } from '../../host/test/support/stream.js';
import { TestUser } from '../../host/test/support/user.js';
import { sibyl, sibylInProcess, useFolder } from './support/sibyl.js';

const TIMEOUT = { timeout: 120_000 };
const DATA_DIR = join(useFolder(), 'data');
const listed = generateSigner();
const env = { DATA_DIR, OPERATORS: listed.did };
let host: TestHost;
beforeAll(async () => {
  host = await startHost({ env });
}, 120_000);
afterAll(() => host?.close());

const callJson = async (...args: string[]) =>
  JSON.parse((await sibylInProcess([...args, '--json'], { env })).stdout);

describe('sibyl operators, users and audit, while the host runs', () => {
  it('sibyl operators add gives access to /operator, remove takes it away', TIMEOUT, async () => {
    const olga = new TestUser(host);
    const status = async () => (await olga.request('GET', '/operator/overview')).status;
    expect(await status()).toBe(403);
    const added = await sibyl(['operators', 'add', olga.did], { env });
    expect(added).toMatchObject({ code: 0, stdout: `${olga.did} is an operator` });
    await expect.poll(status, TIMEOUT).toBe(200);
    const { stdout } = await sibylInProcess(['operators', 'list'], { env });
    expect(stdout).toMatch(new RegExp(`${listed.did} +OPERATORS\n${olga.did} +added `));
    expect(await callJson('operators', 'add', olga.did)).toMatchObject({ changed: false });
    const removed = await sibylInProcess(['operators', 'remove', olga.did], { env });
    expect(removed).toMatchObject({ code: 0, stdout: `${olga.did} is not an operator any more` });
    await expect.poll(status, TIMEOUT).toBe(403);
    const unknown = await sibylInProcess(['operators', 'remove', listed.did], { env });
    expect(unknown).toMatchObject({ code: 1, stderr: expect.stringContaining('OPERATORS') });
    const invalid = await sibylInProcess(['operators', 'add', 'olga'], { env });
    expect(invalid).toMatchObject({ code: 2, stderr: expect.stringContaining('a DID') });
    const { actions } = await callJson('audit');
    expect(actions).toMatchObject([
      { operator: 'command line', action: 'remove_operator', target: olga.did },
      { operator: 'command line', action: 'add_operator', target: olga.did },
    ]);
  });

  it('sibyl users shows what users used; block and unblock take effect', TIMEOUT, async () => {
    const alice = new TestUser(host);
    const sessionId = await openSession(alice);
    const body = { message: 'hello' };
    expect((await alice.request('POST', `/messages/${sessionId}`, { body })).status).toBe(200);
    const users = await sibyl(['users'], { env });
    expect(users.stdout).toMatch(new RegExp(`User +Turns +Failed.*\n${alice.did} +1 +0 +\\d+`));
    const blocked = await sibyl(['users', 'block', alice.did, '--reason', 'floods'], { env });
    expect(blocked).toMatchObject({ code: 0, stdout: `${alice.did} is blocked` });
    const code = async () => (await alice.request('GET', '/sessions')).body.code;
    await expect.poll(code, TIMEOUT).toBe('caller_blocked');
    const found = await callJson('users', 'list', '--days', '1');
    expect(found).toMatchObject({ days: 1, blocked: [{ did: alice.did, note: 'floods' }] });
    expect((await sibylInProcess(['users', 'unblock', alice.did], { env })).code).toBe(0);
    await expect.poll(code, TIMEOUT).toBeUndefined();
    const again = await sibylInProcess(['users', 'unblock', alice.did], { env });
    expect(again).toMatchObject({ code: 1, stderr: expect.stringContaining('is not blocked') });
    const audit = await sibyl(['audit', '--limit', '2'], { env });
    expect(audit.stdout).toMatch(
      new RegExp(`command line +unblock_user +${alice.did}.*\n.*block_user +${alice.did} +floods`),
    );
    const days = await sibylInProcess(['users', '--days', '0'], { env });
    expect(days).toMatchObject({ code: 2, stderr: expect.stringContaining('1 to 366') });
  });
});

/** Listens during a test; returns its port. */
async function listen(server: Server | TcpServer): Promise<number> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  return (server.address() as AddressInfo).port;
}

const refuse = (status: number, message: string) =>
  createServer((_, response) => {
    response.writeHead(status, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ error: { message, code: 'some_code' } }));
  });

describe('sibyl doctor names the cause of a model that fails', () => {
  const diagnose = async (url: string) => {
    const model = { MODEL: 'openai-compatible/test', MODEL_BASE_URL: url, MODEL_API_KEY: 'sk-key' };
    const { code, stdout } = await sibylInProcess(['doctor'], { env: { ...env, ...model } });
    expect(code).toBe(1);
    expect(stdout).not.toContain('sk-key');
    return stdout.split('\n').find((line) => line.includes('model')) ?? '';
  };

  it('DNS', TIMEOUT, async () => {
    expect(await diagnose('http://model.invalid/v1')).toMatch(
      /✗ model: openai-compatible\/test: The name of the provider's host cannot be resolved \(model\.invalid, E/,
    );
  });

  it('connection refused', TIMEOUT, async () => {
    expect(await diagnose(`http://127.0.0.1:${await findFreePort()}/v1`)).toMatch(
      /The provider's host refuses connections \(127\.0\.0\.1, ECONNREFUSED\)/,
    );
  });

  it('TLS', TIMEOUT, async () => {
    const port = await listen(createTcpServer((socket) => socket.end('hello\n')));
    expect(await diagnose(`https://127.0.0.1:${port}/v1`)).toContain(
      'The TLS connection to the provider failed (127.0.0.1',
    );
  });

  it.each([
    [401, 'Incorrect API key provided', 'The provider rejects the key'],
    [402, 'Your balance is too low', 'The account at the provider is out of credit'],
    [429, 'Slow down please', 'The provider limits the rate of requests'],
    [500, 'Something broke over here', 'The provider has an error'],
  ])('HTTP status %i, with what the provider says', TIMEOUT, async (status, says, cause) => {
    const port = await listen(refuse(status, says));
    const line = await diagnose(`http://127.0.0.1:${port}/v1`);
    expect(line).toContain(cause);
    expect(line).toContain(`HTTP ${status}`);
    expect(line).toContain(says);
  });
});
