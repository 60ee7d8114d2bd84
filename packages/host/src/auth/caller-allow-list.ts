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
import type { UserList } from '../store/operators/operator-store.js';
import { AccessWatch, CachedList } from './access-watch.js';

/** How long a result is cached: a removal by another process takes effect within this time. */
const FRESH_MS = 3000;
const REMEMBERED_BYTES = 1024 * 1024;
const RETRY_AFTER_SECONDS = 5;

interface CallerAllowListOptions {
  /** CALLERS_ALLOW; undefined allows all callers. */
  readonly listed: readonly string[] | undefined;
  readonly callers: CallerStore;
  readonly blocked: Pick<UserList, 'list' | 'add' | 'remove'>;
  readonly bus: HostBus;
  readonly logger: Logger;
}

/** Why a caller may not call. */
export type Exclusion = 'caller_not_allowed' | 'caller_blocked';

/** Which callers are allowed: all, or those that the operator listed or invited; never those that are blocked. */
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
  private readonly blocks: BlockList;

  constructor(private readonly options: CallerAllowListOptions) {
    this.listed = options.listed && new Set(options.listed);
    const { callers, bus, logger } = options;
    const findEnded = async (dids: readonly string[]) => {
      const stored = new Set(await callers.filterStored(dids));
      return dids.filter((did) => !stored.has(did));
    };
    this.watched = new AccessWatch({ findEnded, onEnded: (did) => this.forget(did), bus, logger });
    bus.on('caller-removed', ({ did }) => this.forget(did));
    this.blocks = new BlockList(options);
  }

  /** Throws for an authenticated caller that the operator has neither listed nor invited. */
  async assertAllowed(did: string): Promise<void> {
    const exclusion = await this.findExclusion(did);
    if (!exclusion) return;
    this.options.logger.info({ did, reason: exclusion }, 'caller not allowed');
    throw new OracleError(exclusion);
  }

  async isAllowed(did: string): Promise<boolean> {
    return (await this.findExclusion(did)) === undefined;
  }

  /** Why the caller may not call; undefined if it may. */
  async findExclusion(did: string): Promise<Exclusion | undefined> {
    if (await this.blocks.has(did)) return 'caller_blocked';
    const isAllowed = !this.listed || this.listed.has(did) || (await this.isInvited(did));
    return isAllowed ? undefined : 'caller_not_allowed';
  }

  /** Whether the caller is blocked, as far as this host knows while the store does not answer. */
  isKnownBlocked(did: string): Promise<boolean> {
    return this.blocks.hasKnown(did);
  }

  start(): Promise<void> {
    return this.blocks.start();
  }

  close(): void {
    this.blocks.close();
  }

  /** Blocks a caller or admits it again, at once on all hosts; returns whether that changed anything. */
  setBlocked(did: string, isBlocked: boolean, reason?: string): Promise<boolean> {
    return this.blocks.set(did, isBlocked, reason);
  }

  private async isInvited(did: string): Promise<boolean> {
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
  watch(did: string, onRemoved: (exclusion: Exclusion) => void): () => void {
    const stopBlocks = this.blocks.watched.watch([did], () => onRemoved('caller_blocked'));
    if (!this.listed || this.listed.has(did)) return stopBlocks;
    const stop = this.watched.watch([did], () => onRemoved('caller_not_allowed'));
    return () => {
      stopBlocks();
      stop();
    };
  }

  private forget(did: string): void {
    this.removals += 1;
    this.invited.delete(did);
    this.watched.end(did);
  }
}

/** The callers that operators have blocked: few, so all of them are kept. */
class BlockList {
  readonly watched: AccessWatch;
  private readonly blocked: CachedList;

  constructor(
    private readonly options: Pick<CallerAllowListOptions, 'blocked' | 'bus' | 'logger'>,
  ) {
    const { blocked, bus, logger } = options;
    this.blocked = new CachedList({
      read: async () => (await blocked.list()).map(({ did }) => did),
      logger,
    });
    const findEnded = async (dids: readonly string[]) => {
      const found = await Promise.all(dids.map((did) => this.blocked.has(did)));
      return dids.filter((_, i) => found[i]);
    };
    const onEnded = (did: string) => this.watched.end(did);
    this.watched = new AccessWatch({ findEnded, onEnded, bus, logger });
    bus.on('caller-blocked', ({ did }) => this.apply(did));
  }

  start(): Promise<void> {
    return this.blocked.start();
  }

  close(): void {
    this.blocked.close();
  }

  /** Throws if the store does not answer and this host does not know enough: a guard that fails denies. */
  async has(did: string): Promise<boolean> {
    if (await this.blocked.has(did)) return true;
    if (!this.blocked.isRecent)
      throw new OracleError('store_unavailable', { retryAfterSeconds: RETRY_AFTER_SECONDS });
    return false;
  }

  hasKnown(did: string): Promise<boolean> {
    return this.blocked.has(did);
  }

  async set(did: string, isBlocked: boolean, reason?: string): Promise<boolean> {
    const { blocked, bus } = this.options;
    const hasChanged = await (isBlocked ? blocked.add(did, reason) : blocked.remove(did));
    this.blocked.expire();
    if (!isBlocked) return hasChanged;
    this.apply(did);
    bus.send('others', 'caller-blocked', { did });
    return hasChanged;
  }

  /** Known at once, also if the store goes away before the list is read again. */
  private apply(did: string): void {
    this.blocked.add(did);
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
