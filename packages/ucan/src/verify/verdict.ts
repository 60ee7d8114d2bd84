import type { Result } from '@sibyl/protocol';
import { LruMap, textBytes } from '@sibyl/protocol/lru-map';
import { type Ipld, type IpldMap, isIpldMap, Link } from '../codec/ipld.js';
import type { Capability, Clock, Token } from '../codec/ucan.js';
import { refuse, type UcanError } from '../errors.js';

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

export const toInvocation = (token: Token): VerifiedInvocation => toVerdict(token);

export function toDelegation(token: Token): VerifiedDelegation {
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
export class VerdictCache<V extends Verdict> {
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
