import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import type { OracleUcan } from '@sibyl/plugin-kit';
import { OracleError, type Result } from '@sibyl/protocol';
import { readKeyFile, readOrCreateKeyFile } from '@sibyl/server-kit';
import { ConfigError } from '@sibyl/server-kit/environment';
import {
  type DidResolver,
  exportPrivateKey,
  generateSigner,
  mintDelegation,
  type Signer,
  signerFromMnemonic,
  signerFromPrivateKey,
  systemClock,
  type UcanError,
  type Verifier,
} from '@sibyl/ucan';
import type { Logger } from 'pino';
import type { Config } from '../config/config.js';
import { toTemporaryError } from './authenticator.js';
import { resolveServiceDid } from './delegated-authority.js';

/** Where the oracle's key is stored if no variable contains it. */
export const toKeyFilePath = (dataDir: string): string => join(dataDir, 'oracle.key');

/** The name, DID and key of this oracle. */
export class OracleIdentity {
  constructor(
    readonly name: string,
    readonly entityDid: string | undefined,
    readonly signer: Signer,
  ) {}

  /** The audience of every token for this oracle. */
  get did(): string {
    return this.signer.did;
  }
}

/** Reads the key from the configuration, or from DATA_DIR, where the first start creates one. */
export async function loadOracleIdentity({ oracle, dataDir }: Config): Promise<OracleIdentity> {
  return createIdentity(
    oracle,
    readConfiguredSigner(oracle) ?? (await loadOrCreateSigner(dataDir)),
  );
}

/** As `loadOracleIdentity`, but creates no key. */
export async function findOracleIdentity({
  oracle,
  dataDir,
}: Config): Promise<OracleIdentity | undefined> {
  const key = readConfiguredSigner(oracle) ?? (await loadSigner(dataDir));
  return key && createIdentity(oracle, key);
}

function createIdentity(oracle: Config['oracle'], key: Signer): OracleIdentity {
  const signer =
    oracle.did === undefined
      ? key
      : expectOk(key.withDid(oracle.did), 'ORACLE_DID (host)', "Unset it for the key's own DID");
  return new OracleIdentity(oracle.name, oracle.entityDid, signer);
}

const OTHER_KEY = 'Correct it, or unset it to generate a key';

function readConfiguredSigner({ mnemonic, privateKey }: Config['oracle']): Signer | undefined {
  if (mnemonic !== undefined)
    return expectOk(signerFromMnemonic(mnemonic), 'ORACLE_MNEMONIC (host)', OTHER_KEY);
  if (privateKey !== undefined)
    return expectOk(signerFromPrivateKey(privateKey), 'ORACLE_PRIVATE_KEY (host)', OTHER_KEY);
  return undefined;
}

async function loadOrCreateSigner(dataDir: string): Promise<Signer> {
  const path = toKeyFilePath(dataDir);
  const text = await readOrCreateKeyFile(path, () => exportPrivateKey(generateSigner()));
  return parseSigner(path, text);
}

async function loadSigner(dataDir: string): Promise<Signer | undefined> {
  const path = toKeyFilePath(dataDir);
  const text = await readKeyFile(path);
  return text === undefined ? undefined : parseSigner(path, text);
}

function parseSigner(path: string, text: string): Signer {
  const remedy = 'Restore it from a backup, or remove it to get a new key and a new DID';
  return expectOk(signerFromPrivateKey(text), path, remedy);
}

function expectOk(result: Result<Signer, UcanError>, subject: string, remedy: string): Signer {
  if (result.error)
    throw new ConfigError('host', [{ subject, problem: result.error.detail, remedy }]);
  return result.ok;
}

const DEFAULT_TTL_SECONDS = 300;
const MIN_TTL_SECONDS = 5;

type OwnMintRequest = Parameters<OracleUcan['mintInvocation']>[0];
type Wanted = Parameters<OracleUcan['acceptOnce']>[1];

interface OracleAuthorityDeps {
  readonly signer: Signer;
  readonly resolver: DidResolver;
  /** Creates a verifier that records the single-use tokens of one caller. */
  readonly verifierFor: (issuer: string) => Verifier;
  readonly logger: Logger;
}

/** What the oracle signs and verifies in its own name, rather than for a user. */
export class OracleAuthority implements OracleUcan {
  // Plugins hold this object, and its signer is the oracle's key.
  readonly #deps: OracleAuthorityDeps;

  constructor(deps: OracleAuthorityDeps) {
    this.#deps = deps;
  }

  /** Mints a UCAN without proofs, which only the oracle itself can issue. */
  async mintInvocation({ audience, ttlSeconds, ...wanted }: OwnMintRequest): Promise<string> {
    const { can, with: resource, nb } = wanted;
    const expiration = systemClock() + Math.max(ttlSeconds ?? DEFAULT_TTL_SECONDS, MIN_TTL_SECONDS);
    const { ok, error } = mintDelegation({
      signer: this.#deps.signer,
      audience,
      capabilities: [{ can, with: resource, ...(nb && { nb }) }],
      expiration,
      facts: [{ nonce: randomUUID() }],
    });
    if (ok) return ok.token;
    throw new OracleError('forbidden', { message: `Nothing was signed: ${error.detail}` });
  }

  resolveServiceDid(serviceUrl: string): Promise<string> {
    return resolveServiceDid(this.#deps.resolver, serviceUrl);
  }

  /** The prefix keeps these signatures apart from those of UCANs, which begin with encoded JSON. */
  signWebhook({ id, timestamp, body }: Parameters<OracleUcan['signWebhook']>[0]): string {
    if (!/^msg_[\w-]+$/.test(id)) throw new Error('The id of a webhook delivery begins with msg_');
    const signed = this.#deps.signer.sign(Buffer.from(`${id}.${timestamp}.${body}`));
    return `v1a,${Buffer.from(signed).toString('base64')}`;
  }

  /** The reason of a rejection is only logged: it would help an attacker. */
  async acceptOnce(token: string, wanted: Wanted) {
    const { error } = await this.#deps.verifierFor(wanted.issuer).verifySingleUse(token, wanted);
    if (!error) return { ok: true } as const;
    const temporary = toTemporaryError(error);
    if (temporary) throw temporary;
    const { code, detail, cid } = error;
    this.#deps.logger.info({ reason: code, detail, cid, did: wanted.issuer }, 'token rejected');
    return { error: explainRefusal(code) };
  }
}

/** Explains errors that the user can fix; all others have the same text. */
function explainRefusal(code: string): string {
  switch (code) {
    case 'expired':
      return 'the invocation has expired';
    case 'replayed':
      return 'the invocation was used before';
    default:
      return 'the invocation is not valid for this call';
  }
}
