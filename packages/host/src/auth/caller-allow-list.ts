import { randomUUID } from 'node:crypto';
import { INVITATION_MAX_DAYS, OracleError, type Result } from '@sibyl/protocol';
import { LruMap, textBytes } from '@sibyl/server-kit';
import {
  createVerifier,
  mintDelegation,
  type Signer,
  type UcanError,
  type Verifier,
} from '@sibyl/ucan';
import type { Logger } from 'pino';
import type { CallerStore } from '../store/caller-store.js';

/** How long a result is cached: a removal by another process takes effect within this time. */
const FRESH_MS = 3000;
const REMEMBERED_BYTES = 1024 * 1024;
/** DIDs in one query. */
const BATCH = 200;

interface CallerAllowListOptions {
  /** CALLERS_ALLOW; undefined allows all callers. */
  readonly listed: readonly string[] | undefined;
  readonly callers: CallerStore;
  readonly logger: Logger;
}

/** Which callers are allowed: all, or those that the operator listed or invited. */
export class CallerAllowList {
  private readonly listed: ReadonlySet<string> | undefined;
  /** Invited callers and when the store was asked, on the monotonic clock. */
  private readonly invited = new LruMap<string, number>({
    maxBytes: REMEMBERED_BYTES,
    measure: (_, did) => textBytes(did) + 8,
  });
  /** Open sockets of invited callers, whose number is limited elsewhere. */
  private readonly watched = new Map<string, Set<() => void>>();
  private timer: NodeJS.Timeout | undefined;
  private removals = 0;

  constructor(private readonly options: CallerAllowListOptions) {
    this.listed = options.listed && new Set(options.listed);
  }

  /** Throws for an authenticated caller that the operator has neither listed nor invited. */
  async assertAllowed(did: string): Promise<void> {
    if (await this.isAllowed(did)) return;
    this.options.logger.info({ did }, 'caller not allowed');
    throw new OracleError('caller_not_allowed');
  }

  async isAllowed(did: string): Promise<boolean> {
    if (!this.listed || this.listed.has(did)) return true;
    const known = this.invited.get(did);
    if (known !== undefined && performance.now() - known < FRESH_MS) return true;
    const { removals } = this;
    const since = performance.now();
    const isInvited = await this.options.callers.has(did);
    // A result from before a removal must not be cached.
    if (isInvited && removals === this.removals) this.invited.set(did, since);
    return isInvited;
  }

  /** Ends the access of an invited caller at once; returns whether there was one. */
  async remove(did: string): Promise<boolean> {
    const wasThere = await this.options.callers.remove(did);
    this.forget(did);
    return wasThere;
  }

  /** Calls back when a caller loses access; returns a function that stops watching. */
  watch(did: string, onRemoved: () => void): () => void {
    if (!this.listed || this.listed.has(did)) return () => undefined;
    this.watched.set(did, (this.watched.get(did) ?? new Set()).add(onRemoved));
    this.timer ??= setTimeout(() => void this.checkWatched(), FRESH_MS).unref();
    return () => {
      const listeners = this.watched.get(did);
      listeners?.delete(onRemoved);
      if (listeners?.size === 0) this.watched.delete(did);
    };
  }

  /** Finds removals by other processes, with few queries even for many sockets. */
  private async checkWatched(): Promise<void> {
    try {
      const dids = [...this.watched.keys()];
      for (let at = 0; at < dids.length; at += BATCH) {
        const batch = dids.slice(at, at + BATCH);
        const stored = new Set(await this.options.callers.filterStored(batch));
        for (const did of batch) if (!stored.has(did)) this.forget(did);
      }
    } catch (err) {
      this.options.logger.warn({ err }, 'cannot check whether callers were removed');
    }
    this.timer = undefined;
    if (this.watched.size > 0)
      this.timer = setTimeout(() => void this.checkWatched(), FRESH_MS).unref();
  }

  private forget(did: string): void {
    this.removals += 1;
    this.invited.delete(did);
    for (const onRemoved of [...(this.watched.get(did) ?? [])]) onRemoved();
  }
}

const DAY_SECONDS = 86_400;

const CAPABILITY = 'oracle/invite';

export interface Invitation {
  readonly token: string;
  /** Unix seconds. */
  readonly expiration: number;
}

/** Signs an invitation: a UCAN from the oracle to itself, which no other service accepts. */
export function mintInvitation(signer: Signer, days: number): Invitation {
  const expiration = Math.floor(Date.now() / 1000) + days * DAY_SECONDS;
  const { ok, error } = mintDelegation({
    signer,
    audience: signer.did,
    capabilities: [{ can: CAPABILITY, with: signer.did }],
    expiration,
    nonce: randomUUID(),
  });
  if (error) throw new Error(`Cannot sign an invitation: ${error.detail}`);
  return { token: ok.token, expiration };
}

/** Verifies the invitations of one oracle. */
export class InvitationReader {
  private readonly verifier: Verifier;

  constructor(private readonly signer: Signer) {
    this.verifier = createVerifier({
      audience: signer.did,
      // The oracle knows its own key, so a did:web is not resolved.
      resolver: { resolve: async () => ({ ok: [signer.publicKey] }) },
      revocations: { isRevoked: () => false },
      maxTtlSeconds: INVITATION_MAX_DAYS * DAY_SECONDS,
      // The store claims it in one transaction with adding the caller.
      singleUse: { claim: async () => true, release: async () => undefined },
    });
  }

  /** Whether a token is an invitation of this oracle; not whether it was used. */
  async read(token: string): Promise<Result<{ cid: string; expiration: number }, UcanError>> {
    const { did } = this.signer;
    return this.verifier.verifySingleUse(token, { can: CAPABILITY, with: did, issuer: did });
  }
}
