import { randomUUID } from 'node:crypto';
import { link, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import * as ucan from '@sibyl/ucan';
import { exportPrivateKey, generateSigner } from '@sibyl/ucan';
import { OracleClientError } from './errors.js';
import { createSigner, type OracleSigner } from './signers/signer.js';

/** Creates a signer from a mnemonic: its seed is the SHA-256 of the trimmed text. */
export const signerFromMnemonic = (text: string): OracleSigner =>
  toOracleSigner(ucan.signerFromMnemonic(text));

/** Creates a signer from a private key as exported by the chat page or `sibyl key export`, or from 64 hex digits. */
export const signerFromPrivateKey = (text: string): OracleSigner =>
  toOracleSigner(ucan.signerFromPrivateKey(text));

function toOracleSigner({ ok, error }: ReturnType<typeof ucan.signerFromMnemonic>): OracleSigner {
  if (ok) return createSigner(ok);
  throw new OracleClientError('key_invalid', error.detail);
}

/** Opens the key in a file; creates the file, readable only by its owner, if it does not exist. */
export async function openKeyFile(path: string): Promise<OracleSigner> {
  const text = (await readKey(path)) ?? (await createKey(path)) ?? (await readKey(path)) ?? '';
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

/** Writes a new key atomically; returns undefined if another process was faster. */
async function createKey(path: string): Promise<string | undefined> {
  const text = exportPrivateKey(generateSigner());
  const draft = `${path}.${randomUUID()}`;
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  try {
    await writeFile(draft, `${text}\n`, { mode: 0o600, flag: 'wx', flush: true });
    await link(draft, path);
    return text;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return undefined;
    throw error;
  } finally {
    await rm(draft, { force: true });
  }
}
