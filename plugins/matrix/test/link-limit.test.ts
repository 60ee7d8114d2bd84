import { expect, it, onTestFinished } from 'vitest';
import { startHost } from '../../../packages/host/test/support/host.js';
import { createTestDatabase } from '../../../packages/host/test/support/test-database.js';
import { TestUser } from '../../../packages/host/test/support/user.js';
import { startHomeserver, withOracle } from './support/homeserver.js';

it.each(['sqlite', 'postgres'] as const)(
  'POST /matrix/links accepts 20 accounts of a user, also at the same moment, on %s',
  async (engine) => {
    const database = await createTestDatabase(engine);
    onTestFinished(() => database.drop());
    const home = await startHomeserver();
    onTestFinished(() => home.close());
    const { databaseUrl } = database.options;
    const env = { ...withOracle(home), MATRIX_CHAT: 'true' };
    const host = await startHost({
      env: { ...env, ...(databaseUrl && { DATABASE_URL: databaseUrl }) },
    });
    onTestFinished(() => host.close());
    const user = new TestUser(host);
    const begin = async (userId: string) => {
      const resource = `ixo:oracle:${host.did}:matrix/${encodeURIComponent(userId)}`;
      const delegation = user.delegate({ capabilities: [{ can: 'oracle/run', with: resource }] });
      const body = { userId, delegation };
      return (await user.request('POST', '/matrix/links', { body })).status;
    };
    const statuses = await Promise.all(Array.from({ length: 40 }, (_, i) => begin(`@u${i}:test`)));
    expect(statuses.filter((status) => status === 201)).toHaveLength(20);
    const { links } = (await user.request('GET', '/matrix/links')).body;
    expect(links).toHaveLength(20);
    const count = async () => (await user.request('GET', '/delegations')).body.delegations.length;
    const before = await count();
    expect(await begin('@another:test')).toBe(400);
    expect(await count()).toBe(before);
    // One that is there can be begun again.
    expect(await begin(links[0].userId)).toBe(201);
  },
);
