import { defineTool, type Tool } from '@sibyl/plugin-kit';
import { z } from 'zod';
import type { Gateway } from './gateway.js';
import { ClaimsWanted, listClaims } from './list-claims.js';
import { QueryPath } from './query-path.js';

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
