import { spawnSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { useOracle } from '../../web/test/support/oracle.js';
import { commands } from '../src/run.js';
import { MAIN, sibyl, sibylInProcess, useFolder } from './support/sibyl.js';

const oracle = useOracle();
const home = useFolder();
const env = { SIBYL_KEY_FILE: join(home, 'key') };

describe('sibyl', () => {
  it('lists its commands', async () => {
    const { stdout, code } = await sibyl([]);
    expect(code).toBe(0);
    const names = [...stdout.matchAll(/^ {2}(\w+) {2,}\S/gm)].map(([, name]) => name);
    expect(names).toEqual(commands.map(({ name }) => name));
    expect((await sibyl(['--version'])).stdout).toMatch(/^\d+\.\d+\.\d+$/);
  });

  it.each(commands.map(({ name }) => name))('explains %s', async (name) => {
    const help = await sibylInProcess([name, '--help']);
    expect(help).toMatchObject({ code: 0, stdout: expect.stringContaining(`sibyl ${name}`) });
    expect(help.stdout).toContain('--json');
    expect(await sibylInProcess(['help', name])).toEqual(help);
  });

  it.each([
    [[], 'stderr'],
    [['--json'], 'stdout'],
  ] as const)('doctor %j reports a Node that is too old', async (options, stream) => {
    const old = 'Object.defineProperty(process,"versions",{value:{node:"20.1.0"}})';
    const NODE_OPTIONS = `--import=data:text/javascript,${encodeURIComponent(old)}`;
    const { code, ...output } = await sibyl(['doctor', ...options], { env: { NODE_OPTIONS } });
    expect([code, output[stream]]).toEqual([1, expect.stringContaining('sibyl needs Node 24')]);
    if (stream === 'stdout')
      expect(JSON.parse(output.stdout)).toEqual({ error: expect.any(String), code: 'failed' });
  });

  it.each([
    [['fly'], 'no command "fly"'],
    [['help', 'fly'], 'no command "fly"'],
    [['files', 'toString'], 'no action "toString"'],
    [['chat', '--loud'], "Unknown option '--loud'"],
    [['delegate'], 'grant, status, list, revoke'],
    [['delegate', 'revoke', 'bafyone', '--all'], 'not both'],
    [['schedules', 'fly'], 'list, add, show, change, pause, resume, run, authorize, remove'],
    [['schedules', 'pause'], 'its id'],
    [['matrix', 'fly'], 'list, link, unlink'],
    [['matrix', 'link'], '@alice:example.org'],
    [['schedules', 'add', 'x', '--cron', '* * * * *'], '--message is missing'],
    [['schedules', 'add', 'x', '--message', 'x'], 'one of --cron, --at, --in and --webhook'],
    [['schedules', 'add', 'x', '--message', 'x', '--in', 'soon'], 'such as 90m'],
    [['schedules', 'add', 'x', '--message', 'x', '--at', 'noon'], '2027-01-31T08:00'],
    [['invite', '--days', '0'], 'from 1 to 365'],
    [['callers', 'remove', 'bob'], 'a DID'],
    [['credits', 'grant', 'bob', '5'], 'a DID'],
    [['new', 'Not A Name'], 'lower case'],
    [['key', 'sell'], 'show, new, import, export'],
    [['users', 'block', 'did:key:zA', 'did:key:zB'], 'Unexpected argument "did:key:zB"'],
    [['approvals', 'approve', ''], 'An argument is empty'],
    [['delegate', 'revoke', ' '], 'An argument is empty'],
    [['retention', '30'], 'Unexpected argument "30"'],
  ])('says what is wrong with %j, with exit code 2', async (args, text) => {
    const { code, stderr } = await sibylInProcess(args, { env });
    expect({ code, stderr }).toEqual({ code: 2, stderr: expect.stringContaining(text) });
  });

  it.each(commands.filter(({ usage }) => usage.some((line) => line.startsWith('[list] [url]'))))(
    '$name with an address alone lists',
    async ({ name }) => {
      const listed = await sibylInProcess([name, 'list', oracle.url, '--json'], { env });
      const { code, stdout } = await sibylInProcess([name, oracle.url, '--json'], { env });
      expect({ code, stdout }).toEqual({ code: 0, stdout: listed.stdout });
    },
  );

  it('export with an address alone writes the default file', async () => {
    const { code, stdout } = await sibyl(['export', oracle.url], { env, cwd: home });
    expect({ code, stdout }).toEqual({
      code: 0,
      stdout: expect.stringContaining('sibyl-export.zip'),
    });
    expect(existsSync(join(home, 'sibyl-export.zip'))).toBe(true);
  });

  it('says so when no oracle answers', async () => {
    const unused = createServer().listen(0, '127.0.0.1');
    await once(unused, 'listening');
    const url = `http://127.0.0.1:${(unused.address() as AddressInfo).port}`;
    await new Promise((resolve) => unused.close(resolve));
    const { code, stderr } = await sibyl(['token', url], { env });
    expect(code).toBe(1);
    expect(stderr).toContain('sibyl start');
    const https = await sibylInProcess(['token', oracle.url.replace('http', 'https')], { env });
    expect(https).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('Cannot reach https:'),
    });
    const query = await sibylInProcess(['token', `${oracle.url}/?a=b`], { env });
    expect(query).toMatchObject({ code: 1, stderr: expect.stringContaining('remove what begins') });
    const json = await sibylInProcess(['token', 'http://127.0.0.1:1', '--json'], { env });
    expect(JSON.parse(json.stdout)).toMatchObject({ code: 'failed' });
    const page = await sibylInProcess(['token', `${oracle.url}/app`], { env });
    expect(page).toMatchObject({ code: 1, stderr: expect.stringContaining('No such route') });
    const none = await sibylInProcess(['token', 'localhost:3000'], { env });
    expect(none).toMatchObject({ code: 1, stderr: expect.stringContaining('is not an address') });
  });

  it('takes the address of the oracle from .env, too', async () => {
    const cwd = join(home, 'project');
    mkdirSync(cwd);
    // As editors of Windows write it.
    writeFileSync(join(cwd, '.env'), `\uFEFFSIBYL_URL=${oracle.url}\r\n`);
    const { stdout } = await sibyl(['token', '--json'], { env, cwd });
    expect(JSON.parse(stdout)).toMatchObject({ audience: oracle.did });
    writeFileSync(join(cwd, '.env'), 'SIBYL_URL=x', 'utf16le');
    const unreadable = await sibyl(['token'], { env, cwd });
    expect(unreadable).toMatchObject({ code: 1, stderr: expect.stringContaining('UTF-8') });
    rmSync(join(cwd, '.env'));
    mkdirSync(join(cwd, '.env'));
    const folder = await sibyl(['token'], { env, cwd });
    expect(folder).toEqual({
      code: 1,
      stdout: '',
      stderr: expect.stringMatching(/^Cannot read \.env .*EISDIR.*$/),
    });
  });
});

describe('sibyl key', () => {
  it('makes a key only its owner can read, exports it and takes it back', async () => {
    const own = { SIBYL_KEY_FILE: join(home, 'mine') };
    const { stdout: did } = await sibyl(['key'], { env: own });
    expect(did).toMatch(/^did:key:z6Mk/);
    expect(statSync(own.SIBYL_KEY_FILE).mode & 0o777).toBe(0o600);
    const { stdout: secret } = await sibyl(['key', 'export'], { env: own });
    const { stdout: other } = await sibyl(['key', 'new'], { env: own });
    expect(other).not.toBe(did);
    const back = await sibyl(['key', 'import'], { env: own, input: secret });
    expect(back.stdout).toBe(did);
    const bad = await sibyl(['key', 'import'], { env: own, input: 'rubbish' });
    expect(bad.code).toBe(1);
    expect((await sibyl(['key', 'show', '--json'], { env: own })).stdout).toContain(did);
  });

  it('exports the words of the chat page, and takes them back as people write them', async () => {
    const own = { SIBYL_KEY_FILE: join(home, 'words') };
    const { stdout: did } = await sibyl(['key'], { env: own });
    const { stdout: words } = await sibyl(['key', 'export', '--words'], { env: own });
    expect(words.split(' ')).toHaveLength(24);
    await sibyl(['key', 'new'], { env: own });
    const input = words
      .split(' ')
      .map((word, i) => `${i + 1}. ${word.toUpperCase()}`)
      .join('\n');
    expect((await sibyl(['key', 'import'], { env: own, input })).stdout).toBe(did);
  });

  it.each([
    ['too few words', 'abandon '.repeat(12), '--wallet-mnemonic'],
    ['an unknown word', `${'abandon '.repeat(23)}sibyl`, '"sibyl"'],
    ['words with a wrong checksum', 'abandon '.repeat(24), 'two are swapped'],
  ])('says what is wrong with %s, and keeps the key', async (_, input, expected) => {
    const own = { SIBYL_KEY_FILE: join(home, 'kept') };
    const { stdout: did } = await sibyl(['key'], { env: own });
    const { code, stderr } = await sibyl(['key', 'import'], { env: own, input });
    expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringContaining(expected) });
    expect((await sibyl(['key'], { env: own })).stdout).toBe(did);
  });

  it('says what keeps it from a file and what to do, without a stack', async () => {
    writeFileSync(join(home, 'not-a-folder'), '');
    for (const path of [join(home, 'not-a-folder', 'key'), home]) {
      const { code, stderr } = await sibylInProcess(['key'], { env: { SIBYL_KEY_FILE: path } });
      expect(code).toBe(1);
      expect(stderr).toContain(`Cannot open your key ${path}: E`);
      expect(stderr).toMatch(/Set SIBYL_KEY_FILE.*$/);
    }
  });

  it.each(['new', 'import'])('key %s keeps the key if the disk is full', async (action) => {
    const folder = join(home, `full-${action}`);
    const own = { SIBYL_KEY_FILE: join(folder, 'key') };
    const { stdout: did } = await sibyl(['key'], { env: own });
    const { stdout: input } = await sibyl(['key', 'export'], { env });
    const { status, stderr } = spawnSync(
      'sh',
      ['-c', 'ulimit -f 0; exec "$0" "$@"', process.execPath, MAIN, 'key', action],
      { env: { ...process.env, ...own }, input, encoding: 'utf8' },
    );
    expect({ status, stderr }).toEqual({ status: 1, stderr: expect.stringContaining('EFBIG') });
    expect(readdirSync(folder)).toEqual(['key']);
    expect((await sibyl(['key'], { env: own })).stdout).toBe(did);
  });

  it('takes the mnemonic of a wallet, in a folder that it makes', async () => {
    const own = { XDG_CONFIG_HOME: join(home, 'settings') };
    const input = `${'abandon '.repeat(11)}about`;
    const { stdout } = await sibyl(['key', 'import', '--wallet-mnemonic'], { env: own, input });
    expect(stdout).toBe('did:key:z6MkpPcjwo4wP49VnvG7isXnqvFJyEqZ5JxSjohHxTT9Zr1c');
    expect(statSync(join(home, 'settings/sibyl')).mode & 0o777).toBe(0o700);
  });

  it.each([
    ['empty', { XDG_CONFIG_HOME: '' }],
    ['blank', { XDG_CONFIG_HOME: ' ' }],
    ['relative', { XDG_CONFIG_HOME: 'settings' }],
    ['empty, and so is SIBYL_KEY_FILE', { XDG_CONFIG_HOME: '', SIBYL_KEY_FILE: '' }],
  ])('keeps it in the home folder where XDG_CONFIG_HOME is %s', async (_, own) => {
    const [cwd, HOME] = [join(home, randomUUID()), join(home, randomUUID())];
    mkdirSync(cwd);
    mkdirSync(HOME);
    const { stdout } = await sibylInProcess(['key', '--json'], { env: { ...own, HOME }, cwd });
    expect(JSON.parse(stdout).path).toBe(join(HOME, '.config/sibyl/key'));
    expect(readdirSync(cwd)).toEqual([]);
  });

  it('says what to set where there is no home folder', async () => {
    const cwd = join(home, randomUUID());
    mkdirSync(cwd);
    const { code, stderr } = await sibylInProcess(['key'], { env: { HOME: '' }, cwd });
    expect({ code, stderr }).toEqual({
      code: 1,
      stderr: expect.stringContaining('set HOME, or SIBYL_KEY_FILE'),
    });
    expect(readdirSync(cwd)).toEqual([]);
  });
});

it('sibyl new: the .env of a project counts whole, also with a byte order mark', async () => {
  const example = readFileSync(new URL('../template/env.example', import.meta.url), 'utf8');
  const path = join(home, 'marked.env');
  writeFileSync(path, `\uFEFF${example}`);
  const args = [`--env-file-if-exists=${path}`, '-p', 'process.env.ORACLE_NAME'];
  const { stdout } = spawnSync(process.execPath, args, { encoding: 'utf8' });
  expect(stdout.trim()).toBe('__NAME__');
});

describe('sibyl token', () => {
  it('prints a bearer that the oracle accepts', async () => {
    const { stdout: token } = await sibyl(['token', oracle.url], { env });
    const response = await fetch(`${oracle.url}/sessions`, {
      headers: { authorization: `Bearer ${token}`, 'x-auth-type': 'ucan' },
    });
    expect(response.status).toBe(200);
  });
});

describe('sibyl keys', () => {
  it('creates a key that is shown once, lists it and revokes it', async () => {
    const create = ['keys', 'create', 'Editor', oracle.url, '--turns-per-day', '5'];
    create.push('--tools', 'none', '--user', '*');
    const created = await sibylInProcess([...create, '--json'], { env });
    const { id, key, caveats } = JSON.parse(created.stdout);
    expect(caveats).toEqual({ turnsPerDay: 5, tools: [], user: '*' });
    expect(key.length).toBeGreaterThan(300);
    const listed = await sibylInProcess(['keys', 'list', oracle.url], { env });
    expect(listed.stdout).toMatch(
      new RegExp(`${id} +Editor +turnsPerDay 5, tools none, user \\* +never used +until`),
    );
    expect(listed.stdout).not.toContain(key);
    const revoked = await sibylInProcess(['keys', 'revoke', id, oracle.url], { env });
    expect([revoked.code, revoked.stdout]).toEqual([0, 'Revoked']);
    const after = await sibylInProcess(['keys', 'list', oracle.url], { env });
    expect(after.stdout).toContain('You have no access keys');
  });

  it.each([
    [['--session', 'nope'], 'No such session'],
    [['--model', 'nope'], 'The oracle does not have the model "nope". It has '],
  ])('creates none for something unknown: %j', async (terms, text) => {
    const create = ['keys', 'create', 'Editor', oracle.url];
    const { code, stderr } = await sibylInProcess([...create, ...terms], { env });
    expect([code, stderr]).toEqual([1, expect.stringContaining(text)]);
    const listed = await sibylInProcess(['keys', 'list', oracle.url], { env });
    expect(listed.stdout).toContain('You have no access keys');
  });

  it.each([
    [['keys', 'fly'], 'create, list, revoke'],
    [['keys', 'create'], 'Give the key a name'],
    [['keys', 'create', 'x', '--days', '0'], '--days must be'],
    [['keys', 'revoke'], 'Name the id'],
  ])('%j is invalid usage', async (args, text) => {
    const { code, stderr } = await sibylInProcess(args, { env });
    expect(code).toBe(2);
    expect(stderr).toContain(text);
  });
});

describe('sibyl delegate', () => {
  it('grants, shows and revokes', async () => {
    const can = ['--can', 'store/*', '--hours', '2'];
    const granted = await sibyl(['delegate', 'grant', oracle.url, ...can], { env });
    expect(granted).toMatchObject({ code: 0, stdout: expect.stringContaining('store/*') });
    const status = await sibyl(['delegate', 'status', oracle.url, '--json'], { env });
    expect(JSON.parse(status.stdout)).toMatchObject({ authorized: true });
    await sibyl(['delegate', 'revoke', oracle.url], { env });
    const after = await sibyl(['delegate', 'status', oracle.url], { env });
    expect(after.stdout).toBe('Nothing is granted');
  });

  it('delegate list shows all; delegate revoke ends one by its CID, or all', async () => {
    const grant = ['delegate', 'grant', oracle.url, '--can'];
    for (const can of ['store/add', 'store/list', 'store/remove'])
      await sibylInProcess([...grant, can], { env });
    const shown = await sibylInProcess(['delegate', 'list', oracle.url], { env });
    expect(shown.stdout).toMatch(/^bafy\w+ +store\/remove with did:key:\w+ +until .* +current$/m);
    expect(shown.stdout.split('\n')).toHaveLength(3);
    const json = await sibylInProcess(['delegate', 'list', oracle.url, '--json'], { env });
    const [, { cid }] = JSON.parse(json.stdout).delegations;
    const one = await sibylInProcess(['delegate', 'revoke', cid, oracle.url], { env });
    expect(one).toMatchObject({ code: 0, stdout: 'Revoked' });
    const again = await sibylInProcess(['delegate', 'revoke', cid, oracle.url], { env });
    expect(again).toMatchObject({ code: 1, stderr: 'No such delegation' });
    const all = await sibylInProcess(['delegate', 'revoke', '--all', oracle.url], { env });
    expect(all.stdout).toBe('Revoked 2');
  });
});

describe('sibyl schedules', () => {
  it('adds, lists, pauses, resumes, runs, authorizes and removes', async () => {
    const call = (...args: string[]) => sibylInProcess(['schedules', ...args, oracle.url], { env });
    const cron = ['--cron', '0 8 * * MON-FRI', '--timezone', 'Africa/Nairobi'];
    const added = await sibyl(
      ['schedules', 'add', 'News', oracle.url, '--message', 'hello', ...cron, '--json'],
      { env },
    );
    expect(added.code).toBe(0);
    const { id, status, nextDueAt } = JSON.parse(added.stdout);
    expect(status).toBe('active');
    expect(nextDueAt).toContain('T05:00');
    const listed = await call('list');
    expect(listed.stdout).toMatch(
      new RegExp(`^${id} +News +0 8 .* \\(Africa/Nairobi\\) +active +next .* authorized until`),
    );
    expect(await call('pause', id)).toMatchObject({ code: 0, stdout: 'Paused' });
    expect((await call('list')).stdout).toContain('paused');
    expect(await call('resume', id)).toMatchObject({ code: 0, stdout: 'Resumed' });
    expect(await call('run', id)).toMatchObject({ code: 0 });
    (await oracle.model.next()).answer('Nothing new');
    // One command at a time: each captures the output of this process.
    let shown = '';
    while (!/manual +finished/.test(shown)) shown = (await call('show', id)).stdout;
    expect((await call('authorize', id)).stdout).toMatch(/message +hello.*authorized until/s);
    expect((await call('change', id, '--message', 'bye')).stdout).toContain('Changed and signed');
    const changed = (await call('show', id)).stdout;
    expect(changed).toMatch(/message +bye.*status +active/s);
    expect(await call('remove', id)).toMatchObject({ code: 0, stdout: 'Removed' });
    expect((await call('list')).stdout).toBe('No schedules');
    expect(await call('run', id)).toMatchObject({ code: 1, stderr: 'No such schedule' });
  });

  it('prints the secret of a webhook once, and what is wrong with a pattern', async () => {
    const add = ['schedules', 'add', 'Hook', oracle.url, '--message', 'hello'];
    const { stdout } = await sibylInProcess([...add, '--webhook'], { env });
    expect(stdout).toMatch(/Webhook: http.*\nSecret \(shown once\): whk_/);
    const wrong = await sibylInProcess([...add, '--cron', '0 0 30 2 *'], { env });
    expect(wrong).toMatchObject({ code: 1, stderr: expect.stringContaining('no such time') });
  });
});
