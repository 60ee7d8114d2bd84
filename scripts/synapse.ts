// Runs a host with a real Synapse and its default rate limits: thirty new users save preferences, and all are there at once;
// the copies in Matrix follow at the pace that Synapse permits. Then Synapse hangs.
// Exit codes: 0 passed, 1 failed, 77 skipped with the reason on the last line.
import assert from 'node:assert/strict';
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { buildIfChanged, MAIN } from './build.ts';
import { getVenv, installPython, SKIPPED, startService } from './third-party.ts';

const SYNAPSE = { name: 'matrix-synapse', version: '1.163.2' };
const NEW_USERS = 30;
const TIMEOUT_MS = 180_000;

process.exitCode = await main();

async function main(): Promise<number> {
  const reason = installPython(SYNAPSE);
  if (reason) {
    console.log(`Synapse skipped: ${reason}`);
    return SKIPPED;
  }
  const failure = await buildIfChanged();
  if (failure) return failure;
  const started: (() => unknown)[] = [];
  try {
    await check(started);
    return 0;
  } catch (error) {
    console.log(error);
    return 1;
  } finally {
    for (const stop of started.reverse()) await stop();
  }
}

async function check(started: (() => unknown)[]): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'sibyl-synapse-'));
  started.push(() => rmSync(folder, { recursive: true, force: true }));
  const synapse = await startSynapse(folder, started);
  const host = await startService([MAIN], {
    PORT: '0',
    DATA_DIR: join(folder, 'data'),
    MATRIX_BASE_URL: synapse.url,
    MATRIX_ACCESS_TOKEN: synapse.token,
    OUTGOING_ALLOW: '127.0.0.1',
  });
  started.push(() => host.stop());
  const users = await savePreferences(host.url);
  await waitFor('five copies in Matrix', async () => (await readCopies(synapse)).length >= 5);
  for (const copy of await readCopies(synapse)) assert.match(copy.language, /^Spanish$/);
  console.log('Synapse: the copies are in the rooms of the users, one after the other');
  synapse.child.kill('SIGSTOP');
  started.push(() => synapse.child.kill('SIGCONT'));
  await checkHanging(users[0] ?? assert.fail('no user'), await createUser(host.url));
}

type User = Awaited<ReturnType<typeof createUser>>;

async function savePreferences(url: string): Promise<User[]> {
  const startedAt = performance.now();
  const users: User[] = [];
  for (let i = 0; i < NEW_USERS; i += 1) {
    const user = await createUser(url);
    await user.ask('Please answer in Spanish from now on.');
    users.push(user);
  }
  const seconds = Math.round((performance.now() - startedAt) / 1000);
  for (const user of users)
    assert.equal((await user.send('GET', '/user-preferences')).language, 'Spanish');
  console.log(`Synapse: ${NEW_USERS} new users saved their preferences in ${seconds} s`);
  return users;
}

/** Turns of users of the homeserver continue with a warning, those of others without. */
async function checkHanging(alice: User, bob: User): Promise<void> {
  const before = await measure(() => bob.ask('count to 3'));
  const attachments = [{ mxcUri: 'mxc://test/a', filename: 'a.txt', mimetype: 'text/plain' }];
  const slow = await measure(() => alice.ask('count to 3', { attachments }));
  assert.match(JSON.stringify(slow.result.warnings), /the homeserver does not answer/);
  await waitFor('the warning', async () => {
    const { warnings = [] } = await alice.ask('count to 3', { attachments });
    return JSON.stringify(warnings).includes('homeserver_unavailable');
  });
  assert.equal((await alice.send('GET', '/user-preferences')).language, 'Spanish');
  const other = await measure(() => bob.ask('count to 3'));
  assert.equal(other.result.warnings, undefined);
  const [a, b, c] = [before, slow, other].map(({ ms }) => Math.round(ms));
  console.log(`Synapse hangs: turns of others ${a} → ${c} ms, the first turn with a file ${b} ms`);
}

async function measure<T>(work: () => Promise<T>): Promise<{ result: T; ms: number }> {
  const startedAt = performance.now();
  return { result: await work(), ms: performance.now() - startedAt };
}

async function createUser(url: string) {
  const { generateSigner, mintAuthInvocation } = await import('@sibyl/ucan');
  const card = await (await fetch(`${url}/.well-known/oracle.json`)).json();
  const { did: audience } = card as { did: string };
  const { ok } = mintAuthInvocation({ signer: generateSigner(), audience, ttlSeconds: 900 });
  const headers = {
    authorization: `Bearer ${ok?.token}`,
    'x-auth-type': 'ucan',
    'content-type': 'application/json',
  };
  // biome-ignore lint/suspicious/noExplicitAny: the assertions state what is expected.
  const send = async (method: string, path: string, body?: object): Promise<any> => {
    const init = { method, headers, ...(body && { body: JSON.stringify(body) }) };
    return (await fetch(url + path, init)).json();
  };
  const ask = async (message: string, more: object = {}) => {
    const { sessionId } = await send('POST', '/sessions', {});
    const reply = await send('POST', `/messages/${sessionId}`, { message, ...more });
    assert.equal(reply.status, 'finished', JSON.stringify(reply));
    return reply;
  };
  return { send, ask };
}

interface Synapse {
  readonly url: string;
  readonly token: string;
  readonly child: ChildProcess;
}

/** Starts Synapse with the configuration that it generates itself; only its address differs. */
async function startSynapse(folder: string, started: (() => unknown)[]): Promise<Synapse> {
  const venv = resolve(getVenv(SYNAPSE));
  const config = join(folder, 'homeserver.yaml');
  const module = ['-m', 'synapse.app.homeserver', '--config-path', config];
  const generate = ['--server-name', 'test', '--generate-config', '--report-stats=no'];
  run(join(venv, 'bin/python'), [...module, ...generate], folder);
  const port = await findFreePort();
  const text = readFileSync(config, 'utf8').replace('port: 8008', `port: ${port}`);
  assert.ok(text.includes(String(port)), text);
  writeFileSync(config, text);
  const child = spawn(join(venv, 'bin/python'), module, { cwd: folder, stdio: 'ignore' });
  started.push(() => child.kill('SIGKILL'));
  const url = `http://127.0.0.1:${port}`;
  await waitFor('Synapse', async () => (await fetch(`${url}/_matrix/client/versions`)).ok);
  const account = ['-u', 'oracle', '-p', 'secret', '--no-admin', '-c', config, url];
  run(join(venv, 'bin/register_new_matrix_user'), account, folder);
  const identifier = { type: 'm.id.user', user: 'oracle' };
  const login = { type: 'm.login.password', identifier, password: 'secret' };
  const response = await fetch(`${url}/_matrix/client/v3/login`, {
    method: 'POST',
    body: JSON.stringify(login),
  });
  const { access_token: token } = (await response.json()) as { access_token: string };
  return { url, token, child };
}

/** The preferences in the rooms of the oracle. */
async function readCopies({ url, token }: Synapse): Promise<{ language: string }[]> {
  const get = (path: string) =>
    fetch(`${url}/_matrix/client/v3${path}`, { headers: { authorization: `Bearer ${token}` } });
  const { joined_rooms: rooms } = (await (await get('/joined_rooms')).json()) as {
    joined_rooms: string[];
  };
  const copies = rooms.map(async (room) => {
    const path = `/rooms/${encodeURIComponent(room)}/state/org.sibyl.room_state/user-preferences`;
    const response = await get(path);
    return response.ok ? [(await response.json()) as { language: string }] : [];
  });
  return (await Promise.all(copies)).flat();
}

async function waitFor(what: string, isThere: () => Promise<boolean>): Promise<void> {
  for (const deadline = performance.now() + TIMEOUT_MS; performance.now() < deadline; ) {
    if (await isThere().catch(() => false)) return;
    await delay(500);
  }
  throw new Error(`${what}: not within ${TIMEOUT_MS / 1000} s`);
}

function run(command: string, args: readonly string[], cwd: string): void {
  const { status, stderr, error } = spawnSync(command, args, { cwd, encoding: 'utf8' });
  if (status !== 0) throw new Error(`${command} failed: ${error ?? stderr}`);
}

async function findFreePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}
