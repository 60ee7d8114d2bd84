import { OracleError } from '@sibyl/protocol';
import { withTimeout } from '@sibyl/server-kit';
import { type Revocations, systemClock } from '@sibyl/ucan';
import type { Logger } from 'pino';
import type { UserList } from '../store/operators/operator-store.js';
import type { RevocationStore } from '../store/revocation-store.js';
import { CachedList } from './access-watch.js';
import type { Caller } from './caller.js';
import type { CallerAllowList } from './caller-allow-list.js';

interface OperatorsOptions {
  /** OPERATORS. */
  readonly listed: readonly string[];
  /** Those that `sibyl operators` added. */
  readonly stored: Pick<UserList, 'list'>;
  readonly allowList: Pick<CallerAllowList, 'isKnownBlocked'>;
  readonly logger: Logger;
}

/** Who may use the routes of operators; known also while the store does not answer. */
export class Operators {
  private readonly listed: ReadonlySet<string>;
  private readonly added: CachedList;

  constructor(private readonly options: OperatorsOptions) {
    const { listed, stored, logger } = options;
    this.listed = new Set(listed);
    this.added = new CachedList({
      read: async () => (await stored.list()).map(({ did }) => did),
      logger,
    });
  }

  start(): Promise<void> {
    return this.added.start();
  }

  close(): void {
    this.added.close();
  }

  /**
   * Throws for everyone else, with an error that says nothing. A delegation or an access key is not enough: services and
   * programs that received it could use it.
   */
  async assertOperator({ did, login, accessKey }: Caller): Promise<void> {
    if (login || accessKey || !(await this.has(did))) throw new OracleError('forbidden');
    if (await this.options.allowList.isKnownBlocked(did)) throw new OracleError('caller_blocked');
  }

  private async has(did: string): Promise<boolean> {
    return this.listed.has(did) || this.added.has(did);
  }
}

const READ_LIMIT = { ms: 1_000, message: 'the store does not answer' };
/** How long the store is not asked again after it failed. */
const RETRY_MS = 2_000;
/** Tokens of operators that were revoked and have not expired; more than this are not kept. */
const MAX_REVOKED = 10_000;
/** Clocks differ, so a token may live a little longer than its time. */
const SKEW_SECONDS = 60;

/** An entry of a list that has all revoked tokens; no token has this CID. */
const COMPLETE = '';

interface OutageRevocationsDeps {
  readonly stored: Pick<RevocationStore, 'has' | 'listExpiring'>;
  /** OPERATORS, and those that were added: only they log in while the store does not answer. */
  readonly listed: readonly string[];
  readonly added: Pick<UserList, 'list'>;
  /** How long a login lasts at most. */
  readonly maxTtlSeconds: number;
  readonly logger: Logger;
}

/**
 * Revoked tokens, by the store, or by the last list of those that could still log an operator in. Nothing can be revoked
 * while the store does not answer, so only the last seconds before that are missing. Other users, who may revoke any
 * number of tokens, are not in the list.
 */
export class OutageRevocations implements Revocations {
  private readonly recent: CachedList;
  private failedAt = Number.NEGATIVE_INFINITY;
  /** What was in the list, with its expiry: after an operator has deleted their data, the store no longer says whose it was. */
  private readonly listed = new Map<string, number>();

  constructor(private readonly deps: OutageRevocationsDeps) {
    this.recent = new CachedList({ read: () => this.readAll(), logger: deps.logger });
  }

  start(): Promise<void> {
    return this.recent.start();
  }

  close(): void {
    this.recent.close();
  }

  async isRevoked(cid: string): Promise<boolean> {
    const { stored } = this.deps;
    const isAway = performance.now() - this.failedAt < RETRY_MS;
    if (isAway && this.recent.knows(COMPLETE)) return this.recent.knows(cid);
    try {
      return await withTimeout(READ_LIMIT, () => stored.has(cid));
    } catch (error) {
      this.failedAt = performance.now();
      if (!this.recent.knows(COMPLETE)) throw error;
      return this.recent.knows(cid);
    }
  }

  private async readAll(): Promise<readonly string[]> {
    const { stored, added, maxTtlSeconds } = this.deps;
    const found = await stored.listExpiring({
      owners: [...this.deps.listed, ...(await added.list()).map(({ did }) => did)],
      withinSeconds: maxTtlSeconds + SKEW_SECONDS,
      limit: MAX_REVOKED + 1,
    });
    const { listed } = this;
    for (const [cid, expiresAt] of listed)
      if (expiresAt + SKEW_SECONDS < systemClock()) listed.delete(cid);
    for (const { cid, expiresAt } of found)
      if (listed.size <= MAX_REVOKED) listed.set(cid, expiresAt);
    return listed.size <= MAX_REVOKED ? [COMPLETE, ...listed.keys()] : [];
  }
}
