// Runs a host with a real Synapse and its default rate limits: thirty new users save preferences, and all are there at once;
// the copies in Matrix follow at the pace that Synapse permits. Then Synapse hangs. Before that, a user talks to
// the oracle in rooms.
import assert from 'node:assert/strict';
import { type ChildProcess, spawnSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { MAIN } from './build.ts';
import {
  type CheckContext,
  createUser,
  getVenv,
  runCheck,
  startForeign,
  startService,
  waitFor,
} from './third-party.ts';

const SYNAPSE = { name: 'matrix-synapse', version: '1.163.2' };
const NEW_USERS = 30;

process.exitCode = await runCheck('Synapse', SYNAPSE, check);

async function check(context: CheckContext): Promise<void> {
  const { folder, started } = context;
  const synapse = await startSynapse(context);
  const env = {
    PORT: '0',
    DATA_DIR: join(folder, 'data'),
    MODEL: 'offline',
    MATRIX_BASE_URL: synapse.url,
    MATRIX_ACCESS_TOKEN: synapse.oracle.token,
    MATRIX_CHAT: 'true',
    OUTGOING_ALLOW: '127.0.0.1',
  };
  let host = await startService([MAIN], env);
  started.push(() => host.stop());
  await checkChat(synapse, host.url, async () => {
    await host.stop();
    return async () => {
      host = await startService([MAIN], env);
    };
  });
  const users = await savePreferences(host.url);
  await waitFor('five copies in Matrix', async () => (await readCopies(synapse)).length >= 5);
  for (const copy of await readCopies(synapse)) assert.match(copy.language, /^Spanish$/);
  console.log('Synapse: the copies are in the rooms of the users, one after the other');
  synapse.child.kill('SIGSTOP');
  started.push(() => synapse.child.kill('SIGCONT'));
  await checkHanging(users[0] ?? assert.fail('no user'), await createUser(host.url));
}

/** Alice invites the oracle, asks in threads, links her account, and finds an encrypted room refused. */
async function checkChat(
  { alice, oracle }: Synapse,
  url: string,
  stopHost: () => Promise<() => Promise<void>>,
): Promise<void> {
  const room = await openRoom(alice, oracle);
  const root = await room.say('count to 3');
  await room.expectAnswers(1, /1[\s\S]*2[\s\S]*3/);
  const [answer] = await room.readAnswers();
  assert.equal(answer?.content['m.relates_to']?.event_id, root, JSON.stringify(answer));
  const user = await createUser(url);
  const delegation = user.delegate('oracle/run', `matrix/${encodeURIComponent(alice.userId)}`);
  const link = await user.send('POST', '/matrix/links', { userId: alice.userId, delegation });
  await room.say(link.code ?? assert.fail(JSON.stringify(link)));
  await room.expectAnswers(2, new RegExp(user.did));
  await room.say('count to 3');
  await room.expectAnswers(3, /1[\s\S]*2[\s\S]*3/);
  assert.equal((await user.send('GET', '/sessions')).sessions.length, 1);
  const start = await stopHost();
  await room.say('count to 4');
  await start();
  await room.expectAnswers(4, /4/);
  const encryption = {
    type: 'm.room.encryption',
    state_key: '',
    content: { algorithm: 'm.megolm.v1.aes-sha2' },
  };
  const secret = await openRoom(alice, oracle, [encryption]);
  await secret.say('…', 'm.room.encrypted');
  await secret.expectAnswers(1, /encrypted/);
  assert.equal((await room.readAnswers()).length, 4);
  console.log('Synapse: the oracle answers in threads, as the linked user, once across a restart');
}

interface Account {
  readonly userId: string;
  readonly token: string;
  // biome-ignore lint/suspicious/noExplicitAny: the assertions state what is expected.
  call(method: string, path: string, body?: object): Promise<any>;
}

/** A room with the oracle, seen by its creator. */
async function openRoom(account: Account, oracle: Account, state: readonly object[] = []) {
  const { room_id: id } = await account.call('POST', '/createRoom', {
    preset: 'private_chat',
    invite: [oracle.userId],
    initial_state: state,
  });
  const path = `/rooms/${encodeURIComponent(id)}`;
  await waitFor('the oracle in the room', async () => {
    const { joined } = await account.call('GET', `${path}/joined_members`);
    return Object.hasOwn(joined, oracle.userId);
  });
  const readAnswers = async () => {
    const { chunk } = await account.call('GET', `${path}/messages?dir=b&limit=100`);
    const sent = (chunk as RoomEvent[]).filter(({ sender }) => sender === oracle.userId);
    return sent.filter(({ type }) => type === 'm.room.message').reverse();
  };
  return {
    readAnswers,
    say: async (body: string, type = 'm.room.message'): Promise<string> => {
      const plain = { msgtype: 'm.text', body };
      const cipher = { algorithm: 'm.megolm.v1.aes-sha2', ciphertext: body };
      const content = type === 'm.room.message' ? plain : cipher;
      const sent = await account.call('PUT', `${path}/send/${type}/${randomUUID()}`, content);
      return sent.event_id ?? assert.fail(JSON.stringify(sent));
    },
    expectAnswers: async (count: number, last: RegExp) => {
      await waitFor(`answer ${count}`, async () => (await readAnswers()).length >= count);
      const answers = await readAnswers();
      assert.equal(answers.length, count);
      assert.match(answers.at(-1)?.content.body ?? '', last);
    },
  };
}

interface RoomEvent {
  readonly type: string;
  readonly sender: string;
  readonly content: { readonly body?: string; readonly 'm.relates_to'?: { event_id: string } };
}

type User = Awaited<ReturnType<typeof createUser>>;

async function savePreferences(url: string): Promise<User[]> {
  const startedAt = performance.now();
  const users: User[] = [];
  for (let i = 0; i < NEW_USERS; i += 1) {
    const user = await createUser(url);
    await ask(user, 'Please answer in Spanish from now on.');
    users.push(user);
  }
  const seconds = Math.round((performance.now() - startedAt) / 1000);
  for (const user of users)
    assert.equal((await user.send('GET', '/user-preferences')).language, 'Spanish');
  console.log(`Synapse: ${NEW_USERS} new users saved their preferences in ${seconds} s`);
  return users;
}

async function ask(user: User, message: string, more: object = {}) {
  const reply = await user.ask(message, more);
  assert.equal(reply.status, 'finished', JSON.stringify(reply));
  return reply;
}

/** Turns of users of the homeserver continue with a warning, those of others without. */
async function checkHanging(alice: User, bob: User): Promise<void> {
  const before = await measure(() => ask(bob, 'count to 3'));
  const attachments = [{ mxcUri: 'mxc://test/a', filename: 'a.txt', mimetype: 'text/plain' }];
  const slow = await measure(() => ask(alice, 'count to 3', { attachments }));
  assert.match(JSON.stringify(slow.result.warnings), /the homeserver does not answer/);
  await waitFor('the warning', async () => {
    const { warnings = [] } = await ask(alice, 'count to 3', { attachments });
    return JSON.stringify(warnings).includes('homeserver_unavailable');
  });
  assert.equal((await alice.send('GET', '/user-preferences')).language, 'Spanish');
  const other = await measure(() => ask(bob, 'count to 3'));
  assert.equal(other.result.warnings, undefined);
  const [a, b, c] = [before, slow, other].map(({ ms }) => Math.round(ms));
  console.log(`Synapse hangs: turns of others ${a} → ${c} ms, the first turn with a file ${b} ms`);
}

async function measure<T>(work: () => Promise<T>): Promise<{ result: T; ms: number }> {
  const startedAt = performance.now();
  return { result: await work(), ms: performance.now() - startedAt };
}

interface Synapse {
  readonly url: string;
  readonly oracle: Account;
  readonly alice: Account;
  readonly child: ChildProcess;
}

/** Starts Synapse with the configuration that it generates itself; only its address differs. */
async function startSynapse(context: CheckContext): Promise<Synapse> {
  const { folder } = context;
  const venv = resolve(getVenv(SYNAPSE));
  const config = join(folder, 'homeserver.yaml');
  const module = ['-m', 'synapse.app.homeserver', '--config-path', config];
  const generate = ['--server-name', 'test', '--generate-config', '--report-stats=no'];
  run(join(venv, 'bin/python'), [...module, ...generate], folder);
  const { url, child } = await startForeign(context, {
    command: join(venv, 'bin/python'),
    cwd: folder,
    path: '/_matrix/client/versions',
    args: (port) => {
      const text = readFileSync(config, 'utf8').replace('port: 8008', `port: ${port}`);
      assert.ok(text.includes(String(port)), text);
      writeFileSync(config, text);
      return module;
    },
  });
  const register = async (user: string): Promise<Account> => {
    const account = ['-u', user, '-p', 'secret', '--no-admin', '-c', config, url];
    run(join(venv, 'bin/register_new_matrix_user'), account, folder);
    return logIn(url, user);
  };
  return { url, child, oracle: await register('oracle'), alice: await register('alice') };
}

async function logIn(url: string, user: string): Promise<Account> {
  const send = async (token: string | undefined, method: string, path: string, body?: object) => {
    const response = await fetch(`${url}/_matrix/client/v3${path}`, {
      method,
      headers: token ? { authorization: `Bearer ${token}` } : {},
      ...(body && { body: JSON.stringify(body) }),
    });
    return response.json();
  };
  const identifier = { type: 'm.id.user', user };
  const login = { type: 'm.login.password', identifier, password: 'secret' };
  const { access_token: token, user_id: userId } = await send(undefined, 'POST', '/login', login);
  return { token, userId, call: (method, path, body) => send(token, method, path, body) };
}

/** The preferences in the rooms of the oracle. */
async function readCopies({ oracle }: Synapse): Promise<{ language: string }[]> {
  const { joined_rooms: rooms } = await oracle.call('GET', '/joined_rooms');
  const copies = (rooms as string[]).map(async (room) => {
    const path = `/rooms/${encodeURIComponent(room)}/state/org.sibyl.room_state/user-preferences`;
    const copy = await oracle.call('GET', path);
    return copy.errcode ? [] : [copy as { language: string }];
  });
  return (await Promise.all(copies)).flat();
}

function run(command: string, args: readonly string[], cwd: string): void {
  const { status, stderr, error } = spawnSync(command, args, { cwd, encoding: 'utf8' });
  if (status !== 0) throw new Error(`${command} failed: ${error ?? stderr}`);
}
