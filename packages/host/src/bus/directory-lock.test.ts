import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, statSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ConfigError } from '@sibyl/server-kit/environment';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { startMember } from '../../test/support/cluster.js';
import { DirectoryLock } from './directory-lock.js';

let dataDir: string;
beforeEach(() => {
  dataDir = mkdtempSync(join(tmpdir(), 'sibyl-lock-'));
});
afterEach(() => rmSync(dataDir, { recursive: true, force: true }));

const IN_USE = /DATA_DIR.*another host is using .*sibyl-lock.*DATABASE_URL/s;

describe('DirectoryLock', () => {
  it('refuses a second host in the same process, also by another path, until the first ends', async () => {
    const lock = await DirectoryLock.acquire(dataDir);
    const link = `${dataDir}-link`;
    symlinkSync(dataDir, link);
    try {
      await expect(DirectoryLock.acquire(dataDir)).rejects.toThrow(ConfigError);
      await expect(DirectoryLock.acquire(link)).rejects.toThrow(IN_USE);
      // A refused attempt does not release the lock.
      await expect(startMember({ dataDir })).rejects.toThrow(IN_USE);
      lock.release();
      (await DirectoryLock.acquire(link)).release();
    } finally {
      rmSync(link);
    }
  });

  it('refuses a second process, and is free after the first was killed', async () => {
    const first = await startMember({ dataDir });
    await expect(startMember({ dataDir })).rejects.toThrow(IN_USE);
    await expect(DirectoryLock.acquire(dataDir)).rejects.toThrow(IN_USE);
    await first.kill();
    const second = await startMember({ dataDir });
    await expect(DirectoryLock.acquire(dataDir)).rejects.toThrow(IN_USE);
    await second.kill();
    (await DirectoryLock.acquire(dataDir)).release();
  });

  const NAMESPACE = ['unshare', '--pid', '--fork', '--kill-child'];
  const canUnshare = spawnSync(NAMESPACE[0] ?? '', [...NAMESPACE.slice(1), 'true']).status === 0;

  it.skipIf(!canUnshare)('works across pid namespaces, where process ids repeat', async () => {
    const first = await startMember({ dataDir }, NAMESPACE);
    await expect(startMember({ dataDir }, NAMESPACE)).rejects.toThrow(IN_USE);
    await expect(DirectoryLock.acquire(dataDir)).rejects.toThrow(IN_USE);
    await first.kill();
    const second = await startMember({ dataDir }, NAMESPACE);
    await second.kill();
  });

  it('creates the directory and a file that only this user can read', async () => {
    const nested = join(dataDir, 'a', 'b');
    (await DirectoryLock.acquire(nested)).release();
    expect(statSync(join(nested, 'host.lock')).mode & 0o777).toBe(0o600);
  });
});
