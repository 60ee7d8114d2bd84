import { z } from 'zod';
import type { Gateway } from './gateway.js';

/** How many claims are read at a time, and how often before the agent is told to go on itself. */
const PAGE = 100;
const MAX_PAGES = 10;
const MAX_PAGE_BYTES = 1024 ** 2;

const STATUSES = ['PENDING', 'APPROVED', 'REJECTED', 'DISPUTED', 'INVALIDATED', 'FLAGGED'] as const;

export const ClaimsWanted = z.strictObject({
  collection: z.string().min(1).max(100).optional().describe('Only claims of this collection id'),
  status: z.enum(STATUSES).optional().describe('Only claims with this verdict'),
  limit: z.int().min(1).max(50).default(20),
  offset: z.int().min(0).default(0).describe('Where to go on: nextOffset of the answer before'),
  height: z.int().positive().optional().describe('The block to look at; the latest unless given'),
});
export type ClaimsWanted = z.output<typeof ClaimsWanted>;

/** What is read of a claim; the rest of it is left out. */
const Claim = z
  .object({
    claim_id: z.string(),
    collection_id: z.string(),
    agent_did: z.string(),
    submission_date: z.string().nullable(),
    evaluation: z.object({ status: z.string(), evaluation_date: z.string().nullable() }).nullable(),
    amount: z.array(z.object({ denom: z.string(), amount: z.string() })),
  })
  .transform((claim) => ({
    claimId: claim.claim_id,
    collection: claim.collection_id,
    agent: claim.agent_did,
    submitted: claim.submission_date,
    status: claim.evaluation?.status ?? 'PENDING',
    evaluated: claim.evaluation?.evaluation_date ?? null,
    paid: claim.amount.map(({ denom, amount }) => `${amount} ${denom}`),
  }));
type Claim = z.output<typeof Claim>;

const ClaimPage = z.object({ claims: z.array(Claim) });

interface ClaimsFound {
  readonly height: number | undefined;
  readonly claims: readonly Claim[];
  /** Null when there are no more. */
  readonly nextOffset: number | null;
}

/** Looks through the chain's claims, which it lists but does not filter, all at one block. */
export async function listClaims(
  gateway: Gateway,
  wanted: ClaimsWanted,
  signal: AbortSignal,
): Promise<ClaimsFound> {
  const claims: Claim[] = [];
  let { offset, height } = wanted;
  for (let page = 0; page < MAX_PAGES; page++) {
    const query = { 'pagination.offset': String(offset), 'pagination.limit': String(PAGE) };
    const asked = { path: '/ixo/claims/claims', query, height, signal, maxBytes: MAX_PAGE_BYTES };
    const told = await gateway.ask(asked);
    height ??= told.height;
    const listed = ClaimPage.parse(told.answer).claims;
    for (const claim of listed) {
      if (claims.length === wanted.limit) return { height, claims, nextOffset: offset };
      if (fits(claim, wanted)) claims.push(claim);
      offset++;
    }
    if (listed.length < PAGE) return { height, claims, nextOffset: null };
  }
  return { height, claims, nextOffset: offset };
}

function fits(claim: Claim, { collection, status }: ClaimsWanted): boolean {
  if (collection !== undefined && claim.collection !== collection) return false;
  return status === undefined || claim.status === status;
}
