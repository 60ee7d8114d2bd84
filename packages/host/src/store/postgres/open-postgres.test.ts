import pg from 'pg';
import { expect, it } from 'vitest';
import { createTestDatabase } from '../../../test/support/test-database.js';
import { openStore } from '../open-store.js';

it('openStore opens as many PostgreSQL connections as poolSize allows', async () => {
  const database = await createTestDatabase('postgres');
  const store = await openStore({ ...database.options, poolSize: 3 });
  const admin = new pg.Client({ connectionString: database.options.databaseUrl });
  await admin.connect();
  const session = { owner: 'did:a', oracleDid: 'did:o' };
  await Promise.all(Array.from({ length: 30 }, () => store.sessions.create(session)));
  const { rows } = await admin.query(
    "select count(*)::int as n from pg_stat_activity where datname = current_database() and application_name = 'sibyl'",
  );
  expect(rows).toEqual([{ n: 3 }]);
  await admin.end();
  await store.close();
  await database.drop();
});
