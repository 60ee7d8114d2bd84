import { link, mkdir, open, readFile, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { exportPrivateKey, generateSigner, type Signer, signerFromPrivateKey } from '@sibyl/ucan';
import { ConfigError } from '../config/config.js';

const FILE_NAME = 'gateway.key';

/** The gateway's own key; the first start makes it, for its owner only. */
export async function keepSigner(dataDir: string): Promise<Signer> {
  await mkdir(dataDir, { recursive: true, mode: 0o700 });
  const path = join(dataDir, FILE_NAME);
  const text = (await readKey(path)) ?? (await writeKey(path));
  const { ok, error } = signerFromPrivateKey(text);
  if (!error) return ok;
  const remedy = 'restore it from a backup, or remove it to get a new key and a new DID';
  throw new ConfigError(`${path} (${remedy}): ${error.detail}`);
}

async function readKey(path: string): Promise<string | undefined> {
  try {
    return (await readFile(path, 'utf8')).trim();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

/** Of two processes that start together the first to link wins, and both read its key. */
async function writeKey(path: string): Promise<string> {
  const draft = `${path}.${process.pid}.tmp`;
  const file = await open(draft, 'wx', 0o600);
  try {
    await file.writeFile(`${exportPrivateKey(generateSigner())}\n`);
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
  return (await readFile(path, 'utf8')).trim();
}
