import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type HostProcess, runHost, untilListening } from './support/process.js';
import { createTestDatabase } from './support/test-database.js';
import { TestUser } from './support/user.js';

let dataDir: string;
const started: HostProcess[] = [];
beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'sibyl-process-'));
});
afterEach(async () => {
  for (const { child, ended } of started.splice(0)) {
    child.kill('SIGKILL');
    await ended;
  }
  await rm(dataDir, { recursive: true, force: true });
});

const unlimited = { RATE_LIMIT_PER_MINUTE: '1000000', RATE_LIMIT_ANONYMOUS_PER_MINUTE: '1000000' };

function run(env: Record<string, string> = {}, nodeArgs: readonly string[] = []): HostProcess {
  const host = runHost({ PORT: '0', DATA_DIR: dataDir, ...unlimited, ...env }, nodeArgs);
  started.push(host);
  return host;
}

async function start(env: Record<string, string> = {}) {
  const host = run(env);
  const url = await untilListening(host);
  const card = (await (await fetch(`${url}/.well-known/oracle.json`)).json()) as { did: string };
  return { ...host, url, did: card.did };
}

describe('the listening socket', () => {
  // Linux caps every backlog at this, and the default of Node is 511.
  const backlog = 4096;
  const cap = existsSync('/proc/sys/net/core/somaxconn')
    ? Number(readFileSync('/proc/sys/net/core/somaxconn', 'utf8'))
    : 0;

  it.skipIf(cap < backlog)(
    'keeps 1,000 connections that the host has no time to accept',
    async () => {
      const { child, url } = await start();
      const { port, hostname } = new URL(url);
      // A stopped process accepts nothing, so the kernel has to keep them all.
      child.kill('SIGSTOP');
      const sockets = Array.from({ length: 1000 }, () => connect(Number(port), hostname));
      for (const socket of sockets) socket.on('error', () => undefined);
      try {
        await Promise.all(sockets.map((socket) => once(socket, 'connect')));
        child.kill('SIGCONT');
        expect((await fetch(`${url}/health`)).status).toBe(200);
      } finally {
        for (const socket of sockets) socket.destroy();
        child.kill('SIGCONT');
      }
    },
  );
});

describe('main with an invalid environment', () => {
  it('prints all issues together and exits 1', async () => {
    const host = run({ PORT: 'x', LOG_LEVEL: 'loud', CORS_ORIGIN: 'nowhere' });
    expect(await host.ended).toBe(1);
    expect(host.output()).toMatch(/3 things are wrong/);
    for (const variable of ['PORT', 'LOG_LEVEL', 'CORS_ORIGIN'])
      expect(host.output()).toContain(`${variable} (host): `);
    expect(host.output()).not.toMatch(/^\s+at /m);
  });

  it.each([
    ['a key that is none', { ORACLE_PRIVATE_KEY: 'abc' }, /ORACLE_PRIVATE_KEY \(host\): neither/],
    ['a DID the key cannot use', { ORACLE_DID: 'did:key:z6Mk' }, /ORACLE_DID \(host\): /],
  ])('names %s', async (_, env, message) => {
    const host = run(env);
    expect(await host.ended).toBe(1);
    expect(host.output()).toMatch(message);
    expect(host.output()).not.toMatch(/^\s+at /m);
  });

  it('names a database that is not there, without its password, and waits for it', async () => {
    const host = run({ DATABASE_URL: 'postgres://user:hunter2@127.0.0.1:1/x' });
    await expect
      .poll(() => host.output())
      .toMatch(/ECONNREFUSED 127\.0\.0\.1:1.*cannot be reached/);
    expect(host.output()).not.toContain('hunter2');
    host.child.kill('SIGTERM');
    expect(await host.ended).toBe('SIGTERM');
  });

  it.each([
    ['PORT', '99999'],
    ['TRUST_PROXY', 'garbage'],
    ['OUTGOING_ALLOW', '???'],
    ['RATE_LIMIT_PER_MINUTE', '0'],
    ['STREAM_STALL_SECONDS', '9999999'],
    ['BODY_LIMIT', '0'],
    ['TURN_MAX_STEPS', '0'],
  ])('rejects %s=%s', async (name, value) => {
    const host = run({ [name]: value });
    expect(await host.ended).toBe(1);
    expect(host.output()).toContain(`${name} (host): `);
  });

  it.each([
    ['a folder that is a file', { DATA_DIR: process.execPath }],
    ['an unknown address', { HOST: 'nowhere.invalid' }],
  ])('names %s in one line', async (_, env) => {
    const host = run(env);
    expect(await host.ended).toBe(1);
    expect(host.output()).not.toMatch(/^\s+at /m);
  });

  it('ends if METRICS_PORT is taken', async () => {
    const other = createServer();
    await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
    const { port } = other.address() as AddressInfo;
    const host = run({ METRICS_PORT: String(port) });
    expect(await host.ended).toBe(1);
    other.close();
    expect(host.output()).toContain('EADDRINUSE');
  });

  it('names a port that is taken', async () => {
    const other = createServer();
    await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
    const { port } = other.address() as AddressInfo;
    const host = run({ PORT: String(port) });
    expect(await host.ended).toBe(1);
    other.close();
    expect(host.output()).toContain(String(port));
  });

  it('names a port on which another host of the same user listens', async () => {
    const first = run();
    const { port } = new URL(await untilListening(first));
    const second = run({ PORT: port, DATA_DIR: join(dataDir, 'second') });
    expect(await second.ended).toBe(1);
    expect(second.output()).toMatch(
      new RegExp(`listen EADDRINUSE.*:${port}\\n.*set PORT .* to another port`),
    );
    first.child.kill();
    expect(await first.ended).toBe(0);
  });
});

it('main says in one line that it needs a newer Node', async () => {
  const older =
    'data:text/javascript,Object.defineProperty(process,"versions",{value:{node:"20.1.0"}})';
  const host = run({}, ['--import', older]);
  expect(await host.ended).toBe(1);
  expect(host.output().trim().split('\n')).toEqual([expect.stringMatching(/needs Node 24/)]);
});

describe('the oracle’s key', () => {
  it('is created at the first start, readable only by its owner', async () => {
    const first = await start();
    expect(first.output()).toContain(first.did);
    const path = join(dataDir, 'oracle.key');
    expect((await stat(path)).mode & 0o777).toBe(0o600);
    expect((await stat(dataDir)).mode & 0o077).toBe(0);
    expect(first.output()).not.toContain((await readFile(path, 'utf8')).trim());
    first.child.kill('SIGTERM');
    expect(await first.ended).toBe(0);
    expect((await start()).did).toBe(first.did);
  });

  it('comes from the words of ORACLE_MNEMONIC', async () => {
    const words = `${'abandon '.repeat(11)}about`;
    const { did } = await start({ ORACLE_MNEMONIC: words });
    expect(did).toBe('did:key:z6MkpPcjwo4wP49VnvG7isXnqvFJyEqZ5JxSjohHxTT9Zr1c');
  });

  it('comes from ORACLE_PRIVATE_KEY', async () => {
    const seed = '0123456789abcdef'.repeat(4);
    const a = await start({ ORACLE_PRIVATE_KEY: seed });
    const b = await start({ ORACLE_PRIVATE_KEY: seed, DATA_DIR: join(dataDir, 'other') });
    expect(a.did).toBe(b.did);
  });

  it('is the same for two processes that start together', async () => {
    const { env, drop } = await createTestDatabase('postgres');
    const shared = { ...env, DATA_DIR: dataDir };
    const [a, b] = await Promise.all([start(shared), start(shared)]);
    expect(a.did).toBe(b.did);
    await drop();
  });

  it('is not replaced when its file is damaged', async () => {
    await writeFile(join(dataDir, 'oracle.key'), 'half a k');
    const host = run();
    expect(await host.ended).toBe(1);
    expect(host.output()).toMatch(/oracle\.key: .*\n.*Restore it from a backup/);
    expect(await readFile(join(dataDir, 'oracle.key'), 'utf8')).toBe('half a k');
  });
});

it('refuses to start on the SQLite file of a running host, and starts once that was killed', async () => {
  const first = await start();
  const second = run();
  expect(await second.ended).toBe(1);
  expect(second.output()).toMatch(/DATA_DIR \(host\): another host is using .*\n.*DATABASE_URL/);
  expect((await fetch(`${first.url}/health`)).status).toBe(200);
  first.child.kill('SIGKILL');
  await first.ended;
  await start();
});

it('GET /docs/openapi.json works in the bundle', async () => {
  const { url } = await start();
  const response = await fetch(`${url}/docs/openapi.json`);
  const { paths } = (await response.json()) as { paths: Record<string, { post?: object }> };
  expect(paths['/messages/{sessionId}']?.post).toMatchObject({ operationId: 'Messages.send' });
  expect((await fetch(`${url}/docs/swagger-ui.css`)).status).toBe(200);
});

it('main finishes requests in progress and exits 0 on SIGTERM', async () => {
  const host = await start();
  const alice = new TestUser(host);
  const pending = Promise.all(
    Array.from({ length: 20 }, () => alice.request('POST', '/sessions').catch(() => 'refused')),
  );
  host.child.kill('SIGTERM');
  expect(await host.ended).toBe(0);
  for (const answer of await pending)
    if (answer !== 'refused') expect(answer).toMatchObject({ status: 201 });
});

describe('kill -9 in a burst of POST /sessions', () => {
  it('loses no session that was answered with 201', async () => {
    const before = await start();
    const alice = new TestUser(before);
    const answered: string[] = [];
    let isAlive = true;
    const post = async () => {
      while (isAlive) {
        const answer = await alice.request('POST', '/sessions').catch(() => undefined);
        if (answer?.status === 201) answered.push(answer.body.sessionId);
      }
    };
    const clients = Array.from({ length: 16 }, post);
    await expect.poll(() => answered.length).toBeGreaterThan(300);
    before.child.kill('SIGKILL');
    expect(await before.ended).toBe('SIGKILL');
    isAlive = false;
    await Promise.all(clients);

    const after = await start();
    const kept = new Set<string>();
    for (let offset = 0; ; offset += 100) {
      const response = await fetch(`${after.url}/sessions?limit=100&offset=${offset}`, {
        headers: alice.headers,
      });
      const { sessions } = (await response.json()) as { sessions: { sessionId: string }[] };
      for (const { sessionId } of sessions) kept.add(sessionId);
      if (sessions.length < 100) break;
    }
    expect(answered.filter((id) => !kept.has(id))).toEqual([]);
    expect(kept.size).toBeGreaterThanOrEqual(answered.length);
  });
});
