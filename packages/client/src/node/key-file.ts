import { randomUUID } from 'node:crypto';
import { link, mkdir, readFile, unlink, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { exportPrivateKey, generateSigner } from '@sibyl/ucan';
import { OracleClientError } from '../oracle-client-error.js';
import type { OracleSigner } from '../signer/oracle-signer.js';
import { signerFromPrivateKey } from './node-signers.js';

/** The signer of the key in a file, which is made (readable by its owner alone) when missing. */
export async function openKeyFile(path: string): Promise<OracleSigner> {
  const text = (await readKey(path)) ?? (await makeKey(path)) ?? (await readKey(path)) ?? '';
  try {
    return signerFromPrivateKey(text);
  } catch (cause) {
    const { message } = cause as Error;
    throw new OracleClientError('key_invalid', `${path}: ${message}`, { cause });
  }
}

async function readKey(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

/** Writes a new key in one step, unless another process was faster. */
async function makeKey(path: string): Promise<string | undefined> {
  const text = exportPrivateKey(generateSigner());
  const draft = `${path}.${randomUUID()}`;
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  await writeFile(draft, `${text}\n`, { mode: 0o600, flag: 'wx', flush: true });
  try {
    await link(draft, path);
    return text;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return undefined;
    throw error;
  } finally {
    await unlink(draft);
  }
}
