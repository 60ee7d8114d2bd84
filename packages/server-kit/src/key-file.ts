import { randomBytes } from 'node:crypto';
import { chmod, link, mkdir, open, readdir, readFile, stat, unlink } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';

/**
 * Reads a key file, or writes it first: whole or not at all, readable by its owner only. Of several processes that
 * start together exactly one writes, and all return the same key.
 */
export async function readOrCreateKeyFile(path: string, makeKey: () => string): Promise<string> {
  const folder = dirname(path);
  await mkdir(folder, { recursive: true, mode: 0o700 });
  if (!(await readdir(folder)).includes(basename(path))) await writeOnce(path, makeKey());
  const { mode } = await stat(path);
  if ((mode & 0o077) !== 0) await chmod(path, 0o600);
  await removeDrafts(path);
  return (await readFile(path, 'utf8')).trim();
}

/** The key in a file, or undefined if there is no such file. */
export async function readKeyFile(path: string): Promise<string | undefined> {
  try {
    return (await readFile(path, 'utf8')).trim();
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return undefined;
    throw error;
  }
}

/** Writes under a name that no other process chooses, then links: linking fails where a key is already. */
async function writeOnce(path: string, key: string): Promise<void> {
  const draft = `${path}.${randomBytes(8).toString('hex')}.tmp`;
  try {
    const file = await open(draft, 'wx', 0o600);
    try {
      await file.writeFile(`${key}\n`);
      await file.sync();
    } finally {
      await file.close();
    }
    await link(draft, path);
  } catch (error) {
    // Another process was first; it may have removed this draft as well.
    if (!hasCode(error, 'EEXIST') && !hasCode(error, 'ENOENT')) throw error;
    if ((await readKeyFile(path)) === undefined) throw error;
  } finally {
    await unlink(draft).catch(() => undefined);
  }
}

/** Removes what processes that died while writing left behind; once there is a key, a draft is of no use. */
async function removeDrafts(path: string): Promise<void> {
  const folder = dirname(path);
  const prefix = `${basename(path)}.`;
  const drafts = (await readdir(folder)).filter(
    (name) => name.startsWith(prefix) && name.endsWith('.tmp'),
  );
  // In a folder that is mounted read-only they do no harm.
  await Promise.all(drafts.map((name) => unlink(join(folder, name)).catch(() => undefined)));
}

const hasCode = (error: unknown, code: string): boolean =>
  (error as NodeJS.ErrnoException)?.code === code;
