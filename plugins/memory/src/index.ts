import { definePlugin, defineRoute, defineTool, OracleError } from '@sibyl/plugin-kit';
import { Fact, FactPage } from '@sibyl/protocol';
import { z } from 'zod';
import { aboutUser, FactSearch, injectFacts } from './fact-search.js';
import { FACT_LENGTH, FactForgotten, FactStore, FactText, ListFacts } from './fact-store.js';
import { FactVectors } from './fact-vectors.js';
import { tables } from './tables.js';

/** Facts about the user that outlive a conversation. */
export const memory = definePlugin({
  name: 'memory',
  version: '0.1.0',
  manifest: {
    title: 'Memory',
    summary: 'Remembers facts about the user across conversations, finds and forgets them.',
    whenToUse: [
      'the user says something about themselves, their work, people, places or plans',
      'an answer depends on what the user may have said before',
      'the user asks what you know about them, or asks you to forget something',
    ],
    whenNotToUse: [
      'the user asks you to behave differently: that is a preference',
      'it matters in this conversation only',
    ],
    examples: ['I work on soil carbon in Kenya.', 'What do you know about my work?'],
    category: 'core',
    visibility: 'always',
  },
  tables,
  setup: ({ database, embeddings, logger }) => {
    const vectors = embeddings && new FactVectors({ database, embeddings, logger });
    return {
      facts: new FactStore(database, vectors),
      search: new FactSearch(database, vectors),
      vectors,
    };
  },
  close: ({ vectors }) => vectors?.close(),
  importedTables: ['memory_facts'],
  importRows: ({ owner, rows }, { facts }) => facts.importAll(owner, rows),
  getTools: ({ services }) => listMemoryTools(services),
  getMiddlewares: ({ services: { search } }) => [injectFacts(search)],
  routes: ({ services: { facts, search } }) => [
    defineRoute({
      method: 'GET',
      path: '/memory',
      summary: 'What the oracle remembers about the caller, newest first, or what matches `q`',
      query: ListFacts,
      reply: FactPage,
      handler: async ({ caller: { did: owner }, query: { q, ...query } }) => {
        if (q !== undefined) return search.page({ owner, query: q, ...query });
        const [page, total] = await Promise.all([
          facts.list({ owner, ...query }),
          facts.count({ owner }),
        ]);
        return { facts: page, total };
      },
    }),
    defineRoute({
      method: 'POST',
      path: '/memory',
      summary: 'Remember a fact; one that is there already stays as it is',
      needsOwnKey: true,
      body: FactText,
      reply: Fact,
      errors: ['bad_request'],
      handler: ({ caller: { did: owner }, body: { text } }) => facts.add({ owner, text }),
    }),
    defineRoute({
      method: 'PATCH',
      path: '/memory/:id',
      summary: 'Change a fact',
      needsOwnKey: true,
      body: FactText,
      reply: Fact,
      errors: ['not_found', 'bad_request'],
      handler: async ({ caller: { did: owner }, params: { id }, body: { text } }) => {
        const changed = await facts.change({ owner, id, text });
        if (!changed) throw new OracleError('not_found', { message: 'No such fact' });
        return changed;
      },
    }),
    defineRoute({
      method: 'DELETE',
      path: '/memory/:id',
      summary: 'Forget a fact',
      needsOwnKey: true,
      reply: FactForgotten,
      errors: ['not_found'],
      handler: async ({ caller: { did: owner }, params: { id } }) => {
        if (!(await facts.remove({ owner, id })))
          throw new OracleError('not_found', { message: 'No such fact' });
        return { message: 'The fact is forgotten' };
      },
    }),
  ],
});

const FOUND = 10;

/** The tools with which the agent manages facts about the user. */
const listMemoryTools = ({ facts, search }: { facts: FactStore; search: FactSearch }) => [
  defineTool({
    name: 'remember',
    description: [
      'Keeps a fact about the user for later conversations: who they are, what they work on, people, places, plans, constraints.',
      'Call it when the user says something about themselves that will still matter in another conversation, also when they do not ask you to.',
      'One fact a call, in the third person, complete without the conversation around it.',
      'Not for how you should behave (tone, language, length, your name): that is a preference. Not for what you made yourself, nor for what matters only now. Never passwords, keys or card numbers.',
    ].join(' '),
    inputSchema: z.strictObject({ fact: z.string().trim().min(3).max(FACT_LENGTH) }),
    reach: 'sub-user',
    run: async ({ fact }, { user, session }) =>
      facts.add({ ...aboutUser(user), text: fact, sessionId: session.id }),
  }),
  defineTool({
    name: 'recall',
    description:
      'Finds what was remembered about the user, by words. Call it before you ask the user for something they may have said already.',
    inputSchema: z.strictObject({ query: z.string().trim().min(1).max(500) }),
    reach: 'sub-user',
    run: async ({ query }, { user }) => ({
      facts: await search.find({ ...aboutUser(user), query, limit: FOUND }),
    }),
  }),
  defineTool({
    name: 'forget',
    description:
      'Removes one remembered fact for good, by its id as recall gave it. Call it when the user asks to forget something, or when a fact has become wrong.',
    inputSchema: z.strictObject({ id: z.string().trim().min(1).max(64) }),
    reach: 'sub-user',
    run: async ({ id }, { user }) => {
      const isForgotten = await facts.remove({ ...aboutUser(user), id });
      if (!isForgotten) throw new Error(`There is no fact with the id ${id}; find it with recall`);
      return { forgotten: id };
    },
  }),
];
