import { definePlugin, defineTool, sharedKey } from '@sibyl/plugin-kit';
import { z } from 'zod';
import { ChainConfig, Gateway, type GatewayRequest } from './gateway.js';

const GATEWAY = sharedKey<string>('gateway');

/** Lets the agent look things up on a chain, through a protocol query gateway. */
export const chain = definePlugin({
  name: 'chain',
  version: '0.1.0',
  manifest: {
    title: 'Chain',
    summary:
      'Looks up entities, claims, tokens, identities and anything else a blockchain can be asked.',
    whenToUse: [
      'the user asks about an entity, a claim, a token, a DID, an account or a block of the chain',
      'an answer depends on what is recorded on the chain now or at an earlier block',
    ],
    whenNotToUse: ['something is to be written, sent or signed: this only reads'],
    examples: [
      'Is the project did:ixo:entity:… verified?',
      'Which claims of collection 2 are still pending?',
      'How many KISUMU credits were retired?',
    ],
    tags: ['blockchain', 'ixo', 'impact'],
    category: 'integration',
  },
  configSchema: ChainConfig,
  autoDetect: (env) => Boolean(env.GATEWAY_URL),
  autoDetectHint: 'set GATEWAY_URL',
  setup: (context) => new Gateway(context),
  // The host reports this address to clients.
  getSharedState: ({ config }) => GATEWAY.share(config.GATEWAY_URL),
  getTools: ({ services: gateway }) => listChainTools(gateway),
});

const Height = z
  .int()
  .positive()
  .optional()
  .describe('The block to look at; the latest by default');

/** The tools with which the agent reads the chain. */
const listChainTools = (gateway: Gateway) => [
  defineTool({
    name: 'get_entity',
    description:
      'Looks up an entity of the chain (project, organization, device, oracle, protocol) by its did:ixo:entity:… id, with its identity document: type, dates, whether it is verified, accounts, linked resources and entities.',
    inputSchema: z.strictObject({
      id: z
        .string()
        .regex(/^did:ixo:\S+$/, { error: 'must be a did:ixo:… id' })
        .max(200),
      height: Height,
    }),
    reach: 'session',
    run: ({ id, height }, { signal }) =>
      gateway.get({ path: `/ixo/entity/${encodeURIComponent(id)}`, height, signal }),
  }),
  defineTool({
    name: 'list_claims',
    description:
      'Lists claims of work done that were submitted to the chain, oldest id first: who claims, in which collection, when, the verdict and what was paid. Can be limited to a collection or a verdict. nextOffset is where to continue.',
    inputSchema: ClaimFilter,
    reach: 'session',
    run: (filter, { signal }) => listClaims(gateway, filter, signal),
  }),
  defineTool({
    name: 'query_chain',
    description: [
      'Reads anything from the chain by the path of a route of its REST interface.',
      'Examples: /ixo/entity (all entities), /ixo/claims/collections, /ixo/claims/claim/{id}, /ixo/did/dids/{did}, /ixo/token/minter/{address}, /ixo/token/params, /cosmos/base/tendermint/v1beta1/blocks/latest, /cosmos/bank/v1beta1/balances/{address}.',
      'Lists take pagination.limit and pagination.key (next_key of the previous answer) in query. Keep limits small: large answers are refused. For a path that does not exist, the error lists similar ones.',
    ].join(' '),
    inputSchema: z.strictObject({
      path: QueryPath,
      query: z
        .record(z.string().max(100), z.string().max(1000))
        .refine((query) => !('watch' in query), { error: 'watch is not available' })
        .optional(),
      height: Height,
    }),
    reach: 'session',
    run: ({ path, query, height }, { signal }) =>
      gateway.get({ path, height, signal, ...(query && { query }) }),
  }),
];

/** A path without query and fragment. */
const PATH = /^\/(?!\/)(?:[\w.~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*$/;
/** A dot segment, also with percent-encoded dots. */
const DOTS = /(?:^|\/)(?:\.|%2e){1,2}(?:\/|$)/i;

/** A path below the gateway's address: no host, no dot segments. */
export const QueryPath = z
  .string()
  .max(1000)
  .regex(PATH, {
    error:
      'must be a path such as /ixo/entity/{id}: no host, no query (that goes into query), anything unusual percent-encoded',
  })
  .refine((path) => !DOTS.test(path), { error: 'must have no . or .. segments' });

/** Claims per page if the gateway allows as many, and pages that are read before the agent has to continue with nextOffset. */
const PAGE = 100;
const MAX_PAGES = 10;
const MAX_PAGE_BYTES = 1024 ** 2;

const STATUSES = ['PENDING', 'APPROVED', 'REJECTED', 'DISPUTED', 'INVALIDATED', 'FLAGGED'] as const;

const ClaimFilter = z.strictObject({
  collection: z.string().min(1).max(100).optional().describe('Only claims of this collection id'),
  status: z.enum(STATUSES).optional().describe('Only claims with this verdict'),
  limit: z.int().min(1).max(50).default(20),
  offset: z
    .int()
    .min(0)
    .default(0)
    .describe('Where to continue: nextOffset of the previous answer'),
  height: z.int().positive().optional().describe('The block to look at; the latest by default'),
});
type ClaimFilter = z.output<typeof ClaimFilter>;

/** The fields of a claim that the agent receives. */
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

const ClaimPage = z.object({
  claims: z.array(Claim),
  pagination: z.object({ next_key: z.string().nullish() }).nullish(),
});

interface FoundClaims {
  readonly height: number | undefined;
  readonly claims: readonly Claim[];
  /** Null at the end. */
  readonly nextOffset: number | null;
}

/** Filters the claims of one block; the chain lists but does not filter them. */
async function listClaims(
  gateway: Gateway,
  filter: ClaimFilter,
  signal: AbortSignal,
): Promise<FoundClaims> {
  const claims: Claim[] = [];
  let { offset, height } = filter;
  let size = PAGE;
  for (let page = 0; page < MAX_PAGES; page++) {
    const query = { 'pagination.offset': String(offset) };
    const request = { path: '/ixo/claims/claims', query, height, signal, maxBytes: MAX_PAGE_BYTES };
    const reply = await getPage(gateway, request, size);
    size = reply.size;
    height ??= reply.height;
    const listed = ClaimPage.parse(reply.answer);
    for (const claim of listed.claims) {
      if (claims.length === filter.limit) return { height, claims, nextOffset: offset };
      if (matches(claim, filter)) claims.push(claim);
      offset++;
    }
    if (!listed.pagination?.next_key) return { height, claims, nextOffset: null };
  }
  return { height, claims, nextOffset: offset };
}

/** Gets a page of the largest size that the gateway allows. */
async function getPage(gateway: Gateway, request: GatewayRequest, size: number) {
  for (let limit = size; ; limit = Math.floor(limit / 2)) {
    const query = { ...request.query, 'pagination.limit': String(limit) };
    try {
      return { ...(await gateway.get({ ...request, query })), size: limit };
    } catch (error) {
      // Errors about the size of a page name what to change.
      const isTooLarge = error instanceof Error && error.message.includes('pagination.limit');
      if (!isTooLarge || limit === 1) throw error;
    }
  }
}

function matches(claim: Claim, { collection, status }: ClaimFilter): boolean {
  if (collection !== undefined && claim.collection !== collection) return false;
  return status === undefined || claim.status === status;
}
