import { chmod, link, mkdir, open, readFile, stat, unlink } from 'node:fs/promises';
import { join } from 'node:path';

const FILE_NAME = 'oracle.key';

export const keyFileIn = (dataDir: string): string => join(dataDir, FILE_NAME);

/** Reads the oracle's key file; the first start writes it, whole or not at all, for its owner only. */
export async function keepKeyFile(dataDir: string, makeKey: () => string) {
  const path = keyFileIn(dataDir);
  await mkdir(dataDir, { recursive: true, mode: 0o700 });
  const kept = await readKey(path);
  if (kept !== undefined) {
    await closeToOthers(path);
    return { path, text: kept };
  }
  await writeOnce(path, makeKey());
  // Of two processes that start together the first to link wins, and both read its key.
  return { path, text: (await readFile(path, 'utf8')).trim() };
}

/** The key in a file, if that is there. */
export async function readKey(path: string): Promise<string | undefined> {
  try {
    return (await readFile(path, 'utf8')).trim();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

async function closeToOthers(path: string): Promise<void> {
  const { mode } = await stat(path);
  if ((mode & 0o077) !== 0) await chmod(path, 0o600);
}

async function writeOnce(path: string, text: string): Promise<void> {
  const draft = `${path}.${process.pid}.tmp`;
  const file = await open(draft, 'wx', 0o600);
  try {
    await file.writeFile(`${text}\n`);
    await file.sync();
  } finally {
    await file.close();
  }
  try {
    await link(draft, path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  } finally {
    await unlink(draft);
  }
}
