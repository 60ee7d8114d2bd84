import { createHash } from 'node:crypto';
import { type Clock, systemClock } from '../clock.js';
import { AUTH_CAPABILITY } from '../codec/ucan-block.js';
import type { DidResolver } from '../did/did-resolver.js';
import { refuse, type UcanFault } from '../fault.js';
import { LIMITS } from '../gate/limits.js';
import { named, readToken } from '../gate/read-token.js';
import type { Capability, Token } from '../gate/token.js';
import type { Result } from '../result.js';
import { claimWithUcanto } from './claim-with-ucanto.js';
import { checkDelegation } from './delegation-rules.js';
import { checkInvocation } from './invocation-rules.js';
import { checkRevocations, type Revocations } from './revocations.js';
import { type SingleUseStore, spendOnce } from './single-use.js';
import {
  delegationOf,
  invocationOf,
  type Verdict,
  type VerifiedDelegation,
  type VerifiedInvocation,
} from './verdict.js';
import { VerdictCache } from './verdict-cache.js';
import { verifySignatures } from './verify-signatures.js';

export interface VerifierOptions {
  /** The oracle's DID; a token for anybody else is refused. */
  readonly audience: string;
  readonly extraAudiences?: readonly string[];
  readonly resolver: DidResolver;
  readonly revocations: Revocations;
  /** Without it `verifySingleUse` refuses everything. */
  readonly singleUse?: SingleUseStore;
  readonly clock?: Clock;
  readonly maxTtlSeconds?: number;
  readonly cacheCapacity?: number;
}

export interface VerifyOptions {
  /** False refuses an issuer whose keys would have to be looked up; verdicts known already count. */
  readonly allowLookup?: boolean;
}

export interface SingleUseExpectation extends VerifyOptions {
  readonly can: string;
  readonly with: string;
  readonly issuer: string;
}

/** Proves tokens; every method answers with a verdict or a fault and never throws. */
export interface Verifier {
  /** Who is calling: the bearer of an auth invocation (contract B8). */
  verifyInvocation(
    token: unknown,
    options?: VerifyOptions,
  ): Promise<Result<VerifiedInvocation, UcanFault>>;
  /** What a user lets the oracle do; also the login of clients without invocations. */
  verifyDelegation(
    token: unknown,
    options?: VerifyOptions,
  ): Promise<Result<VerifiedDelegation, UcanFault>>;
  /** One call of one thing by one caller, once. */
  verifySingleUse(
    token: unknown,
    expectation: SingleUseExpectation,
  ): Promise<Result<VerifiedInvocation, UcanFault>>;
  /** Drops the cached verdicts that match and says how many; the next use is judged anew. */
  forget(matches: (verdict: Verdict) => boolean): number;
}

/** Builds a verifier for one oracle, with its own cache of verdicts. */
export function createVerifier(options: VerifierOptions): Verifier {
  return new CachingVerifier(options);
}

class CachingVerifier implements Verifier {
  readonly #options: VerifierOptions;
  readonly #clock: Clock;
  readonly #audiences: ReadonlySet<string>;
  readonly #invocations: VerdictCache<VerifiedInvocation>;
  readonly #delegations: VerdictCache<VerifiedDelegation>;

  constructor(options: VerifierOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#audiences = new Set([options.audience, ...(options.extraAudiences ?? [])]);
    const cache = { clock: this.#clock, capacity: options.cacheCapacity ?? 10_000 };
    this.#invocations = new VerdictCache(cache);
    this.#delegations = new VerdictCache(cache);
  }

  verifyInvocation(text: unknown, options: VerifyOptions = {}) {
    return this.#verifyCached(text, options, {
      cache: this.#invocations,
      check: (token) => this.#checkInvocation(token, AUTH_CAPABILITY),
      verdictOf: invocationOf,
    });
  }

  verifyDelegation(text: unknown, options: VerifyOptions = {}) {
    return this.#verifyCached(text, options, {
      cache: this.#delegations,
      check: (token) => checkDelegation(token, { audiences: this.#audiences, now: this.#clock() }),
      verdictOf: delegationOf,
    });
  }

  async verifySingleUse(
    text: unknown,
    expectation: SingleUseExpectation,
  ): Promise<Result<VerifiedInvocation, UcanFault>> {
    const { can, with: resource, issuer } = expectation;
    const token = readToken(text);
    if (token.error) return token;
    const store = this.#options.singleUse;
    const fault =
      this.#checkInvocation(token.ok, { can, with: resource }, issuer) ??
      (store
        ? await spendOnce(token.ok.root, store, () => this.#prove(token.ok, expectation))
        : refuse('replay_store_unavailable', 'none configured').error);
    return fault ? { error: named(fault, token.ok.root) } : { ok: invocationOf(token.ok) };
  }

  forget(matches: (verdict: Verdict) => boolean): number {
    return this.#invocations.forget(matches) + this.#delegations.forget(matches);
  }

  async #verifyCached<V extends Verdict>(
    text: unknown,
    options: VerifyOptions,
    plan: VerifyPlan<V>,
  ): Promise<Result<V, UcanFault>> {
    if (typeof text !== 'string' || text.length > LIMITS.characters) {
      return readToken(text) as { error: UcanFault };
    }
    // Strict base64 makes text and bytes one to one, so the text's hash stands for the bytes'.
    // Purpose and audience are in no key: each purpose has its cache, each verifier its audience.
    const key = createHash('sha256').update(text).digest('base64');
    const known = plan.cache.get(key);
    const flight = options.allowLookup === false ? `${key} offline` : key;
    const result: Result<V, UcanFault> = known
      ? { ok: known }
      : await plan.cache.share(flight, key, () => this.#verify(text, options, plan));
    if (result.error) return result;
    // Time passed, and somebody may have revoked it, since the verdict was reached.
    const fault = await this.#checkStanding(result.ok);
    return fault ? { error: fault } : result;
  }

  async #verify<V extends Verdict>(
    text: string,
    options: VerifyOptions,
    { check, verdictOf }: VerifyPlan<V>,
  ): Promise<Result<V, UcanFault>> {
    const token = readToken(text);
    if (token.error) return token;
    const fault = check(token.ok) ?? (await this.#prove(token.ok, options));
    return fault ? { error: named(fault, token.ok.root) } : { ok: verdictOf(token.ok) };
  }

  #checkInvocation(token: Token, capability: Capability, issuer?: string) {
    return checkInvocation(token, {
      audiences: this.#audiences,
      capability,
      ...(issuer !== undefined && { issuer }),
      now: this.#clock(),
      maxTtlSeconds: this.#options.maxTtlSeconds ?? 900,
    });
  }

  async #prove(token: Token, options: VerifyOptions): Promise<UcanFault | undefined> {
    const { resolver, revocations } = this.#options;
    const revoked = await checkRevocations(token.ucans.keys(), revocations);
    if (revoked) return revoked;
    const keys = await verifySignatures(token, {
      resolver,
      allowLookup: options.allowLookup ?? true,
    });
    if (keys.error) return keys.error;
    return token.ucans.size > 1 ? claimWithUcanto(token, keys.ok) : undefined;
  }

  async #checkStanding({ did, cid, cids, expiration }: Verdict): Promise<UcanFault | undefined> {
    const fault =
      expiration <= this.#clock()
        ? refuse('expired', 'since it was verified').error
        : await checkRevocations(cids, this.#options.revocations);
    return fault && { cid, issuer: did, ...fault };
  }
}

interface VerifyPlan<V extends Verdict> {
  readonly cache: VerdictCache<V>;
  readonly check: (token: Token) => UcanFault | undefined;
  readonly verdictOf: (token: Token) => V;
}
