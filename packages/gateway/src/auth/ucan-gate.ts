import { join } from 'node:path';
import { readOrCreateKeyFile } from '@sibyl/server-kit';
import {
  createCachedResolver,
  createDidIxoResolver,
  createDidKeyResolver,
  createDidResolver,
  createVerifier,
  type DidFetch,
  exportPrivateKey,
  generateSigner,
  isCovered,
  readToken,
  type Signer,
  signerFromPrivateKey,
  systemClock,
  type VerifiedDelegation,
  type Verifier,
  type VerifyOptions,
} from '@sibyl/ucan';
import { type Config, ConfigError } from '../config/config.js';
import type { Logger } from '../observe/metrics.js';
import { WAITING } from './admission.js';
import {
  busy,
  type Caller,
  type Credentials,
  forbidden,
  type Gate,
  readBearer,
  unauthenticated,
} from './gate.js';

/** The capability a UCAN must grant. */
export const CHAIN_QUERY = 'chain/query';
/** The resource of all routes; `ixo:chain/ixo/entity/*` is a subset, by template. */
export const CHAIN = 'ixo:chain';
/** Maximum lifetime of a bearer token, clock skew included: a leaked one can be used until it expires. */
const MAX_LIFE_SECONDS = 930;
const BUSY_RETRY_SECONDS = 3;

interface UcanGateOptions {
  readonly verifier: Verifier;
  /** Trusted root issuers of proof chains; `*` for all. */
  readonly issuers: readonly string[];
  readonly logger: Logger;
}

/** Admits callers with a UCAN for this gateway that grants queries. */
export class UcanGate implements Gate {
  constructor(private readonly options: UcanGateOptions) {}

  async admit({ headers, address }: Credentials, cost: VerifyOptions): Promise<Caller> {
    const isUcan =
      String(headers['x-auth-type'] ?? '')
        .trim()
        .toLowerCase() === 'ucan';
    const token = isUcan ? readBearer(headers) : undefined;
    if (token === undefined) {
      throw unauthenticated(
        'a UCAN is required: Authorization: Bearer <invocation> with X-Auth-Type: ucan',
      );
    }
    const { ok, error } = await this.options.verifier.verifyDelegation(token, cost);
    if (error) throw this.toRefusalError(error);
    if (ok.expiration > Date.now() / 1000 + MAX_LIFE_SECONDS) {
      throw this.toRefusalError({
        code: 'expiry_too_far',
        detail: `${ok.expiration}`,
        issuer: ok.did,
      });
    }
    if (!this.isTrusted(token)) throw forbidden('no trusted issuer granted this UCAN');
    return toCaller(ok, address);
  }

  /** Every root of the proof chains must be trusted, since a single untrusted one could grant anything. */
  private isTrusted(token: string): boolean {
    const { issuers } = this.options;
    if (issuers.includes('*')) return true;
    const ucans = [...(readToken(token).ok?.ucans.values() ?? [])];
    const roots = ucans.filter(({ proofs }) => proofs.length === 0);
    return roots.length > 0 && roots.every(({ issuer }) => issuers.includes(issuer));
  }

  /** Logs the reason and does not send it: it would help an attacker. */
  private toRefusalError(error: { code: string; detail: string; cid?: string; issuer?: string }) {
    const { code, detail, cid, issuer } = error;
    this.options.logger.info({ reason: code, detail, cid, did: issuer }, 'caller rejected');
    if (code === 'did_busy' || code === 'verifier_busy') return busy(BUSY_RETRY_SECONDS);
    return unauthenticated('Invalid UCAN invocation');
  }
}

function toCaller(
  { did, capabilities: grants, expiration }: VerifiedDelegation,
  address: string,
): Caller {
  const everything = { can: CHAIN_QUERY, with: CHAIN };
  const isWhole = isCovered(everything, grants);
  return {
    name: did,
    address,
    perMinute: undefined,
    expiresAt: expiration * 1000,
    mayQuery: (template) =>
      isWhole || isCovered({ can: CHAIN_QUERY, with: `${CHAIN}${template}` }, grants),
  };
}

export interface UcanGateDeps {
  readonly config: Config;
  readonly logger: Logger;
  /** Queries the chain for the keys of did:ixo. */
  readonly createChainFetch: DidFetch;
}

/** A gate for UCANs addressed to the gateway's DID. */
export async function createUcanGate({ config, logger, createChainFetch }: UcanGateDeps) {
  const { did = (await loadSigner(config.dataDir)).did, ucanIssuers } = config.gating;
  // The nodes belong to the operator, so the verification limits suffice: they keep one address
  // from using up all lookups.
  const maxPending = WAITING.total;
  // The host is not used: the chain fetch takes only the path.
  const ixo = createDidIxoResolver({
    chainRestUrl: 'http://chain',
    fetch: createChainFetch,
    maxPending,
  });
  const methods = {
    key: createDidKeyResolver(),
    ixo: createCachedResolver({ resolver: ixo, clock: systemClock, maxPending }),
  };
  const verifier = createVerifier({
    audience: did,
    resolver: createDidResolver({ methods }),
    // Bearer tokens expire within minutes, so there is no revocation.
    revocations: { isRevoked: () => false },
  });
  return { gate: new UcanGate({ verifier, issuers: ucanIssuers, logger }), did };
}

const FILE_NAME = 'gateway.key';

/** Loads the gateway's key; the first start creates it. */
export async function loadSigner(dataDir: string): Promise<Signer> {
  const path = join(dataDir, FILE_NAME);
  const text = await readOrCreateKeyFile(path, () => exportPrivateKey(generateSigner()));
  const { ok, error } = signerFromPrivateKey(text);
  if (!error) return ok;
  const remedy = 'restore it from a backup, or remove it to get a new key and a new DID';
  throw new ConfigError(`${path} (${remedy}): ${error.detail}`);
}
