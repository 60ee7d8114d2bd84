import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { readKeyFile, readOrCreateKeyFile } from './key-file.js';

function newPath(): string {
  const folder = mkdtempSync(join(tmpdir(), 'sibyl-key-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  return join(folder, 'oracle.key');
}

describe('readOrCreateKeyFile', () => {
  it('writes the key once, for its owner only', async () => {
    const path = newPath();
    expect(await readKeyFile(path)).toBeUndefined();
    expect(await readOrCreateKeyFile(path, () => 'first')).toBe('first');
    expect(await readOrCreateKeyFile(path, () => 'second')).toBe('first');
    expect(statSync(path).mode & 0o777).toBe(0o600);
  });

  it('closes a file that others may read', async () => {
    const path = newPath();
    writeFileSync(path, 'key\n', { mode: 0o644 });
    expect(await readOrCreateKeyFile(path, () => 'other')).toBe('key');
    expect(statSync(path).mode & 0o777).toBe(0o600);
  });

  it('starts although a process with the same id died while writing, and cleans up after it', async () => {
    const path = newPath();
    writeFileSync(`${path}.${process.pid}.tmp`, 'half a k');
    writeFileSync(`${path}.1.tmp`, '');
    writeFileSync(`${path}.backup`, 'kept');
    expect(await readOrCreateKeyFile(path, () => 'key')).toBe('key');
    expect(readdirSync(join(path, '..')).sort()).toEqual(['oracle.key', 'oracle.key.backup']);
  });

  it('returns one key to many that start at once', async () => {
    const path = newPath();
    const keys = await Promise.all(
      Array.from({ length: 50 }, (_, i) => readOrCreateKeyFile(path, () => `key ${i}`)),
    );
    expect(new Set(keys)).toEqual(new Set([readFileSync(path, 'utf8').trim()]));
    expect(readdirSync(join(path, '..'))).toEqual(['oracle.key']);
  });
});
