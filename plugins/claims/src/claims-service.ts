import type { PluginContext } from '@sibyl/plugin-kit';
import { z } from 'zod';
import type { ClaimRow } from './claim-store.js';

const TIMEOUT_MS = 10_000;

/** Answers that no repetition would change; every other failure may be gone the next time. */
const FINAL_REFUSALS = new Set([400, 402, 410, 413, 422]);

/** What the service says of a claim. */
const Verdict = z.object({
  status: z.enum(['submitted', 'settled', 'failed']),
  reference: z.string().max(500).optional(),
  reason: z.string().max(500).optional(),
});
export type Verdict = z.infer<typeof Verdict>;

/** The service answered, and the answer may be another the next time. */
export class ServiceError extends Error {
  override readonly name = 'ServiceError';
}

interface ClaimsServiceParts {
  readonly context: Pick<PluginContext, 'fetch' | 'ucan' | 'oracle'>;
  readonly url: string;
}

/** Whoever pays claims. Throws where it is not certain what became of one. */
export class ClaimsService {
  readonly #parts: ClaimsServiceParts;

  constructor(parts: ClaimsServiceParts) {
    this.#parts = parts;
  }

  /** Sends a claim; its id is the key by which the service knows a repetition. */
  async submit(claim: ClaimRow, amount: number): Promise<Verdict> {
    const { id, owner: user, session_id, request_id, created_at } = claim;
    const nb = { claim: id, user, amount };
    const response = await this.#parts.context.fetch(this.#parts.url, {
      method: 'POST',
      headers: {
        ...(await this.#headers({ can: 'claim/submit', nb })),
        'content-type': 'application/json',
        'idempotency-key': id,
      },
      body: JSON.stringify({
        claimId: id,
        user,
        amount,
        oracle: this.#parts.context.oracle.did,
        sessionId: session_id,
        requestId: request_id,
        createdAt: new Date(created_at).toISOString(),
      }),
      ...limits,
    });
    if (response.ok) return Verdict.parse(await response.json());
    await response.body?.cancel();
    const reason = `The service answered ${response.status}`;
    if (FINAL_REFUSALS.has(response.status)) return { status: 'failed', reason };
    throw new ServiceError(reason);
  }

  /** Asks what became of a claim; undefined if the service never heard of it. */
  async find({ id }: ClaimRow): Promise<Verdict | undefined> {
    const url = `${this.#parts.url}/${encodeURIComponent(id)}`;
    const headers = await this.#headers({ can: 'claim/read', nb: { claim: id } });
    const response = await this.#parts.context.fetch(url, { headers, ...limits });
    if (response.ok) return Verdict.parse(await response.json());
    await response.body?.cancel();
    if (response.status === 404) return undefined;
    throw new ServiceError(`The service answered ${response.status}`);
  }

  async #headers(capability: Pick<MintedRequest, 'can' | 'nb'>): Promise<Record<string, string>> {
    const { context, url } = this.#parts;
    const token = await context.ucan.mintInvocation({
      ...capability,
      with: context.oracle.did,
      audience: await context.ucan.resolveServiceDid(new URL(url).origin),
    });
    return { authorization: `Bearer ${token}`, 'x-auth-type': 'ucan' };
  }
}

type MintedRequest = Parameters<PluginContext['ucan']['mintInvocation']>[0];

/** The invocation is for this address alone. */
const limits = { redirect: 'error', timeoutMs: TIMEOUT_MS, maxBytes: 64 * 1024 } as const;
