import { wholeNumber } from '@sibyl/protocol';
import { z } from 'zod';

/** Where a claim stands; the last two are final. */
export const ClaimStatus = z.enum(['open', 'submitted', 'settled', 'failed']);
export type ClaimStatus = z.infer<typeof ClaimStatus>;

/** Usage that a balance could not pay, on its way to whoever pays it. */
export const Claim = z
  .object({
    id: z.string(),
    amount: z.int(),
    status: ClaimStatus,
    sessionId: z.string(),
    requestId: z.string(),
    reference: z.string().optional().describe("The service's own name for it"),
    reason: z.string().optional().describe('What keeps it from being settled'),
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

/** Reply of `POST /claims/process`: what became of the claims that were due. */
export const ClaimsProcessed = z
  .object({
    status: z
      .enum(['done', 'unfinished', 'busy'])
      .describe('unfinished: more is due, call again; busy: another call is at work'),
    settled: z.int(),
    submitted: z.int(),
    failed: z.int(),
    postponed: z.int().describe('Tried in vain, and tried again later'),
  })
  .meta({ id: 'ClaimsProcessed' });
export type ClaimsProcessed = z.infer<typeof ClaimsProcessed>;
