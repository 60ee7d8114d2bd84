import { showRetention } from '@sibyl/host';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { loadConfig } from '../src/config/config.js';
import { openDatabase } from '../src/store/open-database.js';
import { startHost, type TestHost } from './support/host.js';
import { openSession } from './support/stream.js';
import { createTestDatabase, engines, type TestDatabase } from './support/test-database.js';
import { TestUser } from './support/user.js';

const DAY_MS = 24 * 60 * 60 * 1000;

describe.each(engines)('RETENTION_DAYS on %s', (engine) => {
  let test: TestDatabase;
  let host: TestHost | undefined;

  beforeEach(async () => {
    test = await createTestDatabase(engine);
  });

  afterEach(async () => {
    await host?.close();
    await test.drop();
  });

  /** Two sessions of a user, one of them last used 40 days ago, and old activity. */
  async function prepare() {
    host = await startHost({ hasTwins: false, env: test.env });
    const user = new TestUser(host);
    const [old, recent] = [await openSession(user), await openSession(user)];
    for (const id of [old, recent])
      await user.request('POST', `/messages/${id}`, { body: { message: 'hello' } });
    await host.close();
    host = undefined;
    const before = Date.now() - 40 * DAY_MS;
    const database = await openDatabase(test.options);
    const owner = user.did;
    await database.write(async (tables) => {
      await tables
        .updateTable('sessions')
        .set({ last_updated_at: before })
        .where('id', '=', old)
        .execute();
      const row = { owner, session_id: null, run_id: null, approval_id: null, call_id: null };
      for (const [id, created_at] of [
        ['a1', before],
        ['a2', Date.now()],
      ] as const)
        await tables
          .insertInto('activity')
          .values({ ...row, id, kind: 'tool', tool: 't', created_at } as never)
          .execute();
    });
    await database.close();
    return { user, old, recent };
  }

  const countActivity = async () => {
    const database = await openDatabase(test.options);
    const rows = await database.tables.selectFrom('activity').select('id').execute();
    await database.close();
    return rows.map(({ id }) => id);
  };

  it('deletes nothing unless it is set; showRetention counts what it would delete', async () => {
    const { user, old } = await prepare();
    const config = loadConfig(test.env);
    expect(await showRetention(undefined, config)).toBeUndefined();
    const preview = await showRetention(30, config);
    expect(preview).toEqual({ days: 30, sessions: 1, receipts: 0, activity: 1, pausedRuns: 0 });
    expect(await showRetention(50, config)).toMatchObject({ sessions: 0, activity: 0 });
    host = await startHost({ hasTwins: false, env: test.env });
    expect((await user.at(host).request('GET', `/messages/${old}`)).status).toBe(200);
  });

  it('deletes old sessions and activity, and keeps what they used', async () => {
    const { user, old, recent } = await prepare();
    host = await startHost({ hasTwins: false, env: { ...test.env, RETENTION_DAYS: '30' } });
    const there = user.at(host);
    await expect.poll(async () => (await there.request('GET', '/sessions')).body.total).toBe(1);
    expect((await there.request('GET', `/messages/${old}`)).status).toBe(404);
    expect((await there.request('GET', `/messages/${recent}`)).body.messages).toHaveLength(2);
    await expect.poll(countActivity).toEqual(['a2']);
    expect((await there.request('GET', '/usage')).body.total.turns).toBe(2);
  });
});
