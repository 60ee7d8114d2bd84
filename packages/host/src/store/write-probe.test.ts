import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, expect, it, onTestFinished } from 'vitest';
import { useStore } from '../../test/support/test-database.js';

describe('Store.probeWrite', () => {
  // Twins, because the id of a probe is not known before: a delete without its owner would fail.
  const test = useStore('sqlite', { hasTwins: true });

  it('deletes what it wrote, and leaves other probes and the same keys of other owners', async () => {
    const handle = new DatabaseSync(join(test.options.dataDir, 'sibyl.db'), { timeout: 5_000 });
    onTestFinished(() => handle.close());
    const owner = 'readiness probe';
    handle.exec(`insert into idempotency_keys (owner, key, body_hash, run_id, created_at, expires_at)
      values ('${owner}', 'of another host', '', 'r', 0, 0)`);
    await test.store.probeWrite();
    const rows = handle.prepare('select key from idempotency_keys where owner = ?').all(owner);
    expect(rows.map(({ key }) => key)).toEqual(['of another host']);
  });
});
