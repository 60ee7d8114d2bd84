import { expect, it, onTestFinished } from 'vitest';
import { startHosts } from './support/host-cluster.js';
import { startPgBouncer } from './support/pgbouncer.js';
import { createTestDatabase } from './support/test-database.js';
import { TestUser } from './support/user.js';

const RESTARTS = 20;

it('a host behind PgBouncer in transaction mode starts again each time that it is restarted, beside another host', {
  timeout: 600_000,
}, async () => {
  const database = await createTestDatabase('postgres');
  onTestFinished(() => database.drop());
  const direct = database.env.DATABASE_URL ?? '';
  const pooled = await startPgBouncer(direct, 'transaction');
  const env = { ...database.env, DATABASE_URL: pooled, DATABASE_DIRECT_URL: direct };
  const hosts = await startHosts(2, { env });
  onTestFinished(async () => {
    await Promise.all(hosts.map((host) => host.close()));
  });
  const [kept, restarted] = hosts;
  if (!kept || !restarted) throw new Error('Two hosts were to be started');
  const user = new TestUser(kept);
  for (let i = 0; i < RESTARTS; i++) {
    // The connections that the pooler hands out next depend on who used them last.
    await Promise.all(Array.from({ length: 5 }, () => user.request('GET', '/sessions')));
    await restarted.replace();
    const created = await user.at(restarted).request('POST', '/sessions');
    expect(created.status).toBe(201);
  }
});
