import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { useOracle } from '../../web/test/support/oracle.js';
import { sibyl, startSibyl } from './support/sibyl.js';

const oracle = useOracle();
const home = mkdtempSync(join(tmpdir(), 'sibyl-cli-'));
const env = { SIBYL_KEY_FILE: join(home, 'key') };

afterAll(() => rmSync(home, { recursive: true, force: true }));

describe('sibyl', () => {
  it('lists its commands, and explains each', async () => {
    const { stdout, code } = await sibyl([]);
    expect(code).toBe(0);
    const names = [...stdout.matchAll(/^ {2}(\w+) {2,}\S/gm)].map(([, name]) => String(name));
    expect(names).toEqual([
      'start',
      'new',
      'chat',
      'key',
      'token',
      'delegate',
      'doctor',
      'plugins',
      'credits',
      'gateway',
    ]);
    for (const name of names) {
      const help = await sibyl([name, '--help']);
      expect(help).toMatchObject({ code: 0, stdout: expect.stringContaining(`sibyl ${name}`) });
      expect(help.stdout).toContain('--json');
    }
  });

  it.each([
    [['fly'], 'no command "fly"'],
    [['chat', '--loud'], "Unknown option '--loud'"],
    [['delegate'], 'grant, status or revoke'],
    [['credits', 'grant', 'bob', '5'], 'a DID'],
    [['new', 'Not A Name'], 'lower case'],
    [['key', 'sell'], 'show, new, import, export'],
  ])('says what is wrong with %j, with exit code 2', async (args, text) => {
    const { code, stderr } = await sibyl(args, { env });
    expect({ code, stderr }).toEqual({ code: 2, stderr: expect.stringContaining(text) });
  });

  it('says so when no oracle answers', async () => {
    const { code, stderr } = await sibyl(['token', 'http://127.0.0.1:1'], { env });
    expect(code).toBe(1);
    expect(stderr).toContain('sibyl start');
    const json = await sibyl(['token', 'http://127.0.0.1:1', '--json'], { env });
    expect(JSON.parse(json.stdout)).toMatchObject({ code: 'failed' });
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

  it('takes a mnemonic', async () => {
    const own = { SIBYL_KEY_FILE: join(home, 'words') };
    const input = `${'abandon '.repeat(11)}about`;
    const { stdout } = await sibyl(['key', 'import', '--mnemonic'], { env: own, input });
    expect(stdout).toBe('did:key:z6MkpPcjwo4wP49VnvG7isXnqvFJyEqZ5JxSjohHxTT9Zr1c');
  });
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
});

describe('sibyl chat', () => {
  it('sends one message and writes the answer', async () => {
    const run = startSibyl(['chat', oracle.url, '-m', 'Hello'], { env, input: '' });
    const turn = await oracle.model.next();
    turn.call({ name: 'recall', input: { query: 'hello' } });
    const after = await oracle.model.next();
    after.say('Hi \u001b[31mthere');
    after.finish();
    expect(await run.ended).toBe(0);
    expect(run.stdout).toContain('⚙ recall');
    expect(run.stdout).toContain('Hi [31mthere');
    expect(run.stdout).not.toContain('\u001b');
  });

  it('stops the answer on Ctrl-C, and leaves on the next', async () => {
    const run = startSibyl(['chat', oracle.url], { env });
    await expect.poll(() => run.stdout).toContain('> ');
    run.child.stdin?.write('Go on for ever\n');
    const turn = await oracle.model.next();
    turn.say('On and on');
    await expect.poll(() => run.stdout).toContain('On and on');
    run.child.kill('SIGINT');
    await turn.left;
    await expect.poll(() => run.stdout).toContain('(aborted)');
    run.child.kill('SIGINT');
    expect(await run.ended).toBe(0);
  });
});

describe('sibyl doctor and plugins', () => {
  it('finds nothing wrong with the defaults', async () => {
    const DATA_DIR = join(home, 'data');
    const { code, stdout } = await sibyl(['doctor', '--json'], { env: { ...env, DATA_DIR } });
    expect(code).toBe(0);
    const { checks } = JSON.parse(stdout);
    expect(checks.map(({ name, state }: { name: string; state: string }) => [name, state])).toEqual(
      [
        ['configuration', 'ok'],
        ['store', 'ok'],
        ['model', 'off'],
        ['Matrix', 'off'],
        ['chain', 'off'],
        ['gateway', 'off'],
      ],
    );
  });

  it('says what is wrong and what to do', async () => {
    const config = await sibyl(['doctor'], { env: { ...env, PORT: 'many' } });
    expect(config).toMatchObject({ code: 1, stdout: expect.stringContaining('PORT') });
    const broken = {
      ...env,
      DATA_DIR: join(home, 'data'),
      DATABASE_URL: 'postgres://nobody@127.0.0.1:1/none',
      MATRIX_BASE_URL: 'http://127.0.0.1:1',
    };
    const { code, stdout } = await sibyl(['doctor'], { env: broken });
    expect(code).toBe(1);
    expect(stdout).toContain('✗ store');
    expect(stdout).toContain('Check DATABASE_URL');
    expect(stdout).toContain('✗ Matrix');
  });

  it('lists plugins, with the reason where one is not loaded', async () => {
    const { stdout } = await sibyl(['plugins'], { env: { ...env, FEATURES: 'memory=false' } });
    expect(stdout).toMatch(/user-preferences +\S+ +loaded/);
    expect(stdout).toMatch(/memory +\S+ +not loaded/);
    expect(stdout).toMatch(/mcp +\S+ +not loaded +set MCP_SERVERS/);
  });
});

describe('sibyl credits', () => {
  it('grants credit in the store of the oracle', async () => {
    const DATA_DIR = join(home, 'data');
    const did = 'did:key:z6MkpPcjwo4wP49VnvG7isXnqvFJyEqZ5JxSjohHxTT9Zr1c';
    const first = await sibyl(['credits', 'grant', did, '100'], { env: { ...env, DATA_DIR } });
    expect(first.stdout).toContain('the balance is 100');
    const again = await sibyl(['credits', 'grant', did, '50', '--json'], {
      env: { ...env, DATA_DIR },
    });
    expect(JSON.parse(again.stdout)).toMatchObject({ balance: 150 });
  });
});
