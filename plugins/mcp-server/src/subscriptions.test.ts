import { describe, expect, it } from 'vitest';
import { usePluginTables } from '../../../packages/host/test/support/plugin-tables.js';
import { engines, newOwner } from '../../../packages/host/test/support/test-database.js';
import { mcpServer } from './index.js';
import { Subscriptions } from './subscriptions.js';

const hosts = { hostId: 'h', on: () => undefined, send: () => true, findDead: async () => [] };
const ignore = () => undefined;
const logger = { info: ignore, warn: ignore, error: ignore };

describe.each(engines)('Subscriptions.subscribe on %s', (engine) => {
  const test = usePluginTables(engine, mcpServer);

  it('keeps 200 subscriptions of a user and no more, also when many are added at once', async () => {
    const key = { owner: newOwner(), session: 's' };
    const rows = Array.from({ length: 195 }, (_, i) => {
      return { ...key, uri: `known:${i}`, expires_at: Date.now() + 60_000 };
    });
    await test.database.write((tables) =>
      tables.insertInto('mcp_server_subscriptions').values(rows).execute(),
    );
    const databases = [test.database, await test.another()];
    const all = databases.map((database) => new Subscriptions({ database, hosts, logger }));
    const adding = Array.from({ length: 20 }, (_, i) => all[i % 2]?.subscribe(key, `new:${i}`));
    const outcomes = await Promise.allSettled(adding);
    expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(5);
  });

  it('at the limit, the oldest one of another session makes room, which may have ended', async () => {
    const owner = newOwner();
    const { database } = test;
    const rows = Array.from({ length: 200 }, (_, i) => {
      const session = i < 2 ? 'current' : 'earlier';
      return { owner, session, uri: `known:${i}`, expires_at: Date.now() + 60_000 + i };
    });
    await database.write((tables) =>
      tables.insertInto('mcp_server_subscriptions').values(rows).execute(),
    );
    const subscriptions = new Subscriptions({ database, hosts, logger });
    const current = { owner, session: 'current' };
    await subscriptions.subscribe(current, 'new');
    await subscriptions.subscribe(current, 'new');
    const left = await database.tables
      .selectFrom('mcp_server_subscriptions')
      .select('uri')
      .where('owner', '=', owner)
      .execute();
    const expected = [...rows.map(({ uri }) => uri).filter((uri) => uri !== 'known:2'), 'new'];
    expect(left.map(({ uri }) => uri).sort()).toEqual(expected.sort());
  });
});
