import {
  exportPrivateKey,
  generateSigner,
  type Result,
  type Signer,
  signerFromMnemonic,
  signerFromPrivateKey,
  type UcanFault,
} from '@sibyl/ucan';
import { type Config, ConfigError } from '../config/config.js';
import { keepKeyFile } from './key-file.js';

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
  const key = configuredSigner(oracle) ?? (await keptSigner(dataDir));
  const signer =
    oracle.did === undefined ? key : expectOk(key.withDid(oracle.did), 'ORACLE_DID (host)');
  return new OracleIdentity(oracle.name, oracle.entityDid, signer);
}

function configuredSigner({ mnemonic, privateKey }: Config['oracle']): Signer | undefined {
  if (mnemonic !== undefined)
    return expectOk(signerFromMnemonic(mnemonic), 'ORACLE_MNEMONIC (host)');
  if (privateKey !== undefined)
    return expectOk(signerFromPrivateKey(privateKey), 'ORACLE_PRIVATE_KEY (host)');
  return undefined;
}

async function keptSigner(dataDir: string): Promise<Signer> {
  const { path, text } = await keepKeyFile(dataDir, () => exportPrivateKey(generateSigner()));
  const remedy = 'restore it from a backup, or remove it to get a new key and a new DID';
  return expectOk(signerFromPrivateKey(text), `${path} (${remedy})`);
}

function expectOk(result: Result<Signer, UcanFault>, source: string): Signer {
  if (result.error) throw new ConfigError(`${source}: ${result.error.detail}`);
  return result.ok;
}
