import { join } from 'node:path';
import { keepKeyFile, readKeyFile } from '@sibyl/server-kit';
import {
  exportPrivateKey,
  generateSigner,
  type Result,
  type Signer,
  signerFromMnemonic,
  signerFromPrivateKey,
  type UcanFault,
} from '@sibyl/ucan';
import { BootError } from '../config/boot-error.js';
import type { Config } from '../config/config.js';

/** Where the oracle's key is kept when no variable holds it. */
export const keyFileIn = (dataDir: string): string => join(dataDir, 'oracle.key');

/** Who this oracle is: its name, its DID and the key it signs with. */
export class OracleIdentity {
  constructor(
    readonly name: string,
    readonly entityDid: string | undefined,
    readonly signer: Signer,
  ) {}

  /** The audience of every token meant for this oracle. */
  get did(): string {
    return this.signer.did;
  }
}

/** Takes the key from the configuration, or from DATA_DIR, where the first start makes one. */
export async function loadOracleIdentity({ oracle, dataDir }: Config): Promise<OracleIdentity> {
  return identityOf(oracle, configuredSigner(oracle) ?? (await keptSigner(dataDir)));
}

/** As loading it, where there is a key already; makes none. */
export async function findOracleIdentity({
  oracle,
  dataDir,
}: Config): Promise<OracleIdentity | undefined> {
  const key = configuredSigner(oracle) ?? (await foundSigner(dataDir));
  return key && identityOf(oracle, key);
}

function identityOf(oracle: Config['oracle'], key: Signer): OracleIdentity {
  const signer =
    oracle.did === undefined
      ? key
      : expectOk(key.withDid(oracle.did), 'ORACLE_DID (host)', "Unset it for the key's own DID");
  return new OracleIdentity(oracle.name, oracle.entityDid, signer);
}

const OTHER_KEY = 'Correct it, or unset it to have a key made';

function configuredSigner({ mnemonic, privateKey }: Config['oracle']): Signer | undefined {
  if (mnemonic !== undefined)
    return expectOk(signerFromMnemonic(mnemonic), 'ORACLE_MNEMONIC (host)', OTHER_KEY);
  if (privateKey !== undefined)
    return expectOk(signerFromPrivateKey(privateKey), 'ORACLE_PRIVATE_KEY (host)', OTHER_KEY);
  return undefined;
}

async function keptSigner(dataDir: string): Promise<Signer> {
  const path = keyFileIn(dataDir);
  const text = await keepKeyFile(path, () => exportPrivateKey(generateSigner()));
  return signerIn(path, text);
}

async function foundSigner(dataDir: string): Promise<Signer | undefined> {
  const path = keyFileIn(dataDir);
  const text = await readKeyFile(path);
  return text === undefined ? undefined : signerIn(path, text);
}

function signerIn(path: string, text: string): Signer {
  const remedy = 'Restore it from a backup, or remove it to get a new key and a new DID';
  return expectOk(signerFromPrivateKey(text), path, remedy);
}

function expectOk(result: Result<Signer, UcanFault>, subject: string, remedy: string): Signer {
  if (result.error) throw new BootError([{ subject, problem: result.error.detail, remedy }]);
  return result.ok;
}
