import { appendFile, mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { RemovalLog } from './removal-log.js';

const LIMIT = 8 * 1024 * 1024;
const far = 9e12;

async function open() {
  const dataDir = await mkdtemp(join(tmpdir(), 'sibyl-removals-'));
  onTestFinished(() => rm(dataDir, { recursive: true, force: true }));
  const path = join(dataDir, 'removals.jsonl');
  const log = new RemovalLog(dataDir, new Uint8Array(32));
  /** As many revocations as make the file too long. */
  const fill = async () => {
    const lines = Array.from({ length: 150_000 }, (_, i) =>
      JSON.stringify({ revoked: `bafy ${i} ${'x'.repeat(20)}`, expiresAt: far }),
    );
    await appendFile(path, `${lines.join('\n')}\n`);
    expect((await stat(path)).size).toBeGreaterThan(LIMIT);
  };
  return { log, path, fill };
}

it('RemovalLog keeps erasures, however much is revoked, and the newest revocations', async () => {
  const { log, path, fill } = await open();
  await log.addErasure('did:key:zAlice');
  await log.addErasure('did:key:zAlice');
  await fill();
  await log.addRevocation('newest', far);
  const kept = (await log.read()) ?? [];
  const erased = kept.flatMap((one) => ('erased' in one ? one.erased : []));
  expect(erased).toEqual([log.hash('did:key:zAlice')]);
  expect(kept).toHaveLength(40_001);
  expect(kept.at(-1)).toEqual({ revoked: 'newest', expiresAt: far });
  expect((await stat(path)).size).toBeLessThan(LIMIT);
});

it('RemovalLog loses nothing that is added while it is shortened', async () => {
  const { log, fill } = await open();
  await fill();
  const users = Array.from({ length: 50 }, (_, i) => `did:key:z${i}`);
  await Promise.all(users.map((user) => log.addErasure(user)));
  const kept = (await log.read()) ?? [];
  const erased = kept.flatMap((one) => ('erased' in one ? one.erased : []));
  expect(erased).toEqual(users.map((user) => log.hash(user)));
});
