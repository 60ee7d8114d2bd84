import { createHash } from 'node:crypto';
import type { Result } from '@sibyl/protocol';
import { LruMap, textBytes } from '@sibyl/protocol/lru-map';
import { type Ipld, type IpldMap, isIpldMap, Link } from '../codec/ipld.js';
import {
  AUTH_CAPABILITY,
  type Capability,
  type Clock,
  LIMITS,
  systemClock,
  type Token,
  type Ucan,
} from '../codec/ucan.js';
import type { DidResolver } from '../did/did-resolver.js';
import { refuse, type UcanError } from '../errors.js';
import { named, readToken } from '../read/read-token.js';
import type { Revocations, SingleUseStore, SpentTokens } from './revocations.js';
import { checkDelegation, checkGrant, checkInvocation } from './rules.js';
import { SignatureVerifier, type VerificationCost } from './signatures.js';

export interface VerifierOptions {
  /** The oracle's DID; a token for another audience is refused. */
  readonly audience: string;
  readonly extraAudiences?: readonly string[];
  readonly resolver: DidResolver;
  readonly revocations: Revocations;
  /** Without it `verifySingleUse` refuses everything. */
  readonly singleUse?: SingleUseStore;
  /** A delegation with a link that is among these is refused, at every use. */
  readonly spentTokens?: SpentTokens;
  /** Receives every token that is refused, for counting and logging. */
  readonly onRejection?: (purpose: TokenPurpose, error: UcanError) => void;
  readonly clock?: Clock;
  readonly maxTtlSeconds?: number;
  /** What the verdicts of either kind may take in memory; 8 MiB by default. */
  readonly cacheBytes?: number;
}

export type TokenPurpose =
  | 'invocation'
  | 'delegation'
  | 'grant'
  | 'single_use'
  | 'statement'
  | 'access_key';

export interface VerifyOptions {
  /**
   * Called with the least that a verification can cost, before the token is decoded, unless the verdict is
   * cached. Returning false ends the verification with `cost_refused`.
   */
  readonly isAffordable?: ((atLeast: VerificationCost) => boolean) | undefined;
  /**
   * Asked before the first signature or network access, unless the verdict is cached. Returning undefined
   * ends the verification with the error `cost_refused`. What it returns is called once, at the end.
   */
  readonly charge?: Charge | undefined;
}

export type Charge = (cost: VerificationCost) => Settle | undefined;

/** Receives the outcome of a verification that was charged for. */
export type Settle = (isProven: boolean) => void;

export interface AccessKeyExpectation extends VerifyOptions {
  /** The only capability of the key; its caveats are not interpreted. */
  readonly capability: Capability;
  readonly maxTtlSeconds: number;
}

export interface GrantExpectation extends VerifyOptions {
  /** Such as `oracle/run`. */
  readonly can: string;
}

export interface SingleUseExpectation extends VerifyOptions {
  readonly can: string;
  readonly with: string;
  readonly issuer: string;
}

export interface StatementExpectation extends SingleUseExpectation {
  /** Whether it may not live longer than an auth invocation. */
  readonly isShortLived?: boolean | undefined;
}

interface IssuerExpectation extends VerifyOptions {
  readonly issuer: string;
}

/** A success: who was proven by which UCANs, and until when. */
export interface Verdict {
  readonly did: string;
  readonly cid: string;
  readonly audience: string;
  /** Everyone who signed a link of the chain, `did` among them. */
  readonly issuers: readonly string[];
  /** The UCANs of the whole chain, `cid` among them. */
  readonly cids: readonly string[];
  /** Unix seconds; that of the link which runs out first, Infinity if none does. */
  readonly expiration: number;
}

/** A caller proven by a fresh signature. */
export type VerifiedInvocation = Verdict;

/**
 * A right handed to the oracle. `did` is the delegator: the signer of the outermost UCAN, never
 * the root of its proofs, so that a right from another user does not make the holder that user.
 */
export interface VerifiedDelegation extends Verdict {
  readonly capabilities: readonly Capability[];
  /** The archive itself, to store and to attach as a proof: a secret, never to be logged. */
  readonly token: string;
}

/** What a user has signed for the oracle alone: one capability and its caveats. */
export interface VerifiedStatement extends Verdict {
  readonly nb: IpldMap;
  /** The raw public key that signed, as resolved now. */
  readonly key: Uint8Array;
}

/** Proves tokens; every method answers with a verdict or an error and never throws. */
export interface Verifier {
  /** Who is calling: the bearer of an auth invocation. */
  verifyInvocation(
    token: unknown,
    options?: VerifyOptions,
  ): Promise<Result<VerifiedInvocation, UcanError>>;
  /**
   * What a user lets the oracle do; also the login of clients without invocations. An auth invocation passes within its own
   * rules: the caller decides whether it may stand in for a delegation (`isAuthInvocation`).
   */
  verifyDelegation(
    token: unknown,
    options?: VerifyOptions,
  ): Promise<Result<VerifiedDelegation, UcanError>>;
  /** A long-lived token without proofs for exactly one capability, which a user gives to a program. */
  verifyAccessKey(
    token: unknown,
    expectation: AccessKeyExpectation,
  ): Promise<Result<VerifiedDelegation, UcanError>>;
  /**
   * What a user lets the oracle itself do later: exactly one capability with an ability of the oracle, without proofs.
   * The caller checks issuer, resource and caveats.
   */
  verifyGrant(
    token: unknown,
    expectation: GrantExpectation,
  ): Promise<Result<VerifiedDelegation, UcanError>>;
  /** One call of one thing by one caller, once. */
  verifySingleUse(
    token: unknown,
    expectation: SingleUseExpectation,
  ): Promise<Result<VerifiedInvocation, UcanError>>;
  /**
   * What a user states to the oracle: one capability with caveats, no proofs. The caller decides what the caveats mean, and
   * records the use of a statement that counts once.
   */
  verifyStatement(
    token: unknown,
    expectation: StatementExpectation,
  ): Promise<Result<VerifiedStatement, UcanError>>;
  /** A token that this issuer signed: for any audience and purpose, valid now or not. Its proofs are not verified. */
  verifyIssuer(
    token: unknown,
    expectation: IssuerExpectation,
  ): Promise<Result<Pick<Ucan, 'cid' | 'expiration'>, UcanError>>;
  /** Drops the cached verdicts that match and says how many; the next use is verified again. */
  forget(matches: (verdict: Verdict) => boolean): number;
}

/** Builds a verifier for one oracle, with its own cache of verdicts. */
export function createVerifier(options: VerifierOptions): Verifier {
  return new CachingVerifier(options);
}

class CachingVerifier implements Verifier {
  private readonly options: VerifierOptions;
  private readonly clock: Clock;
  private readonly audiences: ReadonlySet<string>;
  private readonly invocations: VerdictCache<VerifiedInvocation>;
  private readonly delegations: VerdictCache<VerifiedDelegation>;
  private readonly grants: VerdictCache<VerifiedDelegation>;
  private readonly accessKeys: VerdictCache<VerifiedDelegation>;
  private readonly signatures: SignatureVerifier;
  private readonly maxTtlSeconds: number;

  constructor(options: VerifierOptions) {
    this.options = options;
    this.clock = options.clock ?? systemClock;
    this.maxTtlSeconds = options.maxTtlSeconds ?? 900;
    this.audiences = new Set([options.audience, ...(options.extraAudiences ?? [])]);
    const maxBytes = options.cacheBytes ?? 8 * 1024 * 1024;
    const cache = { clock: this.clock, maxBytes };
    this.invocations = new VerdictCache(cache);
    this.delegations = new VerdictCache(cache);
    this.grants = new VerdictCache({ ...cache, maxBytes: maxBytes / 4 });
    this.accessKeys = new VerdictCache(cache);
    this.signatures = new SignatureVerifier(options.resolver, maxBytes / 4);
  }

  async verifyInvocation(text: unknown, options: VerifyOptions = {}) {
    const result = await this.verifyCached(text, options, {
      cache: this.invocations,
      check: (token) => this.checkInvocation(token, AUTH_CAPABILITY),
      toVerdict: toInvocation,
    });
    return this.reported('invocation', result);
  }

  async verifyDelegation(text: unknown, options: VerifyOptions = {}) {
    const result = await this.verifyCached(text, options, {
      cache: this.delegations,
      check: (token) =>
        checkDelegation(token, {
          audiences: this.audiences,
          now: this.clock(),
          maxTtlSeconds: this.maxTtlSeconds,
        }),
      toVerdict: toDelegation,
      spentTokens: this.options.spentTokens,
    });
    return this.reported('delegation', result);
  }

  async verifyGrant(text: unknown, { can, ...options }: GrantExpectation) {
    const rules = () => ({ audiences: this.audiences, now: this.clock(), can });
    const result = await this.verifyCached(text, options, {
      cache: this.grants,
      check: (token) => checkGrant(token, rules()),
      toVerdict: toDelegation,
      spentTokens: this.options.spentTokens,
    });
    // A cached verdict may have been reached for another ability.
    const isOther = result.ok?.capabilities.some((granted) => granted.can !== can);
    return this.reported('grant', isOther ? refuse('wrong_capability', `not ${can}`) : result);
  }

  async verifyAccessKey(text: unknown, expectation: AccessKeyExpectation) {
    const { capability, maxTtlSeconds } = expectation;
    const result = await this.verifyCached(text, expectation, {
      cache: this.accessKeys,
      check: (token) =>
        checkInvocation(token, {
          audiences: this.audiences,
          capability,
          now: this.clock(),
          maxTtlSeconds,
          allowsCaveats: true,
        }),
      toVerdict: toDelegation,
    });
    // A cached verdict may have been reached for another capability.
    const isOther = result.ok?.capabilities.some(
      (granted) => granted.can !== capability.can || granted.with !== capability.with,
    );
    const { can, with: resource } = capability;
    const other = refuse('wrong_capability', `not ${can} at ${resource}`);
    return this.reported('access_key', isOther ? other : result);
  }

  async verifySingleUse(text: unknown, expectation: SingleUseExpectation) {
    return this.reported('single_use', await this.spend(text, expectation));
  }

  async verifyStatement(text: unknown, expectation: StatementExpectation) {
    return this.reported('statement', await this.proveStatement(text, expectation));
  }

  async verifyIssuer(text: unknown, { issuer, ...options }: IssuerExpectation) {
    const token = readToken(text);
    if (token.error) return token;
    const { root } = token.ok;
    if (root.issuer !== issuer) return refuse('wrong_issuer', `not ${issuer}`);
    const alone = { ...token.ok, ucans: new Map([[root.cid, root]]) };
    const error = await this.withCharge(alone, options, () => this.signatures.verify(alone));
    return error ? { error: named(error, root) } : { ok: root };
  }

  private reported<V>(purpose: TokenPurpose, result: Result<V, UcanError>): Result<V, UcanError> {
    if (result.error) this.options.onRejection?.(purpose, result.error);
    return result;
  }

  private async spend(
    text: unknown,
    expectation: SingleUseExpectation,
  ): Promise<Result<VerifiedInvocation, UcanError>> {
    const { can, with: resource, issuer } = expectation;
    const token = readToken(text);
    if (token.error) return token;
    const store = this.options.singleUse;
    const error =
      this.checkInvocation(token.ok, { can, with: resource }, issuer) ??
      (store
        ? await spendOnce(token.ok.root, store, () => this.prove(token.ok, expectation))
        : refuse('replay_store_unavailable', 'none configured').error);
    return error ? { error: named(error, token.ok.root) } : { ok: toInvocation(token.ok) };
  }

  private async proveStatement(
    text: unknown,
    expectation: StatementExpectation,
  ): Promise<Result<VerifiedStatement, UcanError>> {
    const { can, with: resource, issuer, isShortLived = false } = expectation;
    const token = readToken(text);
    if (token.error) return token;
    const { root } = token.ok;
    const error =
      this.checkInvocation(token.ok, { can, with: resource }, issuer, {
        allowsCaveats: true,
        ...(!isShortLived && { maxTtlSeconds: undefined }),
      }) ?? (await this.prove(token.ok, expectation));
    if (error) return { error: named(error, root) };
    const key = await this.signatures.findKey(root);
    if (key.error) return { error: named(key.error, root) };
    const nb = root.capabilities[0]?.nb ?? {};
    return { ok: { ...toInvocation(token.ok), nb, key: key.ok } };
  }

  forget(matches: (verdict: Verdict) => boolean): number {
    const caches = [this.invocations, this.delegations, this.grants, this.accessKeys];
    return caches.reduce((dropped, cache) => dropped + cache.forget(matches), 0);
  }

  private async verifyCached<V extends Verdict>(
    text: unknown,
    options: VerifyOptions,
    plan: VerifyPlan<V>,
  ): Promise<Result<V, UcanError>> {
    if (typeof text !== 'string' || text.length > LIMITS.characters) {
      return readToken(text) as { error: UcanError };
    }
    // Strict base64 makes text and bytes one to one, so the text's hash identifies the bytes.
    // Purpose and audience are in no key: each purpose has its cache, each verifier its audience.
    const key = createHash('sha256').update(text).digest('base64');
    const known = plan.cache.get(key);
    const result: Result<V, UcanError> = known
      ? { ok: known }
      : await plan.cache.share(key, () => this.verify(text, options, plan));
    if (result.error) return result;
    // Since the verdict was reached time has passed, and the token may have been revoked or spent.
    const error = await this.checkStanding(result.ok, plan.spentTokens);
    return error ? { error } : result;
  }

  private async verify<V extends Verdict>(
    text: string,
    options: VerifyOptions,
    { check, toVerdict }: VerifyPlan<V>,
  ): Promise<Result<V, UcanError>> {
    const atLeast = { signatures: 0, lookups: 0, characters: text.length };
    if (options.isAffordable?.(atLeast) === false) return refuseCost();
    const token = readToken(text);
    if (token.error) return token;
    const error = check(token.ok) ?? (await this.prove(token.ok, options));
    return error ? { error: named(error, token.ok.root) } : { ok: toVerdict(token.ok) };
  }

  private checkInvocation(
    token: Token,
    capability: Capability,
    issuer?: string,
    more: { maxTtlSeconds?: undefined; allowsCaveats?: boolean } = {},
  ) {
    return checkInvocation(token, {
      audiences: this.audiences,
      capability,
      ...(issuer !== undefined && { issuer }),
      now: this.clock(),
      maxTtlSeconds: this.maxTtlSeconds,
      ...more,
    });
  }

  private prove(token: Token, options: VerifyOptions): Promise<UcanError | undefined> {
    return this.withCharge(
      token,
      options,
      async () =>
        (await checkRevocations(token.ucans.keys(), this.options.revocations)) ??
        (await this.signatures.verify(token)),
    );
  }

  private async withCharge(
    token: Token,
    { charge }: VerifyOptions,
    verify: () => Promise<UcanError | undefined>,
  ): Promise<UcanError | undefined> {
    const settle = charge ? charge(this.signatures.measure(token)) : () => undefined;
    if (!settle) return refuseCost().error;
    let isProven = false;
    try {
      const error = await verify();
      isProven = error === undefined;
      return error;
    } finally {
      settle(isProven);
    }
  }

  private async checkStanding(
    { did, cid, cids, expiration }: Verdict,
    spentTokens: SpentTokens | undefined,
  ): Promise<UcanError | undefined> {
    const error =
      expiration <= this.clock()
        ? refuse('expired', 'since it was verified').error
        : ((await checkRevocations(cids, this.options.revocations)) ??
          (spentTokens && (await checkSpent(cids, spentTokens))));
    return error && { cid, issuer: did, ...error };
  }
}

interface VerifyPlan<V extends Verdict> {
  readonly cache: VerdictCache<V>;
  readonly check: (token: Token) => UcanError | undefined;
  readonly toVerdict: (token: Token) => V;
  readonly spentTokens?: SpentTokens | undefined;
}

const refuseCost = () => refuse('cost_refused', 'the sender has no allowance left');

const toInvocation = (token: Token): VerifiedInvocation => toVerdict(token);

function toDelegation(token: Token): VerifiedDelegation {
  return { ...toVerdict(token), capabilities: token.root.capabilities, token: token.text };
}

function toVerdict({ root, ucans }: Token): Verdict {
  const chain = [...ucans.values()];
  return {
    did: root.issuer,
    cid: root.cid,
    audience: root.audience,
    issuers: [...new Set(chain.map(({ issuer }) => issuer))],
    cids: [...ucans.keys()],
    expiration: Math.min(...chain.map(({ expiration }) => expiration ?? Number.POSITIVE_INFINITY)),
  };
}

/** Refuses a chain of which any link was revoked, and every chain when that cannot be known. */
async function checkRevocations(
  cids: Iterable<string>,
  revocations: Revocations,
): Promise<UcanError | undefined> {
  try {
    for (const cid of cids) {
      if (await revocations.isRevoked(cid)) return refuse('revoked', cid).error;
    }
    return undefined;
  } catch (cause) {
    return refuse('revocations_unavailable', String(cause).slice(0, 200)).error;
  }
}

/** Refuses a chain of which any link was accepted once: it was made for that one call. */
async function checkSpent(
  cids: Iterable<string>,
  spent: SpentTokens,
): Promise<UcanError | undefined> {
  try {
    for (const cid of cids) {
      if (await spent.has(cid)) return refuse('single_use', cid).error;
    }
    return undefined;
  } catch (cause) {
    return refuse('replay_store_unavailable', String(cause).slice(0, 200)).error;
  }
}

/** How long a spent token is remembered beyond its expiry. */
const KEEP_SECONDS = 60;

/** Claims the token before it is verified, and releases it if the verification fails. */
async function spendOnce(
  { cid, expiration }: Ucan,
  store: SingleUseStore,
  prove: () => Promise<UcanError | undefined>,
): Promise<UcanError | undefined> {
  try {
    const isFirst = await store.claim(cid, (expiration ?? 0) + KEEP_SECONDS);
    if (!isFirst) return refuse('replayed', 'spent before, or no room to remember it').error;
  } catch (cause) {
    return refuse('replay_store_unavailable', String(cause).slice(0, 200)).error;
  }
  const error = await prove();
  // If the store cannot release it, the token is lost, but never spent twice.
  if (error) await store.release(cid).catch(() => undefined);
  return error;
}

interface Entry<V> {
  readonly verdict: V;
  readonly until: number;
}

interface VerdictCacheOptions {
  readonly clock: Clock;
  readonly maxBytes: number;
}

/** Keys of other methods than did:key can be withdrawn, so a verdict on them is short-lived. */
const LOOKED_UP_SECONDS = 300;

/** Verifications in progress at most: each holds a token in memory. */
const MAX_PENDING = 2000;

/** Remembers successes and lets equal tokens that arrive together share one verification. */
class VerdictCache<V extends Verdict> {
  private readonly options: VerdictCacheOptions;
  private readonly entries: LruMap<string, Entry<V>>;
  private readonly pending = new Map<string, Promise<Result<V, UcanError>>>();
  private generation = 0;

  constructor(options: VerdictCacheOptions) {
    this.options = options;
    this.entries = new LruMap({
      maxBytes: options.maxBytes,
      measure: ({ verdict }, key) => measureVerdict(verdict) + textBytes(key),
    });
  }

  get(key: string): V | undefined {
    const entry = this.entries.get(key);
    if (!entry) return undefined;
    if (entry.until > this.options.clock()) return entry.verdict;
    this.entries.delete(key);
    return undefined;
  }

  /** Joins the verification of the same token that is in progress, or starts one and keeps its success. */
  async share(
    key: string,
    verify: () => Promise<Result<V, UcanError>>,
  ): Promise<Result<V, UcanError>> {
    const running = this.pending.get(key);
    if (running !== undefined) {
      const result = await running;
      // The other caller's allowance says nothing about this one's.
      return result.error?.code === 'cost_refused' ? this.verifyAndKeep(key, verify) : result;
    }
    if (this.pending.size >= MAX_PENDING) {
      return refuse('verifier_busy', `${MAX_PENDING} verifications are in progress`);
    }
    const started = this.verifyAndKeep(key, verify);
    this.pending.set(key, started);
    try {
      return await started;
    } finally {
      this.pending.delete(key);
    }
  }

  forget(matches: (verdict: Verdict) => boolean): number {
    // A verification that began before must not restore what is being forgotten.
    this.generation += 1;
    return this.entries.deleteWhere(({ verdict }) => matches(verdict));
  }

  private async verifyAndKeep(
    key: string,
    verify: () => Promise<Result<V, UcanError>>,
  ): Promise<Result<V, UcanError>> {
    const generation = this.generation;
    const result = await verify();
    if (result.ok && generation === this.generation) {
      this.entries.set(key, { verdict: result.ok, until: this.keepUntil(result.ok) });
    }
    return result;
  }

  private keepUntil({ issuers, expiration }: V): number {
    const isOffline = issuers.every((did) => did.startsWith('did:key:'));
    return isOffline ? expiration : Math.min(expiration, this.options.clock() + LOOKED_UP_SECONDS);
  }
}

const OBJECT_BYTES = 120;
/** A short typed array, or a link with one inside. */
const BYTES_OBJECT_BYTES = 240;

/** What a verdict keeps in memory, at most. */
export function measureVerdict(verdict: Verdict & Partial<VerifiedDelegation>): number {
  const { did, cid, audience, issuers, cids, capabilities = [], token = '' } = verdict;
  const texts = [did, cid, audience, token, ...issuers, ...cids];
  const base = texts.reduce((bytes, text) => bytes + textBytes(text), 2 * OBJECT_BYTES);
  return capabilities.reduce((bytes, { can, with: resource, nb = {} }) => {
    return bytes + OBJECT_BYTES + textBytes(can) + textBytes(resource) + measureIpld(nb);
  }, base);
}

function measureIpld(value: Ipld): number {
  if (typeof value === 'string') return textBytes(value);
  if (value instanceof Uint8Array) return BYTES_OBJECT_BYTES + value.length;
  if (value instanceof Link) return 2 * BYTES_OBJECT_BYTES + value.bytes.length;
  if (Array.isArray(value)) {
    return value.reduce<number>((bytes, item) => bytes + 8 + measureIpld(item), OBJECT_BYTES);
  }
  if (!isIpldMap(value)) return 16;
  return Object.entries(value).reduce(
    // A map with unique keys gets a hidden class for each of them.
    (bytes, [key, item]) => bytes + OBJECT_BYTES + textBytes(key) + measureIpld(item),
    OBJECT_BYTES,
  );
}
