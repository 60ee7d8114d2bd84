import { randomUUID } from 'node:crypto';
import {
  appendFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { ERASE_ABILITY, toOracleResource } from '@sibyl/protocol/decisions';
import { generateSigner } from '@sibyl/ucan';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { runHost, untilListening } from '../../host/test/support/process.js';
import { createTestDatabase, type TestDatabase } from '../../host/test/support/test-database.js';
import { TestUser } from '../../host/test/support/user.js';
import { sibyl, sibylInProcess, useFolder } from './support/sibyl.js';

const home = useFolder();
const SIBYL_KEY_FILE = join(home, 'key');
const DATA_DIR = join(home, 'data');
const postgres: { database?: TestDatabase } = {};
let sessionId = '';
let fileId = '';

/** Runs a command against an oracle, or where an oracle's configuration is. */
const run = (args: readonly string[], env: Record<string, string>) =>
  sibylInProcess(args, { env: { SIBYL_KEY_FILE, ...env }, cwd: home });
const runAsProcess = (args: readonly string[], env: Record<string, string>) =>
  sibyl(args, { env: { SIBYL_KEY_FILE, ...env }, cwd: home });

/** An oracle in its own process during a test. */
async function withOracle(env: Record<string, string>, work: (url: string) => Promise<void>) {
  const host = runHost({ PORT: '0', DATA_DIR, ...env });
  try {
    await work(await untilListening(host));
  } finally {
    host.child.kill('SIGTERM');
    await host.ended;
  }
}

const databaseUrl = () => postgres.database?.env.DATABASE_URL ?? '';

/** Everything that was there is there. */
async function expectAll(url: string): Promise<void> {
  const shown = await run(['sessions', 'show', sessionId], { SIBYL_URL: url });
  expect(shown.stdout).toContain('I work on soil carbon');
  const facts = await run(['memory'], { SIBYL_URL: url });
  expect(facts.stdout).toContain('soil carbon');
  const file = await run(['files', 'download', fileId, '--output', '-'], { SIBYL_URL: url });
  expect(file.stdout).toBe('The harvest was 42 tons.');
  await expect
    .poll(async () => (await run(['sessions', 'search', 'carbon'], { SIBYL_URL: url })).stdout)
    .toContain(sessionId);
}

beforeAll(async () => {
  postgres.database = await createTestDatabase('postgres');
  const path = join(home, 'harvest.txt');
  writeFileSync(path, 'The harvest was 42 tons.');
  await withOracle({}, async (url) => {
    await run(['chat', '-m', 'I work on soil carbon'], { SIBYL_URL: url });
    const { sessions } = JSON.parse((await run(['sessions', '--json'], { SIBYL_URL: url })).stdout);
    sessionId = sessions[0].sessionId;
    const sent = await run(['files', 'upload', path, '--json'], { SIBYL_URL: url });
    fileId = JSON.parse(sent.stdout).fileId;
    const early = await run(['migrate'], { DATA_DIR, DATABASE_URL: databaseUrl() });
    expect(early).toMatchObject({ code: 1, stderr: expect.stringContaining(DATA_DIR) });
    const saved = await runAsProcess(['backup', 'running'], { DATA_DIR });
    expect(saved).toMatchObject({ code: 0, stdout: expect.stringContaining('with its key') });
  });
});
afterAll(() => postgres.database?.drop());

describe('sibyl migrate', () => {
  it('copies every table to PostgreSQL and verifies it; the oracle continues there', async () => {
    const env = { DATA_DIR, DATABASE_URL: databaseUrl() };
    const { code, stdout } = await runAsProcess(['migrate', '--json'], env);
    expect(code).toBe(0);
    const { tables } = JSON.parse(stdout);
    const rows = Object.fromEntries(
      tables.map((each: { table: string; rows: number }) => [each.table, each.rows]),
    );
    expect(rows).toMatchObject({
      sessions: 1,
      messages: 2,
      files: 1,
      file_chunks: 1,
      memory_facts: 1,
    });
    for (const { hash } of tables) expect(hash).toMatch(/^[0-9a-f]{64}$/);
    await withOracle({ DATABASE_URL: databaseUrl() }, expectAll);
  });

  it('refuses a target that is not empty', async () => {
    const env = { DATA_DIR, DATABASE_URL: databaseUrl() };
    const again = await run(['migrate'], env);
    expect(again).toMatchObject({ code: 1, stderr: expect.stringContaining('not empty') });
    expect(await run(['migrate'], { DATA_DIR })).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('DATABASE_URL'),
    });
  });
});

describe('sibyl backup and sibyl restore', () => {
  it('restore a running SQLite oracle, to SQLite and to PostgreSQL', async () => {
    expect(statSync(join(home, 'running/oracle.key')).mode & 0o777).toBe(0o600);
    const restored = join(home, 'restored');
    const first = await runAsProcess(['restore', 'running'], { DATA_DIR: restored });
    expect(first).toMatchObject({ code: 0 });
    await withOracle({ DATA_DIR: restored }, expectAll);
    const again = await run(['restore', 'running'], { DATA_DIR: restored });
    expect(again).toMatchObject({ code: 1, stderr: expect.stringContaining('already') });
    const empty = await createTestDatabase('postgres');
    onTestFinished(() => empty.drop());
    const env = { DATA_DIR: join(home, 'elsewhere'), DATABASE_URL: empty.env.DATABASE_URL ?? '' };
    expect(await run(['restore', 'running'], env)).toMatchObject({ code: 0 });
    await withOracle(env, expectAll);
  });

  it('restore an oracle on PostgreSQL, to SQLite', async () => {
    const env = { DATA_DIR, DATABASE_URL: databaseUrl() };
    expect(await run(['backup', 'from-postgres'], env)).toMatchObject({ code: 0 });
    const target = join(home, 'from-postgres-data');
    expect(await run(['restore', 'from-postgres'], { DATA_DIR: target })).toMatchObject({
      code: 0,
    });
    await withOracle({ DATA_DIR: target }, expectAll);
    const taken = await run(['backup', 'from-postgres'], env);
    expect(taken).toMatchObject({ code: 1, stderr: expect.stringContaining('exists already') });
  });

  it('restore neither users that were erased nor delegations that were revoked after the backup', async () => {
    const env = { DATA_DIR: join(home, 'removed') };
    const signers = [generateSigner(), generateSigner()];
    const open = async (url: string) => {
      const card = await (await fetch(`${url}/.well-known/oracle.json`)).json();
      const oracle = { url, did: (card as { did: string }).did };
      return signers.map((signer) => new TestUser(oracle, signer)) as [TestUser, TestUser];
    };
    await withOracle(env, async (url) => {
      const [alice, bob] = await open(url);
      for (const user of [alice, bob]) {
        await user.request('POST', '/sessions');
        const { status } = await user.request('POST', '/delegation', {
          body: { raw: user.delegate() },
        });
        expect(status).toBe(200);
      }
      expect(await run(['backup', 'before-removal'], env)).toMatchObject({ code: 0 });
      const capability = { can: ERASE_ABILITY, with: toOracleResource(alice.host.did) };
      const invocation = alice.delegate({ capabilities: [capability], ttlSeconds: 300 });
      const erased = await alice.request('DELETE', '/me', { body: { invocation } });
      expect(erased.status).toBe(200);
      expect((await bob.request('DELETE', '/delegation')).status).toBe(200);
    });
    const log = readFileSync(join(env.DATA_DIR, 'removals.jsonl'), 'utf8');
    for (const { did } of signers) expect(log).not.toContain(did);
    rmSync(join(env.DATA_DIR, 'sibyl.db'));
    const { code, stdout } = await run(['restore', 'before-removal'], env);
    expect({ code, stdout }).toEqual({
      code: 0,
      stdout: expect.stringContaining('1 erased users, 2 revoked delegations'),
    });
    await withOracle(env, async (url) => {
      const [alice, bob] = await open(url);
      expect((await alice.request('GET', '/sessions')).body.total).toBe(0);
      expect((await bob.request('GET', '/sessions')).body.total).toBe(1);
      expect((await bob.request('GET', '/delegations')).body).toEqual({ delegations: [] });
    });
    const elsewhere = await run(['restore', 'before-removal'], { DATA_DIR: join(home, 'empty') });
    expect(elsewhere.stdout).toContain('has no removals.jsonl');
  });

  it('refuse a damaged backup and the key of another oracle', async () => {
    await run(['backup', 'damaged'], { DATA_DIR });
    appendFileSync(join(home, 'damaged/sibyl.db'), 'x');
    const target = join(home, 'never');
    const damaged = await run(['restore', 'damaged'], { DATA_DIR: target });
    expect(damaged).toMatchObject({ code: 1, stderr: expect.stringContaining('damaged') });
    expect(existsSync(join(target, 'sibyl.db'))).toBe(false);
    const env = { DATA_DIR: join(home, 'other'), ORACLE_PRIVATE_KEY: '07'.repeat(32) };
    const other = await run(['restore', 'running'], env);
    expect(other).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('belongs to the oracle'),
    });
    const { hasKey } = JSON.parse(readFileSync(join(home, 'running/manifest.json'), 'utf8'));
    expect(hasKey).toBe(true);
  });

  it.each([
    ['oracle.key', '07'.repeat(32)],
    ['oracle.key', 'not a key'],
    ['oracle.key', undefined],
    ['manifest.json', '{"createdAt": "2026'],
    ['sibyl.db', undefined],
  ])('refuse a backup whose %s is %j, and leave no key', async (file, content) => {
    const backup = join(home, `changed-${randomUUID()}`);
    cpSync(join(home, 'running'), backup, { recursive: true });
    if (content === undefined) rmSync(join(backup, file));
    else writeFileSync(join(backup, file), content);
    const target = join(home, `target-${randomUUID()}`);
    const { code, stderr } = await run(['restore', backup], { DATA_DIR: target });
    expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringContaining('is damaged') });
    expect(existsSync(join(target, 'oracle.key'))).toBe(false);
  });

  it('leave no key beside a database that is not empty', async () => {
    const target = join(home, 'occupied');
    mkdirSync(target);
    writeFileSync(join(target, 'sibyl.db'), '');
    const { stderr } = await run(['restore', 'running'], { DATA_DIR: target });
    expect(stderr).toContain('Nothing was restored');
    expect(existsSync(join(target, 'oracle.key'))).toBe(false);
  });
});
