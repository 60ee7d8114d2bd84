import { LruMap, type PluginContext, textBytes } from '@sibyl/plugin-kit';
import { z } from 'zod';

const TIMEOUT_MS = 5_000;
/** How long a failure is cached, so that not every message waits for a service that is down. */
const FAILURE_MS = 5_000;
/** Size of the cache. */
const MAX_BYTES = 4 * 1024 ** 2;
const ENTRY_BYTES = 300;
/** Concurrent requests; with more, the service is too slow. */
const MAX_PENDING = 200;
/** More than any user spends, and small enough for exact sums. */
const UNLIMITED = 2 ** 50;

const Answer = z.object({ credit: z.int().min(0).max(UNLIMITED) });

interface SubscriptionDeps {
  readonly context: Pick<PluginContext, 'fetch' | 'ucan' | 'oracle' | 'logger'>;
  readonly url: string;
  /** What happens while the service cannot be reached. */
  readonly failure: 'closed' | 'open';
  readonly cacheMs: number;
  /** Milliseconds of a clock that never goes back. */
  readonly clock: () => number;
}

interface CachedLine {
  readonly line: CreditLine;
  readonly until: number;
}

/** Reads the credit of users from a subscription service, with a cache. */
export class SubscriptionService implements CreditLines {
  private readonly deps: SubscriptionDeps;
  private readonly cache = new LruMap<string, CachedLine>({
    maxBytes: MAX_BYTES,
    measure: (_, owner) => textBytes(owner) + ENTRY_BYTES,
  });
  private readonly pending = new Map<string, Promise<CreditLine>>();

  constructor(deps: SubscriptionDeps) {
    this.deps = deps;
  }

  async get(owner: string): Promise<CreditLine> {
    const cached = this.cache.get(owner);
    if (cached && cached.until > this.deps.clock()) return cached.line;
    // Requests of one user at the same time share one answer.
    return this.pending.get(owner) ?? this.start(owner);
  }

  forget(owner: string): void {
    this.cache.delete(owner);
    // A pending answer may be outdated too.
    this.pending.delete(owner);
  }

  private start(owner: string): Promise<CreditLine> {
    // Even with failure `open`: strangers decide how many requests there are.
    if (this.pending.size >= MAX_PENDING) return Promise.resolve({ amount: 0, error: UNKNOWN });
    const line = this.fetchLine(owner);
    this.pending.set(owner, line);
    void line.then((answer) => {
      if (this.pending.get(owner) !== line) return;
      this.pending.delete(owner);
      const until = this.deps.clock() + (answer.error ? FAILURE_MS : this.deps.cacheMs);
      this.cache.set(owner, { line: answer, until });
    });
    return line;
  }

  private async fetchLine(owner: string): Promise<CreditLine> {
    try {
      return { amount: await this.request(owner) };
    } catch (err) {
      const { context, failure } = this.deps;
      context.logger.warn({ err, did: owner, failure }, 'cannot reach the subscription service');
      return { amount: failure === 'open' ? UNLIMITED : 0, error: UNKNOWN };
    }
  }

  private async request(user: string): Promise<number> {
    const { url, context } = this.deps;
    const token = await context.ucan.mintInvocation({
      audience: await context.ucan.resolveServiceDid(new URL(url).origin),
      can: 'subscription/read',
      with: context.oracle.did,
      nb: { user },
    });
    const response = await context.fetch(url, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${token}`,
        'x-auth-type': 'ucan',
        'content-type': 'application/json',
      },
      body: JSON.stringify({ user }),
      // The invocation is for this address alone.
      redirect: 'error',
      timeoutMs: TIMEOUT_MS,
      maxBytes: 64 * 1024,
    });
    if (!response.ok) throw new Error(`The subscription service answered ${response.status}`);
    return Answer.parse(await response.json()).credit;
  }
}

const UNKNOWN = 'Out of credit, and the subscription service cannot be reached. Try again.';

/** Credit beyond a balance, for usage that is claimed later. */
export interface CreditLine {
  readonly amount: number;
  /** Why it is not known, for the user. */
  readonly error?: string;
}

/** Credit that a service grants beyond balances. */
export interface CreditLines {
  get(owner: string): Promise<CreditLine>;
  /** Drops the cached answer about a user. */
  forget(owner: string): void;
}

/** Without a subscription service. */
export const noCreditLines: CreditLines = { get: async () => ({ amount: 0 }), forget: () => {} };
