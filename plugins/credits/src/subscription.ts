import { LruMap, type PluginContext, textBytes } from '@sibyl/plugin-kit';
import { z } from 'zod';

const TIMEOUT_MS = 5_000;
/** A service that is down is not asked again for every message. */
const FAILURE_MS = 5_000;
/** What all remembered answers may take. */
const MAX_BYTES = 4 * 1024 ** 2;
const ENTRY_BYTES = 300;
/** Users whose credit is asked for at the same time: with more, the service is the one that is slow. */
const MAX_ASKING = 200;
/** More than anybody spends, and far from where sums stop being exact. */
const UNLIMITED = 2 ** 50;

const Answer = z.object({ credit: z.int().min(0).max(UNLIMITED) });

interface SubscriptionParts {
  readonly context: Pick<PluginContext, 'fetch' | 'ucan' | 'oracle' | 'logger'>;
  readonly url: string;
  /** What a user may do while the service cannot be asked. */
  readonly failure: 'closed' | 'open';
  readonly cacheMs: number;
  /** Milliseconds of a clock that never goes back. */
  readonly clock: () => number;
}

interface Known {
  readonly line: CreditLine;
  readonly until: number;
}

/** Asks a subscription service for the credit of a user, and remembers the answer for a while. */
export class SubscriptionService implements CreditLines {
  readonly #parts: SubscriptionParts;
  readonly #known = new LruMap<string, Known>({
    maxBytes: MAX_BYTES,
    sizeOf: (_, owner) => textBytes(owner) + ENTRY_BYTES,
  });
  readonly #asking = new Map<string, Promise<CreditLine>>();

  constructor(parts: SubscriptionParts) {
    this.#parts = parts;
  }

  async of(owner: string): Promise<CreditLine> {
    const known = this.#known.get(owner);
    if (known && known.until > this.#parts.clock()) return known.line;
    // Requests of one user at the same time share one answer.
    return this.#asking.get(owner) ?? this.#start(owner);
  }

  forget(owner: string): void {
    this.#known.delete(owner);
    // An answer on its way may be older than what is forgotten.
    this.#asking.delete(owner);
  }

  #start(owner: string): Promise<CreditLine> {
    // Never as `failure` says: strangers decide how many ask at once.
    if (this.#asking.size >= MAX_ASKING) return Promise.resolve({ amount: 0, fault: UNKNOWN });
    const line = this.#lineOf(owner);
    this.#asking.set(owner, line);
    void line.then((answer) => {
      if (this.#asking.get(owner) !== line) return;
      this.#asking.delete(owner);
      const until = this.#parts.clock() + (answer.fault ? FAILURE_MS : this.#parts.cacheMs);
      this.#known.set(owner, { line: answer, until });
    });
    return line;
  }

  async #lineOf(owner: string): Promise<CreditLine> {
    try {
      return { amount: await this.#ask(owner) };
    } catch (err) {
      const { context, failure } = this.#parts;
      context.logger.warn({ err, did: owner, failure }, 'subscription service cannot be asked');
      return { amount: failure === 'open' ? UNLIMITED : 0, fault: UNKNOWN };
    }
  }

  async #ask(user: string): Promise<number> {
    const { url, context } = this.#parts;
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

const UNKNOWN = 'Out of credit, and the subscription service cannot be asked; try again';

/** Credit beyond a balance, for usage that is claimed later. */
export interface CreditLine {
  readonly amount: number;
  /** Why it is not known, for the user. */
  readonly fault?: string;
}

/** What somebody else grants users beyond their balances. */
export interface CreditLines {
  of(owner: string): Promise<CreditLine>;
  /** What was known of a user no longer holds. */
  forget(owner: string): void;
}

/** Where balances are all there is. */
export const noLines: CreditLines = { of: async () => ({ amount: 0 }), forget: () => {} };
