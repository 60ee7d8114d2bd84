import type { PluginContext } from '@sibyl/plugin-kit';
import { z } from 'zod';
import type { ClaimRow } from './claim-store.js';

const TIMEOUT_MS = 10_000;

/** Statuses that a retry cannot change. */
const FINAL_REFUSALS = new Set([400, 402, 410, 413, 422]);

/** The service's reply about a claim. */
const Verdict = z.object({
  status: z.enum(['submitted', 'settled', 'failed']),
  reference: z.string().max(500).optional(),
  reason: z.string().max(500).optional(),
});
export type Verdict = z.infer<typeof Verdict>;

/** An error status that a retry may change. */
export class ServiceError extends Error {
  override readonly name = 'ServiceError';
}

interface ClaimsServiceDeps {
  readonly context: Pick<PluginContext, 'fetch' | 'ucan' | 'oracle'>;
  readonly url: string;
}

/** The service that pays claims. Throws if the outcome of a request is unknown. */
export class ClaimsService {
  private readonly deps: ClaimsServiceDeps;

  constructor(deps: ClaimsServiceDeps) {
    this.deps = deps;
  }

  /** Sends a claim; its id is the idempotency key. */
  async submit(claim: ClaimRow, amount: number): Promise<Verdict> {
    const { id, owner: user, session_id, request_id, created_at } = claim;
    const nb = { claim: id, user, amount };
    const response = await this.deps.context.fetch(this.deps.url, {
      method: 'POST',
      headers: {
        ...(await this.headers({ can: 'claim/submit', nb })),
        'content-type': 'application/json',
        'idempotency-key': id,
      },
      body: JSON.stringify({
        claimId: id,
        user,
        amount,
        oracle: this.deps.context.oracle.did,
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

  /** Reads the status of a claim; undefined if the service does not know it. */
  async find({ id }: ClaimRow): Promise<Verdict | undefined> {
    const url = `${this.deps.url}/${encodeURIComponent(id)}`;
    const headers = await this.headers({ can: 'claim/read', nb: { claim: id } });
    const response = await this.deps.context.fetch(url, { headers, ...limits });
    if (response.ok) return Verdict.parse(await response.json());
    await response.body?.cancel();
    if (response.status === 404) return undefined;
    throw new ServiceError(`The service answered ${response.status}`);
  }

  private async headers(
    capability: Pick<MintedRequest, 'can' | 'nb'>,
  ): Promise<Record<string, string>> {
    const { context, url } = this.deps;
    const token = await context.ucan.mintInvocation({
      ...capability,
      with: context.oracle.did,
      audience: await context.ucan.resolveServiceDid(new URL(url).origin),
    });
    return { authorization: `Bearer ${token}`, 'x-auth-type': 'ucan' };
  }
}

type MintedRequest = Parameters<PluginContext['ucan']['mintInvocation']>[0];

/** No redirects: the invocation is meant for this address only. */
const limits = { redirect: 'error', timeoutMs: TIMEOUT_MS, maxBytes: 64 * 1024 } as const;
