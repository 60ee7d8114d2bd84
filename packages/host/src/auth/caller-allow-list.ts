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
import type { HostBus } from '../bus/host-bus.js';
import type { CallerStore } from '../store/caller-store.js';
import { AccessWatch } from './access-watch.js';

/** How long a result is cached: a removal by another process takes effect within this time. */
const FRESH_MS = 3000;
const REMEMBERED_BYTES = 1024 * 1024;
interface CallerAllowListOptions {
  /** CALLERS_ALLOW; undefined allows all callers. */
  readonly listed: readonly string[] | undefined;
  readonly callers: CallerStore;
  readonly bus: HostBus;
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
  /** The invited callers of open sockets. */
  private readonly watched: AccessWatch;
  private removals = 0;

  constructor(private readonly options: CallerAllowListOptions) {
    this.listed = options.listed && new Set(options.listed);
    const { callers, bus, logger } = options;
    const findEnded = async (dids: readonly string[]) => {
      const stored = new Set(await callers.filterStored(dids));
      return dids.filter((did) => !stored.has(did));
    };
    this.watched = new AccessWatch({ findEnded, onEnded: (did) => this.forget(did), bus, logger });
    bus.on('caller-removed', ({ did }) => this.forget(did));
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

  /** Ends the access of an invited caller at once, on all hosts; returns whether there was one. */
  async remove(did: string): Promise<boolean> {
    const wasThere = await this.options.callers.remove(did);
    this.forget(did);
    this.options.bus.send('others', 'caller-removed', { did });
    return wasThere;
  }

  /** Calls back when a caller loses access; returns a function that stops watching. */
  watch(did: string, onRemoved: () => void): () => void {
    if (!this.listed || this.listed.has(did)) return () => undefined;
    return this.watched.watch([did], onRemoved);
  }

  private forget(did: string): void {
    this.removals += 1;
    this.invited.delete(did);
    this.watched.end(did);
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
