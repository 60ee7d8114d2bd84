import { join } from 'node:path';
import { keepKeyFile } from '@sibyl/server-kit';
import { exportPrivateKey, generateSigner, type Signer, signerFromPrivateKey } from '@sibyl/ucan';
import { ConfigError } from '../config/config.js';

const FILE_NAME = 'gateway.key';

/** The gateway's own key; the first start makes it, for its owner only. */
export async function keepSigner(dataDir: string): Promise<Signer> {
  const path = join(dataDir, FILE_NAME);
  const text = await keepKeyFile(path, () => exportPrivateKey(generateSigner()));
  const { ok, error } = signerFromPrivateKey(text);
  if (!error) return ok;
  const remedy = 'restore it from a backup, or remove it to get a new key and a new DID';
  throw new ConfigError(`${path} (${remedy}): ${error.detail}`);
}
