import type { PluginContext } from '@sibyl/plugin-kit';
import { z } from 'zod';
import type { CreditLine, CreditLines } from './credit-lines.js';

const TIMEOUT_MS = 5_000;
/** A service that is down is not asked again for every message. */
const FAILURE_MS = 5_000;
const MAX_KNOWN = 10_000;
/** More than anybody spends, and far from where sums stop being exact. */
const UNLIMITED = 2 ** 50;

const Answer = z.object({ credit: z.int().min(0).max(UNLIMITED) });

interface SubscriptionParts {
  readonly context: Pick<PluginContext, 'fetch' | 'ucan' | 'oracle' | 'logger'>;
  readonly url: string;
  /** What a user may do while the service cannot be asked. */
  readonly failure: 'closed' | 'open';
  readonly cacheMs: number;
  readonly clock: () => number;
}

interface Known {
  readonly line: Promise<CreditLine>;
  until: number;
}

/** Asks a subscription service for the credit of a user, and remembers the answer for a while. */
export class SubscriptionService implements CreditLines {
  readonly #parts: SubscriptionParts;
  readonly #known = new Map<string, Known>();

  constructor(parts: SubscriptionParts) {
    this.#parts = parts;
  }

  of(owner: string): Promise<CreditLine> {
    const known = this.#known.get(owner);
    if (known && known.until > this.#parts.clock()) return known.line;
    // Whoever asks while the service is being asked waits for the same answer.
    const entry: Known = { until: Number.POSITIVE_INFINITY, line: this.#lineOf(owner) };
    this.#remember(owner, entry);
    void entry.line.then(({ fault }) => {
      entry.until = this.#parts.clock() + (fault ? FAILURE_MS : this.#parts.cacheMs);
    });
    return entry.line;
  }

  forget(owner: string): void {
    this.#known.delete(owner);
  }

  #remember(owner: string, entry: Known): void {
    this.#known.delete(owner);
    this.#known.set(owner, entry);
    const [oldest] = this.#known.keys();
    if (this.#known.size > MAX_KNOWN && oldest !== undefined) this.#known.delete(oldest);
  }

  async #lineOf(owner: string): Promise<CreditLine> {
    try {
      return { amount: await this.#ask(owner) };
    } catch (err) {
      const { context, failure } = this.#parts;
      context.logger.warn({ err, did: owner, failure }, 'subscription service cannot be asked');
      const fault = 'Out of credit, and the subscription service cannot be asked; try again';
      return { amount: failure === 'open' ? UNLIMITED : 0, fault };
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
