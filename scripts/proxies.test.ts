import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import {
  type ControlledModel,
  startControlledModel,
} from '../packages/host/test/support/controlled-model.js';
import { findFreePort } from '../packages/host/test/support/free-port.js';
import { startHost, type TestHost } from '../packages/host/test/support/host.js';
import { openRejectedSocket, openSocket } from '../packages/host/test/support/session-socket.js';
import { openSession, stream } from '../packages/host/test/support/stream.js';
import { upload } from '../packages/host/test/support/upload.js';
import { TestUser } from '../packages/host/test/support/user.js';
import { selfSigned } from '../packages/safe-fetch/test/support/certificate.js';
import { findProgram, type Program } from './debian-programs.ts';

const PAGE = 'https://pages.example';
const page = readFileSync('docs/deploying.md', 'utf8');

/** The last example of docs/deploying.md in a language. */
const readExample = (language: string) =>
  [...page.matchAll(new RegExp(`\`\`\`${language}\\n(.*?)\`\`\``, 'gs'))].at(-1)?.[1] ?? '';
const firstNginx = /```nginx\n(.*?)^server \{/ms.exec(page)?.[1] ?? '';
const haproxyHead = readFileSync('deploy/haproxy.cfg', 'utf8').split('frontend')[0] ?? '';

interface Proxy {
  readonly name: Program;
  readonly build: (paths: Readonly<Record<'cert' | 'key' | 'pem', string>>) => string;
  readonly args: (config: string) => readonly string[];
}

const proxies: readonly Proxy[] = [
  {
    name: 'nginx',
    build: ({ cert, key }) =>
      `events {}\nhttp {\n${firstNginx}${readExample('nginx')
        .replace('/etc/ssl/oracle.crt', cert)
        .replace('/etc/ssl/oracle.key', key)}}`,
    args: (config) => ['-e', 'stderr', '-c', config, '-g', `daemon off; pid ${config}.pid;`],
  },
  {
    name: 'haproxy',
    build: ({ pem }) => haproxyHead + readExample('haproxy').replace('/etc/ssl/oracle.pem', pem),
    args: (config) => ['-db', '-f', config],
  },
  {
    name: 'caddy',
    build: ({ cert, key }) =>
      `{\n\tadmin off\n\tauto_https disable_redirects\n}\n${readExample('caddy').replace(
        'example.org {',
        `https://localhost:443 {\n\ttls ${cert} ${key}`,
      )}`,
    args: (config) => ['run', '--adapter', 'caddyfile', '--config', config],
  },
];

let host: TestHost;
let model: ControlledModel;
let folder: string;

beforeAll(async () => {
  // The certificate is signed by itself.
  process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0';
  folder = mkdtempSync(join(tmpdir(), 'sibyl-proxies-'));
  model = await startControlledModel();
  host = await startHost({ env: { ...model.env, CORS_ORIGIN: PAGE, TRUST_PROXY: 'loopback' } });
});
afterAll(async () => {
  delete process.env.NODE_TLS_REJECT_UNAUTHORIZED;
  await host?.close();
  model?.close();
  rmSync(folder, { recursive: true, force: true });
});

describe.each(proxies)('docs/deploying.md: $name with TLS, below a path', (proxy) => {
  it('passes on messages, streams without buffering, sockets and origins', async () => {
    const origin = await startProxy(proxy);
    const alice = new TestUser({ url: `${origin}/oracle`, did: host.did });
    const sessionId = await openSession(alice);
    const live = await stream(alice, sessionId, { message: 'Hello' });
    const turn = await model.next();
    turn.say('One');
    // Through a proxy that collects the answer, its beginning would never arrive.
    expect((await live.untilEvent('message')).data.content).toBe('One');
    turn.finish();
    await live.toEnd();
    await checkSockets(origin, alice, sessionId);
    await checkOrigins(origin);
    await checkPage(origin);
    await checkUpload(alice);
  });
});

/** 8 MB, more than proxies accept or keep in memory by default. */
async function checkUpload(user: TestUser): Promise<void> {
  const content = Buffer.alloc(8 * 1024 * 1024, 'rain in Kitui\n');
  const { fileId, size } = await upload(user, 'rain.txt', content);
  expect(size).toBe(content.length);
  const response = await fetch(`${user.host.url}/files/${fileId}`, { headers: user.headers });
  expect(content.equals(Buffer.from(await response.arrayBuffer()))).toBe(true);
}

async function checkSockets(origin: string, user: TestUser, sessionId: string): Promise<void> {
  const join = (from: string) => ({
    path: '/oracle/socket.io',
    query: { sessionId },
    auth: { invocation: user.mint() },
    extraHeaders: { origin: from },
    rejectUnauthorized: false,
  });
  // A page of an allowed origin, and the host's own page.
  for (const from of [PAGE, origin]) {
    const socket = openSocket(origin, join(from));
    await socket.until('connected');
    expect(await socket.ask('ping', 'pong')).toMatchObject({ sessionId });
  }
  await openRejectedSocket(origin, join('https://other.example'));
}

async function checkOrigins(origin: string): Promise<void> {
  const ask = async (from: string) => {
    const headers = { origin: from, 'access-control-request-method': 'POST' };
    const response = await fetch(`${origin}/oracle/sessions`, { method: 'OPTIONS', headers });
    return response.headers.get('access-control-allow-origin');
  };
  expect(await ask(PAGE)).toBe(PAGE);
  expect(await ask('https://other.example')).not.toBe('https://other.example');
}

/** The chat page finds its scripts below the path. */
async function checkPage(origin: string): Promise<void> {
  const response = await fetch(`${origin}/oracle/app`);
  expect([response.status, new URL(response.url).pathname]).toEqual([
    200,
    expect.stringMatching(/^\/oracle\/app/),
  ]);
  const [, script = ''] = /<script[^>]* src="([^"]+)"/.exec(await response.text()) ?? [];
  const loaded = await fetch(new URL(script, response.url));
  expect([loaded.status, loaded.headers.get('content-type')]).toEqual([
    200,
    expect.stringContaining('javascript'),
  ]);
}

/** Runs the proxy with the documented configuration; only addresses and files differ. Returns its origin. */
async function startProxy(proxy: Proxy): Promise<string> {
  const port = await findFreePort();
  const paths = {
    cert: join(folder, 'oracle.crt'),
    key: join(folder, 'oracle.key'),
    pem: join(folder, 'oracle.pem'),
  };
  const { cert, key } = selfSigned('localhost');
  writeFileSync(paths.cert, cert);
  writeFileSync(paths.key, key);
  writeFileSync(paths.pem, cert + key);
  const config = join(folder, `${proxy.name}.conf`);
  const text = proxy.build(paths).replace(/\b443\b/, String(port));
  expect(text).toContain('127.0.0.1:3000');
  writeFileSync(config, text.replaceAll('127.0.0.1:3000', new URL(host.url).host));
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
  const origin = `https://localhost:${port}`;
  const isUp = async () => {
    if (child.exitCode !== null) throw new Error(output);
    return (await fetch(`${origin}/oracle/health`).catch(() => undefined))?.status;
  };
  await expect.poll(isUp).toBe(200);
  return origin;
}
