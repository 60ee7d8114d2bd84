import { sharedKey } from '@sibyl/plugin-kit';
import { wholeNumber } from '@sibyl/protocol';
import { z } from 'zod';

/** The last two are final. */
export const ClaimStatus = z.enum(['open', 'submitted', 'settled', 'failed']);
export type ClaimStatus = z.infer<typeof ClaimStatus>;

/** Unpaid usage that is claimed from a service. */
export const Claim = z
  .object({
    id: z.string(),
    amount: z.int(),
    status: ClaimStatus,
    sessionId: z.string(),
    requestId: z.string(),
    reference: z.string().optional().describe("The service's id of it"),
    reason: z.string().optional().describe('Why it is not settled'),
    createdAt: z.iso.datetime(),
    updatedAt: z.iso.datetime(),
  })
  .meta({ id: 'Claim' });
export type Claim = z.infer<typeof Claim>;

/** Reply of `GET /claims`, newest first. */
export const ClaimList = z.object({ claims: z.array(Claim) }).meta({ id: 'ClaimList' });
export type ClaimList = z.infer<typeof ClaimList>;

/** Query of `GET /claims`. */
export const ListClaims = z.strictObject({
  limit: wholeNumber({ min: 1, max: 100 }).default(20),
});
export type ListClaims = z.infer<typeof ListClaims>;

/** Reply of `POST /claims/process`: the outcome of the claims that were due. */
export const ClaimsProcessed = z
  .object({
    status: z
      .enum(['done', 'unfinished', 'busy'])
      .describe('unfinished: more is due, call again; busy: another call is running'),
    settled: z.int(),
    submitted: z.int(),
    failed: z.int(),
    postponed: z.int().describe('Failed, and will be retried'),
  })
  .meta({ id: 'ClaimsProcessed' });
export type ClaimsProcessed = z.infer<typeof ClaimsProcessed>;

/** Usage that a balance could not pay; its id stays the same until it is paid. */
export interface Unpaid {
  readonly id: string;
  readonly owner: string;
  readonly amount: number;
  readonly sessionId: string;
  readonly requestId: string;
  readonly createdAt: number;
}

interface UnpaidKey {
  readonly owner: string;
  readonly id: string;
}

/** What the plugin credits shares: the usage to claim. */
export interface UnpaidUsage {
  /** One page of the usage that is not being collected yet, ordered by id. */
  list(page: { readonly after?: string }): Promise<readonly Unpaid[]>;
  listByOwner(owner: string): Promise<readonly Unpaid[]>;
  /** Marks it as being collected, so that the balance does not pay it; undefined if it is paid. */
  take(key: UnpaidKey): Promise<Unpaid | undefined>;
  settle(key: UnpaidKey): Promise<void>;
  /** Lets the balance pay it again. */
  release(key: UnpaidKey): Promise<void>;
}

export const CREDITS = sharedKey<UnpaidUsage>('credits');
