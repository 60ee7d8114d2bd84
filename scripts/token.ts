// Prints a bearer for curl: signed by a user key kept in DATA_DIR, for the oracle at the given address.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  exportPrivateKey,
  generateSigner,
  mintAuthInvocation,
  signerFromPrivateKey,
} from '@sibyl/ucan';

const url = process.argv[2] ?? `http://127.0.0.1:${process.env.PORT ?? 3000}`;
const dataDir = process.env.DATA_DIR ?? './data';
const path = join(dataDir, 'user.key');

function keyText(): string {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch {
    const text = exportPrivateKey(generateSigner());
    mkdirSync(dataDir, { recursive: true, mode: 0o700 });
    writeFileSync(path, `${text}\n`, { mode: 0o600, flag: 'wx' });
    return text;
  }
}

async function oracleDid(): Promise<string> {
  const response = await fetch(new URL('/.well-known/oracle.json', url)).catch(() => undefined);
  if (!response?.ok)
    throw new Error(
      `No oracle answers at ${url}: start one with npm start, or say where it is: npm run -s token -- <url>`,
    );
  return ((await response.json()) as { did: string }).did;
}

try {
  const { ok: signer, error } = signerFromPrivateKey(keyText());
  if (error) throw new Error(`${path}: ${error.detail}`);
  const minted = mintAuthInvocation({ signer, audience: await oracleDid() });
  if (minted.error) throw new Error(minted.error.detail);
  console.log(minted.ok.token);
} catch (error) {
  console.error((error as Error).message);
  process.exitCode = 1;
}
