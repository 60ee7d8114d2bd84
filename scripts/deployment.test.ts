import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { parse } from 'yaml';
import { createOracleClient, createSigner } from '../packages/client/src/index.js';
import {
  type AnsweringModel,
  startAnsweringModel,
  toAnswer,
  toMarker,
} from '../packages/host/test/support/answering-model.js';
import { findFreePort } from '../packages/host/test/support/free-port.js';
import { scroll } from '../packages/host/test/support/page-tools.js';
import {
  type HostProcess,
  runHost,
  untilListening,
} from '../packages/host/test/support/process.js';
import { joinSession } from '../packages/host/test/support/session-socket.js';
import { openSession, stream } from '../packages/host/test/support/stream.js';
import {
  createTestDatabase,
  type TestDatabase,
} from '../packages/host/test/support/test-database.js';
import { TestUser } from '../packages/host/test/support/user.js';
import { MAIN } from './build.ts';
import { findProgram, type Program } from './debian-programs.ts';

interface Service {
  readonly image: string;
  readonly command?: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
  readonly volumes?: readonly string[];
  readonly ports?: readonly string[];
  readonly depends_on?: unknown;
}

const compose: { services: Record<string, Service> } = parse(
  readFileSync('deploy/compose.yaml', 'utf8'),
  { merge: true },
);
const hostNames = Object.keys(compose.services).filter((name) => name.startsWith('host-'));

/** What the operator puts into deploy/.env. */
const variables: Readonly<Record<string, string>> = {
  POSTGRES_PASSWORD: 'secret',
  ORACLE_PRIVATE_KEY: '0123456789abcdef'.repeat(4),
};

/** Replaces ${NAME:?message}, as Compose does. */
const substitute = (text: string): string =>
  text.replace(/\$\{(\w+)(:\?[^}]*)?\}/g, (_, name: string) => {
    const value = variables[name];
    if (value === undefined) throw new Error(`deploy/compose.yaml needs ${name}`);
    return value;
  });

/** A service as a process on this machine. */
interface StartedHost {
  readonly name: string;
  readonly port: number;
  readonly process: HostProcess;
}

let database: TestDatabase;
let model: AnsweringModel;
let folder: string;
const hosts: StartedHost[] = [];

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'sibyl-deployment-'));
  database = await createTestDatabase('postgres');
  model = await startAnsweringModel({
    beforeEnd: ({ session, number }) => held.get(toMarker(session, number)),
  });
  for (const name of hostNames) hosts.push(await startHost(name));
});
afterAll(async () => {
  for (const { process } of hosts) process.child.kill('SIGKILL');
  await Promise.all(hosts.map(({ process }) => process.ended));
  model?.close();
  await database?.drop();
  rmSync(folder, { recursive: true, force: true });
});

/** Starts the command of a service with its environment; only addresses differ, since all run on one machine. */
async function startHost(name: string): Promise<StartedHost> {
  const { command = [], environment = {} } = compose.services[name] as Service;
  const port = await findFreePort();
  const given = Object.fromEntries(
    Object.entries(environment).map(([key, value]) => [key, substitute(value)]),
  );
  expect(new URL(given.DATABASE_URL ?? '').hostname).toBe('postgres');
  const [program, main = ''] = command;
  expect(program).toBe('node');
  const address = {
    DATABASE_URL: database.env.DATABASE_URL ?? '',
    DATA_DIR: join(folder, name),
    PORT: String(port),
    METRICS_PORT: String(await findFreePort()),
    // The proxies of this test are on this machine.
    TRUST_PROXY: 'loopback',
  };
  const process = runHost({ ...given, ...model.env, ...address }, [], main);
  await untilListening(process);
  return { name, port, process };
}

describe('deploy/compose.yaml', () => {
  it('has three hosts with one image, command, database and key', () => {
    expect(hostNames).toEqual(['host-1', 'host-2', 'host-3']);
    for (const name of hostNames) {
      expect(compose.services[name]).toEqual(compose.services['host-1']);
      expect(compose.services[name]?.command).toEqual(['node', MAIN]);
    }
    expect(Object.keys(compose.services).sort()).toEqual([...hostNames, 'nginx', 'postgres']);
  });

  it('mounts files that exist, and publishes only nginx, on this machine', () => {
    for (const { volumes = [] } of Object.values(compose.services))
      for (const [path = ''] of volumes.map((volume) => volume.split(':')))
        if (path.startsWith('.')) expect(existsSync(join('deploy', path)), path).toBe(true);
    const published = Object.entries(compose.services).filter(([, { ports }]) => ports);
    expect(published.map(([name]) => name)).toEqual(['nginx']);
    expect(compose.services.nginx?.ports).toEqual(['127.0.0.1:8080:8080']);
  });

  it('allows PostgreSQL more connections than its hosts open', () => {
    const setting = compose.services.postgres?.command?.find((each) => each.includes('max_conn'));
    // Ten of the pool and three more for each host, and some for administrators.
    expect(Number(setting?.split('=')[1])).toBeGreaterThan(hostNames.length * 13 + 10);
  });

  it('starts hosts with one identity, each of which answers', async () => {
    const dids = await Promise.all(hosts.map(({ port }) => readDid(`http://127.0.0.1:${port}`)));
    expect(new Set(dids).size).toBe(1);
    await exchange(hosts.map(({ port }) => `http://127.0.0.1:${port}`));
  });
});

interface Proxy {
  readonly name: Program;
  readonly config: string;
  readonly args: (config: string) => readonly string[];
}

const proxies: readonly Proxy[] = [
  {
    name: 'nginx',
    config: 'deploy/nginx.conf',
    args: (config) => ['-e', 'stderr', '-c', config, '-g', `daemon off; pid ${config}.pid;`],
  },
  {
    name: 'haproxy',
    config: 'deploy/haproxy.cfg',
    args: (config) => ['-db', '-f', config],
  },
  {
    name: 'caddy',
    config: 'deploy/Caddyfile',
    args: (config) => ['run', '--adapter', 'caddyfile', '--config', config],
  },
];

describe.each(proxies)('$config', (proxy) => {
  it('names the hosts of deploy/compose.yaml', () => {
    const text = readFileSync(proxy.config, 'utf8');
    const named = new Set([...text.matchAll(/\b(host-\d+):3000\b/g)].map(([, name]) => name));
    expect([...named]).toEqual(hostNames);
  });

  it(`${proxy.name} passes on messages, streams and sockets`, async () => {
    const url = await startProxy(proxy);
    await exchange([url, url, url]);
  });

  it(`${proxy.name} passes on a file of 8 MB`, async () => {
    const url = await startProxy(proxy);
    const alice = new TestUser({ url, did: await readDid(url) });
    const client = createOracleClient({ url, signer: createSigner(alice.signer) });
    const bytes = new Uint8Array(8 * 1024 * 1024).fill(97);
    const { fileId, size } = await client.files.upload(bytes, { name: 'large.txt' });
    expect(size).toBe(bytes.length);
    const stored = await (await client.files.download(fileId)).arrayBuffer();
    expect(stored.byteLength).toBe(bytes.length);
  });

  it.each([
    ['polls', ['polling']],
    ['polls first', ['polling', 'websocket']],
  ])(`${proxy.name} leads a Socket.IO client that %s to its socket`, async (_, transports) => {
    const url = await startProxy(proxy);
    const alice = new TestUser({ url, did: await readDid(url) });
    // Each connection begins at another host.
    for (const { port } of hosts) {
      const sessionId = await openSession(alice);
      const options = { transports, reconnection: false };
      const socket = await joinSession(alice, sessionId, options);
      expect(await socket.ask('ping', 'pong')).toMatchObject({ sessionId });
      const user = alice.at({ url: `http://127.0.0.1:${port}`, did: alice.host.did });
      const reply = user.request('POST', `/messages/${sessionId}`, {
        body: { message: toMarker(sessionId.slice(-8), 1), tools: [scroll] },
      });
      const { toolCallId, args } = await socket.until('browser_tool_call');
      expect(args).toEqual({ by: 3 });
      socket.socket.emit('tool_result', { toolCallId, result: 'scrolled' });
      expect((await reply).status).toBe(200);
      const { messages } = (await alice.request('GET', `/messages/${sessionId}`)).body;
      expect(messages.at(-1).toolCalls).toMatchObject([{ name: 'scroll', output: '"scrolled"' }]);
      expect(socket.all('(disconnect)')).toEqual([]);
      socket.socket.disconnect();
    }
  });

  it(`${proxy.name} continues while a host is stopped`, async () => {
    const url = await startProxy(proxy);
    const alice = new TestUser({ url, did: await readDid(url) });
    const [victim] = hosts as [StartedHost, ...StartedHost[]];
    victim.process.child.kill('SIGTERM');
    await victim.process.ended;
    for (let i = 0; i < 6; i++) expect((await alice.request('POST', '/sessions')).status).toBe(201);
    hosts[0] = await startHost(victim.name);
  });
});

it('every proxy passes on an answer as JSON that takes 90 seconds', {
  timeout: 240_000,
}, async () => {
  const urls = await Promise.all(proxies.map((proxy) => startProxy(proxy)));
  const ask = async (url: string) => {
    const alice = new TestUser({ url, did: await readDid(url) });
    const sessionId = await openSession(alice);
    const message = toMarker(sessionId.slice(-8), 1);
    held.set(message, sleep(90_000));
    const reply = await alice.request('POST', `/messages/${sessionId}`, { body: { message } });
    return `${reply.status} ${reply.body.status}`;
  };
  const finished = '200 finished';
  expect(await Promise.all(urls.map(ask))).toEqual([finished, finished, finished]);
});

/** Runs the proxy with its configuration; only addresses differ. Returns its own address. */
async function startProxy(proxy: Proxy): Promise<string> {
  const port = await findFreePort();
  const config = join(folder, `${proxy.name}-${port}.conf`);
  let text = readFileSync(proxy.config, 'utf8').replaceAll('8080', String(port));
  for (const host of hosts) text = text.replace(`${host.name}:3000`, `127.0.0.1:${host.port}`);
  writeFileSync(config, proxy.name === 'caddy' ? `{\n\tadmin off\n}\n${text}` : text);
  const child: ChildProcess = spawn(findProgram(proxy.name), proxy.args(config), { stdio: 'pipe' });
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream?.on('data', (chunk) => {
      output += chunk;
    });
  const ended = once(child, 'close');
  onTestFinished(async () => {
    child.kill('SIGTERM');
    await ended;
  });
  const url = `http://127.0.0.1:${port}`;
  const isUp = async () => {
    if (child.exitCode !== null) throw new Error(output);
    return (await fetch(`${url}/health`).catch(() => undefined))?.status;
  };
  await expect.poll(isUp).toBe(200);
  return url;
}

async function readDid(url: string): Promise<string> {
  const card = (await (await fetch(`${url}/.well-known/oracle.json`)).json()) as { did: string };
  return card.did;
}

/** Sends messages of one session to several addresses in turn, as JSON and as a stream, with an open socket. */
/** Answers whose end waits, by the marker of the message. */
const held = new Map<string, Promise<void>>();

async function exchange(urls: readonly string[]): Promise<void> {
  const [first = ''] = urls;
  const alice = new TestUser({ url: first, did: await readDid(first) });
  const sessionId = await openSession(alice);
  const name = sessionId.slice(-8);
  const socket = await joinSession(alice, sessionId);
  let number = 0;
  for (const url of urls) {
    const user = alice.at({ url, did: alice.host.did });
    const reply = await user.request('POST', `/messages/${sessionId}`, {
      body: { message: toMarker(name, ++number) },
    });
    expect(reply.body.message.content).toContain(toAnswer(name, number));
    const { promise, resolve } = Promise.withResolvers<void>();
    held.set(toMarker(name, ++number), promise);
    const live = await stream(user, sessionId, { message: toMarker(name, number) });
    // Through a proxy that collects the answer, its beginning would never arrive.
    const opening = await live.untilEvent('message');
    resolve();
    expect(opening.data.content).toContain(toAnswer(name, number));
    await live.toEnd();
  }
  expect(await socket.ask('ping', 'pong')).toMatchObject({ sessionId });
  const { messages } = (await alice.request('GET', `/messages/${sessionId}`)).body;
  expect(messages).toHaveLength(2 * number);
}
