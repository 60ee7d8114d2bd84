import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { exportPrivateKey, generateSigner } from '@sibyl/ucan';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  type ControlledModel,
  startControlledModel,
} from '../../host/test/support/controlled-model.js';
import { ClusterHost } from '../../host/test/support/host-cluster.js';
import { openSession, stream } from '../../host/test/support/stream.js';
import {
  createTestDatabase,
  engines,
  type TestDatabase,
} from '../../host/test/support/test-database.js';
import { TestUser } from '../../host/test/support/user.js';
import { sibyl, sibylInProcess, useFolder } from './support/sibyl.js';

const home = useFolder();
const JOURNAL = join(import.meta.dirname, '../../host/test/support/journal-process.ts');
const signer = generateSigner();
const SIBYL_KEY_FILE = join(home, 'key');
writeFileSync(SIBYL_KEY_FILE, exportPrivateKey(signer), { mode: 0o600 });

/** Makes a Node process believe that it is a year later. */
const NEXT_YEAR = `--import=data:text/javascript,${encodeURIComponent(`
  const real = Date.now;
  const now = () => real() + 366 * 86_400_000;
  const RealDate = Date;
  globalThis.Date = class extends RealDate {
    constructor(...args) { super(...(args.length > 0 ? args : [now()])); }
    static now = now;
  };`)}`;

describe.each(engines)('an approval that waits while its host is killed, on %s', (engine) => {
  const TRACE_FILE = join(home, `trace-${engine}`);
  const receiptFile = join(home, `receipt-${engine}`);
  const parts: { model?: ControlledModel; database?: TestDatabase; hosts: ClusterHost[] } = {
    hosts: [],
  };
  const countActions = () =>
    existsSync(TRACE_FILE) ? readFileSync(TRACE_FILE, 'utf8').trim().split('\n').length : 0;
  const run = (args: readonly string[], url: string) =>
    sibylInProcess([...args, url], { env: { SIBYL_KEY_FILE } });

  beforeAll(async () => {
    parts.model = await startControlledModel();
    parts.database = await createTestDatabase(engine);
  });
  afterAll(async () => {
    for (const host of parts.hosts) await host.close();
    parts.model?.close();
    await parts.database?.drop();
  });

  async function startNext(): Promise<ClusterHost> {
    const { model, database } = parts;
    const env = { ...database?.env, ...model?.env, TRACE_FILE };
    const host = await ClusterHost.create({ env, main: JOURNAL });
    parts.hosts.push(host);
    // SQLite is one file in one folder.
    await host.start(engine === 'sqlite' ? { DATA_DIR: database?.env.DATA_DIR ?? '' } : {});
    return host;
  }

  it('is given by sibyl approvals at another host: the tool runs once, sibyl receipts verifies it', {
    timeout: 300_000,
  }, async () => {
    const first = await startNext();
    const user = new TestUser(first, signer);
    const sessionId = await openSession(user);
    const live = await stream(user, sessionId, { message: 'Act' });
    (await parts.model?.next())?.call({ name: 'act_if_approved', input: { text: 'once' } });
    await live.untilEvent('approval_request');
    await live.toEnd();
    await first.kill();

    const second = await startNext();
    const listed = await sibyl(['approvals', 'list', '--json', second.url], {
      env: { SIBYL_KEY_FILE },
    });
    const { approvals } = JSON.parse(listed.stdout);
    expect(approvals).toMatchObject([
      { facts: { tool: 'act_if_approved' }, args: { text: 'once' } },
    ]);
    const id: string = approvals[0].id;
    expect(countActions()).toBe(0);
    const approved = await run(['approvals', 'approve', id.slice(0, 12)], second.url);
    expect(approved).toMatchObject({ code: 0, stdout: 'Approved act_if_approved' });
    const next = await parts.model?.next();
    expect(next?.results).toEqual([JSON.stringify({ acted: 'once' })]);
    next?.answer('Done.');
    const here = new TestUser(second, signer);
    await expect
      .poll(async () => (await here.request('GET', `/sessions/${sessionId}/run`)).body.run.status, {
        timeout: 60_000,
      })
      .toBe('finished');
    expect(countActions()).toBe(1);
    const again = await run(['approvals', 'approve', id], second.url);
    expect(again.code).toBe(1);
    expect(again.stderr).toContain('No call with the id');
    expect(countActions()).toBe(1);

    const saved = await run(['approvals', 'receipt', id, '--out', receiptFile], second.url);
    expect(saved.code).toBe(0);
    await second.kill();
  });

  it('leaves a receipt that sibyl receipts verifies offline, a year later; a changed copy is not valid', async () => {
    const verify = (file: string, more: readonly string[] = []) =>
      sibylInProcess(['receipts', 'verify', file, ...more]);
    const env = { NODE_OPTIONS: NEXT_YEAR };
    const later = await sibyl(['receipts', 'verify', receiptFile], { env });
    expect(later).toMatchObject({ code: 0, stderr: '' });
    expect(later.stdout).toMatch(/^Valid\ndecision +approved\ntool +act_if_approved/);
    expect(later.stdout).toContain(signer.did);
    expect((await verify(receiptFile, ['--user', signer.did])).code).toBe(0);
    const foreign = await verify(receiptFile, ['--user', generateSigner().did]);
    expect([foreign.code, foreign.stderr]).toEqual([1, expect.stringContaining('another user')]);
    const bytes = readFileSync(receiptFile);
    const changed = Buffer.from(bytes);
    changed[bytes.length - 20] = (changed[bytes.length - 20] ?? 0) ^ 1;
    writeFileSync(`${receiptFile}-changed`, changed);
    const broken = await verify(`${receiptFile}-changed`);
    expect([broken.code, broken.stderr]).toEqual([1, expect.stringContaining('not a valid')]);
  });
});
