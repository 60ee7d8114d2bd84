import { definePlugin, defineRoute, OracleError } from '@sibyl/plugin-kit';
import { Fact, FactPage } from '@sibyl/protocol';
import { FactForgotten, FactStore, FactText, ListFacts } from './fact-store.js';
import { FactVectors } from './fact-vectors.js';
import { injectFacts, listMemoryTools } from './memory-tools.js';
import { migrations } from './tables.js';

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
  migrations,
  setup: ({ database, embeddings, logger }) =>
    new FactStore(database, embeddings && new FactVectors({ database, embeddings, logger })),
  close: (facts) => facts.close(),
  importedTables: ['memory_facts'],
  importRows: ({ owner, rows }, facts) => facts.importAll(owner, rows),
  getTools: ({ services: facts }) => listMemoryTools(facts),
  getMiddlewares: ({ services: facts }) => [injectFacts(facts)],
  routes: ({ services: facts }) => [
    defineRoute({
      method: 'GET',
      path: '/memory',
      summary: 'What the oracle remembers about the caller, newest first, or what matches `q`',
      query: ListFacts,
      reply: FactPage,
      handler: async ({ caller: { did: owner }, query: { q, ...query } }) => {
        if (q !== undefined) return facts.search({ owner, query: q, ...query });
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
      body: FactText,
      reply: Fact,
      errors: ['bad_request'],
      handler: ({ caller: { did: owner }, body: { text } }) => facts.add({ owner, text }),
    }),
    defineRoute({
      method: 'PATCH',
      path: '/memory/:id',
      summary: 'Change a fact',
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
