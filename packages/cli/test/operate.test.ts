import { once } from 'node:events';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join, resolve } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, expect, it, onTestFinished } from 'vitest';
import { startHost } from '../../host/test/support/host.js';
import { sibyl, sibylInProcess, useFolder } from './support/sibyl.js';

const FOLDER = useFolder();
const DATA_DIR = join(FOLDER, 'data');

function newFolder(name: string): string {
  const folder = join(FOLDER, name);
  mkdirSync(folder);
  return folder;
}

/** Has a first start make the key and the database. */
async function startOnce(env: Readonly<Record<string, string>>): Promise<void> {
  const host = await startHost({ env });
  await host.close();
}

const filesIn = (folder: string) =>
  readdirSync(folder).map((name) => [name, readFileSync(join(folder, name))]);

it('sibyl token reports the rate limit of an oracle, which does answer', async () => {
  const host = await startHost({ env: { RATE_LIMIT_ANONYMOUS_PER_MINUTE: '1' } });
  onTestFinished(() => host.close());
  const env = { SIBYL_KEY_FILE: join(FOLDER, 'key') };
  const token = () => sibylInProcess(['token', host.url, '--json'], { env });
  await expect.poll(async () => (await token()).code).toBe(1);
  expect(JSON.parse((await token()).stdout)).toMatchObject({ code: 'rate_limited' });
});

describe('sibyl doctor', () => {
  it('finds nothing wrong with the defaults', async () => {
    const { code, stdout } = await sibyl(['doctor', '--json'], { env: { DATA_DIR } });
    expect(code).toBe(0);
    const { checks } = JSON.parse(stdout);
    expect(checks.map(({ name, state }: { name: string; state: string }) => [name, state])).toEqual(
      [
        ['configuration', 'ok'],
        ['key', 'ok'],
        ['store', 'ok'],
        ['logins', 'off'],
        ['proxy', 'ok'],
        ['model', 'off'],
        ['Matrix', 'off'],
        ['chain', 'off'],
        ['gateway', 'off'],
      ],
    );
  });

  it('leaves an empty folder empty, and says what the first start makes', async () => {
    const cwd = newFolder('empty');
    const { code, stdout } = await sibylInProcess(['doctor'], { cwd });
    expect(code).toBe(0);
    expect(stdout).toContain('✓ key: made at the first start, in data/oracle.key');
    expect(stdout).toContain('✓ store: SQLite, made at the first start, in data/sibyl.db');
    expect(stdout).toMatch(/– logins: .*; set DELEGATION_LOGIN_MAX_DAYS=30/);
    expect(readdirSync(cwd)).toEqual([]);
  });

  it('names a proxy that is not trusted', async () => {
    const cwd = newFolder('proxy');
    const doctor = async (env: Record<string, string>) =>
      (await sibylInProcess(['doctor'], { cwd, env })).stdout;
    const PUBLIC_URL = 'https://oracle.example';
    const fault = /– proxy: PUBLIC_URL is https:\/\/oracle\.example.*; set TRUST_PROXY/;
    expect(await doctor({ PUBLIC_URL })).toMatch(fault);
    expect(await doctor({ PUBLIC_URL, TRUST_PROXY: 'loopback' })).toContain('✓ proxy: its');
    expect(await doctor({ PUBLIC_URL: 'http://localhost', PORT: '80' })).toContain('✓ proxy: none');
  });

  it('leaves what is there as it is', async () => {
    const env = { DATA_DIR: join(newFolder('kept'), 'data') };
    await startOnce(env);
    const before = filesIn(env.DATA_DIR);
    const { code, stdout } = await sibylInProcess(['doctor'], { env });
    expect(code).toBe(0);
    expect(stdout).toMatch(/✓ key: did:key:z6Mk/);
    expect(stdout).toContain(`✓ store: SQLite in ${env.DATA_DIR}\n`);
    expect(filesIn(env.DATA_DIR)).toEqual(before);
  });

  it('sibyl doctor leaves the update of a database to the next start', async () => {
    const env = { DATA_DIR: newFolder('older') };
    const file = join(env.DATA_DIR, 'sibyl.db');
    const older = new DatabaseSync(file);
    older.exec('create table kept (value)');
    older.close();
    const before = readFileSync(file);
    const { code, stdout } = await sibylInProcess(['doctor'], { env });
    expect(code).toBe(0);
    expect(stdout).toContain('the next start updates its tables');
    expect(readFileSync(file)).toEqual(before);
  });

  it('finds a folder in which nothing can be made', async () => {
    const file = join(newFolder('taken'), 'file');
    writeFileSync(file, '');
    const { code, stdout } = await sibylInProcess(['doctor'], {
      env: { DATA_DIR: join(file, 'data') },
    });
    expect(code).toBe(1);
    expect(stdout).toContain('✗ key');
    expect(stdout).toMatch(/✗ store.*DATA_DIR can be written/s);
  });

  it('names variables that are wrong, those of plugins too', async () => {
    const env = { DATA_DIR, PORT: 'many', MCP_SERVERS: '{' };
    const { code, stdout } = await sibylInProcess(['doctor'], { env });
    expect(code).toBe(1);
    expect(stdout).toMatch(/✗ configuration.*PORT.*MCP_SERVERS/s);
  });

  it('says what does not work and what to do', async () => {
    const env = {
      DATA_DIR,
      DATABASE_URL: 'postgres://guest@127.0.0.1:1/none',
      MODEL: 'openai-compatible/none',
      MODEL_BASE_URL: 'http://127.0.0.1:1',
      MATRIX_BASE_URL: 'http://127.0.0.1:1',
      GATEWAY_URL: 'http://127.0.0.1:1',
      OUTGOING_ALLOW: '127.0.0.1',
    };
    const { code, stdout } = await sibylInProcess(['doctor'], { env });
    expect(code).toBe(1);
    for (const part of ['store', 'model', 'Matrix', 'gateway'])
      expect(stdout).toContain(`✗ ${part}`);
    expect(stdout).toContain('Check DATABASE_URL');
    expect(stdout).toContain('sibyl gateway');
  });

  it('sibyl doctor checks every MCP server, and Slack', async () => {
    const slack = createServer((request, response) => {
      const ok = request.headers.authorization === 'Bearer xoxb-right';
      response.end(
        JSON.stringify(ok ? { ok, team: 'Lab', user: 'bot' } : { ok, error: 'invalid_auth' }),
      );
    }).listen(0, '127.0.0.1');
    await once(slack, 'listening');
    onTestFinished(() => void slack.close());
    const server = resolve('plugins/mcp/test/support/stdio-server.ts');
    const env = {
      DATA_DIR,
      MCP_SERVERS: JSON.stringify({
        demo: { command: process.execPath, args: [server] },
        gone: { command: 'no-such-command' },
        dead: { url: 'http://127.0.0.1:1/mcp' },
      }),
      OUTGOING_ALLOW: '127.0.0.1',
      SLACK_API_URL: `http://127.0.0.1:${(slack.address() as AddressInfo).port}`,
      SLACK_SIGNING_SECRET: 'secret',
      SLACK_BOT_TOKEN: 'xoxb-right',
    };
    const { code, stdout } = await sibyl(['doctor'], { env });
    expect(code).toBe(1);
    expect(stdout).toContain('✓ MCP server demo: 9 tools');
    expect(stdout).toMatch(/✗ MCP server gone: .*ENOENT.*\n.*Check command/);
    expect(stdout).toMatch(/✗ MCP server dead: .*\n.*Check the url/);
    expect(stdout).toContain('✓ Slack: bot in Lab');
    const wrong = await sibyl(['doctor'], { env: { ...env, SLACK_BOT_TOKEN: 'xoxb-wrong' } });
    expect(wrong.stdout).toMatch(/✗ Slack: Slack answers invalid_auth\n.*SLACK_BOT_TOKEN/);
  });

  describe('with plugins of the project', () => {
    const cwd = newFolder('own-plugins');
    const doctor = (code: string) => {
      writeFileSync(join(cwd, 'plugins.mjs'), code);
      return sibyl(['doctor', '--plugins', 'plugins.mjs'], { cwd });
    };
    const manifest = `{ title: 'Orders', summary: 'Orders.', whenToUse: ['an order'], category: 'shop', visibility: 'silent' }`;
    const plugin = (name: string, hook: string) =>
      `{ name: '${name}', version: '1.0.0', manifest: ${manifest}, diagnose: ${hook} }`;

    it('reports what they find; one that fails does not hide the others', async () => {
      const hook = `() => [{ name: 'Shop', ok: true, text: 'open' }]`;
      const { code, stdout } = await doctor(
        `export const plugins = [${plugin('orders', hook)}, ${plugin('bills', `() => { throw new Error('no bills'); }`)}];`,
      );
      expect(stdout).toContain('✓ Shop: open');
      expect(stdout).toMatch(/✗ bills: its check failed: no bills\n.*"diagnose"/);
      expect(code).toBe(1);
    });

    it.each([
      ['throws', `throw new Error('broken')`, /Cannot load plugins.mjs.*broken/],
      ['exports none', 'export const all = []', /does not export "plugins"/],
      ['exports something else', 'export const plugins = [1]', /✗ configuration: .*plugin/s],
    ])('a module that %s', async (_, code, message) => {
      const { code: exit, stdout, stderr } = await doctor(code);
      expect(stdout + stderr).toMatch(message);
      expect(exit).toBe(1);
    });

    it('a module that is absent', async () => {
      const { code, stderr } = await sibylInProcess(['plugins', '--plugins', 'gone.mjs'], { cwd });
      expect([code, stderr]).toEqual([1, expect.stringContaining('Cannot load gone.mjs')]);
    });
  });

  it('names what opens the way to addresses that plugins may not ask', async () => {
    const server = createServer((_, response) => response.end()).listen(0, '127.0.0.1');
    await once(server, 'listening');
    onTestFinished(() => void server.close());
    const host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
    const env = {
      DATA_DIR,
      GATEWAY_URL: `http://${host}`,
      MATRIX_BASE_URL: `http://${host}`,
      CHAIN_REST_URL: `http://${host}`,
      OUTGOING_ALLOW: '10.1.2.3',
    };
    const closed = await sibylInProcess(['doctor'], { env });
    const advice = `not on the public internet.*Set OUTGOING_ALLOW=10\\.1\\.2\\.3,${host} `;
    expect(closed.code).toBe(1);
    expect(closed.stdout).toMatch(new RegExp(`✗ Matrix: ${host}.*${advice}`, 'ms'));
    expect(closed.stdout).toMatch(new RegExp(`✗ gateway: ${host}.*${advice}`, 'ms'));
    expect(closed.stdout).toContain(`✓ chain: ${host} answers`);
    const opened = await sibylInProcess(['doctor'], { env: { ...env, OUTGOING_ALLOW: host } });
    expect(opened.stdout).toContain(`✓ gateway: ${host} answers`);
    expect(opened.code).toBe(0);
  });
});

describe('sibyl plugins', () => {
  it('lists them, with the reason where one is not loaded', async () => {
    const { stdout } = await sibylInProcess(['plugins'], { env: { FEATURES: 'memory=false' } });
    expect(stdout).toMatch(/user-preferences +\S+ +loaded/);
    expect(stdout).toMatch(/memory +\S+ +not loaded/);
    expect(stdout).toMatch(/mcp +\S+ +not loaded +set MCP_SERVERS/);
  });

  it('says what is wrong with the configuration', async () => {
    const { code, stderr } = await sibylInProcess(['plugins'], { env: { PORT: 'many' } });
    expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringContaining('PORT') });
  });
});

describe('sibyl credits', () => {
  const did = 'did:key:z6MkpPcjwo4wP49VnvG7isXnqvFJyEqZ5JxSjohHxTT9Zr1c';

  it('grants credit in the store of the oracle', async () => {
    await startOnce({ DATA_DIR });
    const first = await sibyl(['credits', 'grant', did, '100'], { env: { DATA_DIR } });
    expect(first.stdout).toContain('the balance is 100');
    const again = await sibylInProcess(['credits', 'grant', did, '50', '--json'], {
      env: { DATA_DIR },
    });
    expect(JSON.parse(again.stdout)).toMatchObject({ balance: 150 });
  });

  it('says what keeps it from the store, without a stack', async () => {
    const DATABASE_URL = 'postgres://guest@127.0.0.1:1/none';
    const env = { DATA_DIR, DATABASE_URL, ORACLE_MNEMONIC: 'the key of an oracle' };
    const { code, stderr } = await sibyl(['credits', 'grant', did, '100'], { env });
    expect(code).toBe(1);
    expect(stderr).toContain('127.0.0.1:1');
    expect(stderr).not.toMatch(/^\s+at /m);
  });
});
