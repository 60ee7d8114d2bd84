import { defineTool, type Tool } from '@sibyl/plugin-kit';
import { z } from 'zod';
import type { Gateway } from './gateway.js';

const Height = z
  .int()
  .positive()
  .optional()
  .describe('The block to look at; the latest unless given');

/** What the agent can ask the chain. */
export const chainTools = (gateway: Gateway): Tool[] => [
  defineTool({
    name: 'get_entity',
    description:
      'Looks up an entity of the chain (project, organisation, device, oracle, protocol) by its did:ixo:entity:… id, with its identity document: type, dates, whether it is verified, accounts, linked resources and entities.',
    inputSchema: z.strictObject({
      id: z
        .string()
        .regex(/^did:ixo:\S+$/, { error: 'must be a did:ixo:… id' })
        .max(200),
      height: Height,
    }),
    run: ({ id, height }, { signal }) =>
      gateway.ask({ path: `/ixo/entity/${encodeURIComponent(id)}`, height, signal }),
  }),
  defineTool({
    name: 'list_claims',
    description:
      'Lists claims of work done that were submitted to the chain, oldest id first: who claims, in which collection, when, the verdict and what was paid. Can be narrowed to a collection or a verdict. nextOffset says where to go on.',
    inputSchema: ClaimsWanted,
    run: (wanted, { signal }) => listClaims(gateway, wanted, signal),
  }),
  defineTool({
    name: 'query_chain',
    description: [
      'Asks the chain anything it can be asked, read-only, by the path of a route of its REST interface.',
      'Examples: /ixo/entity (all entities), /ixo/claims/collections, /ixo/claims/claim/{id}, /ixo/did/dids/{did}, /ixo/token/minter/{address}, /ixo/token/params, /cosmos/base/tendermint/v1beta1/blocks/latest, /cosmos/bank/v1beta1/balances/{address}.',
      'Lists take pagination.limit and pagination.key (next_key of the answer before) in query. Keep limits small: large answers are refused. A path that does not exist is answered with those nearest to it.',
    ].join(' '),
    inputSchema: z.strictObject({
      path: QueryPath,
      query: z
        .record(z.string().max(100), z.string().max(1000))
        .refine((query) => !('watch' in query), { error: 'cannot watch, only ask' })
        .optional(),
      height: Height,
    }),
    run: ({ path, query, height }, { signal }) =>
      gateway.ask({ path, height, signal, ...(query && { query }) }),
  }),
];

/** The characters of a path, apart from those that begin a query or a fragment. */
const PATH = /^\/(?!\/)(?:[\w.~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*$/;
/** A segment that leads elsewhere, also when its dots are written as escapes. */
const DOTS = /(?:^|\/)(?:\.|%2e){1,2}(?:\/|$)/i;

/** A path below the gateway: never an address of its own, never one that climbs out. */
export const QueryPath = z
  .string()
  .max(1000)
  .regex(PATH, {
    error:
      'must be a path such as /ixo/entity/{id}: no host, no query (that goes into query), anything unusual percent-encoded',
  })
  .refine((path) => !DOTS.test(path), { error: 'must have no . or .. segments' });

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
