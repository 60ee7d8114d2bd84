import type {
  AccessKeyCaveats,
  AccessKeyInfo,
  AccessKeyList,
  DelegationInfo,
  DelegationList,
  DelegationRevoked,
  DelegationStatus,
  DelegationStored,
  DelegationsRevoked,
  RegisterAccessKey,
  StoppedWork,
  StoreDelegation,
} from '@sibyl/protocol';
import { RUN_ABILITY, toOracleResource } from '@sibyl/protocol/decisions';
import type { Capability, IpldMap, MintedToken } from '@sibyl/ucan/browser';
import { toSigningError } from './errors.js';
import type { HttpClient, RequestOptions } from './http/http-client.js';
import type { OracleSigner } from './signers/signer.js';

export interface DelegationTerms {
  readonly capabilities: readonly Capability[];
  /** Unix seconds; defaults to one day from now. */
  readonly expiration?: number;
}

const PATH = '/delegation';
const LIST_PATH = '/delegations';

/** Delegations from the user to the oracle. */
export interface Delegations extends ReturnType<typeof createDelegations> {}

export const createDelegations = (http: HttpClient, signer: OracleSigner) => ({
  /** Signs a delegation to the oracle without sending it. */
  create(terms: DelegationTerms): Promise<MintedToken> {
    return signToOracle(http, signer, { ...terms, days: 1 });
  },
  /** Stores a signed delegation at the oracle. */
  store(token: string): Promise<DelegationStored> {
    return storeDelegation(http, token);
  },
  /** Signs a delegation and stores it. */
  async grant(terms: DelegationTerms): Promise<DelegationStored> {
    return storeDelegation(http, (await signToOracle(http, signer, { ...terms, days: 1 })).token);
  },
  status(options?: RequestOptions): Promise<DelegationStatus> {
    return http.get(PATH, options);
  },
  /** The user's delegations at the oracle, newest first. */
  async list(options?: RequestOptions): Promise<readonly DelegationInfo[]> {
    return (await http.get<DelegationList>(LIST_PATH, options)).delegations;
  },
  /** Revokes one delegation; without a CID, the current one and those it replaced. Returns what runs no more. */
  async revoke(cid?: string): Promise<readonly StoppedWork[]> {
    const path = cid === undefined ? PATH : `${LIST_PATH}/${encodeURIComponent(cid)}`;
    return (await http.requestJson<DelegationRevoked>({ method: 'DELETE', path })).stopped ?? [];
  },
  /** Revokes all delegations at the oracle; returns their number, and what runs no more. */
  async revokeAll(): Promise<{
    readonly revoked: number;
    readonly stopped: readonly StoppedWork[];
  }> {
    const request = { method: 'DELETE', path: LIST_PATH } as const;
    const { revoked, stopped = [] } = await http.requestJson<DelegationsRevoked>(request);
    return { revoked, stopped };
  },
});

function storeDelegation(http: HttpClient, raw: string): Promise<DelegationStored> {
  const body: StoreDelegation = { raw };
  return http.requestJson({ method: 'POST', path: PATH, body });
}

export interface AccessKeyTerms extends AccessKeyCaveats {
  /** For the list of keys. */
  readonly name: string;
  /** Unix seconds; defaults to 90 days from now. */
  readonly expiration?: number;
}

const KEYS_PATH = '/keys';
const KEY_DAYS = 90;
// Not from the protocol package at run time: it would add zod to the bundle.
const KEY_CAPABILITY = { can: 'oracle/chat', with: 'ixo:oracle' } satisfies AccessKeyCapability;
type AccessKeyCapability = typeof import('@sibyl/protocol').ACCESS_KEY_CAPABILITY;

/** Keys for programs that cannot sign, such as clients of OpenAI's API. */
export interface AccessKeys extends ReturnType<typeof createAccessKeys> {}

export const createAccessKeys = (http: HttpClient, signer: OracleSigner) => ({
  /** Signs and registers a key. `key` is a secret that the oracle does not return again. */
  async create({
    name,
    expiration,
    ...caveats
  }: AccessKeyTerms): Promise<AccessKeyInfo & { readonly key: string }> {
    // Caveats that are undefined must be absent from what is signed.
    const nb: IpldMap = JSON.parse(JSON.stringify(caveats));
    const capabilities = [{ ...KEY_CAPABILITY, nb }];
    const terms = { capabilities, expiration, days: KEY_DAYS };
    const { token } = await signToOracle(http, signer, terms);
    const body: RegisterAccessKey = { token, name };
    const path = KEYS_PATH;
    const info = await http.requestJson<AccessKeyInfo>({ method: 'POST', path, body });
    return { ...info, key: token };
  },
  /** The user's keys, newest first. */
  async list(options?: RequestOptions): Promise<readonly AccessKeyInfo[]> {
    return (await http.get<AccessKeyList>(KEYS_PATH, options)).keys;
  },
  /** Ends a key at once, and the turns that were started with it. */
  async revoke(id: string): Promise<void> {
    await http.requestJson({ method: 'DELETE', path: `${KEYS_PATH}/${encodeURIComponent(id)}` });
  },
});

const RUN_DAYS = 90;

/** Signs that the oracle may run turns for the user; returns the token. */
export async function delegateRuns(
  http: HttpClient,
  signer: OracleSigner,
  {
    purpose,
    nb,
    expiration,
  }: {
    /** What the resource ends with. */
    readonly purpose: string;
    readonly nb?: IpldMap;
    readonly expiration?: number | undefined;
  },
): Promise<string> {
  const { did: audience } = await http.discovery.card();
  const resource = `${toOracleResource(audience)}:${purpose}`;
  const capabilities = [{ can: RUN_ABILITY, with: resource, ...(nb && { nb }) }];
  return (await signToOracle(http, signer, { capabilities, expiration, days: RUN_DAYS })).token;
}

const DAY_SECONDS = 86_400;

/** Signs a delegation to the oracle. */
async function signToOracle(
  http: HttpClient,
  signer: OracleSigner,
  {
    capabilities,
    expiration,
    days,
  }: {
    readonly capabilities: readonly Capability[];
    readonly expiration?: number | undefined;
    /** Days from now until it expires, without `expiration`. */
    readonly days: number;
  },
): Promise<MintedToken> {
  const { did: audience } = await http.discovery.card();
  const expiresAt = expiration ?? http.discovery.now() + days * DAY_SECONDS;
  return signer.delegate({ audience, capabilities, expiration: expiresAt }).catch((cause) => {
    throw toSigningError(cause);
  });
}
