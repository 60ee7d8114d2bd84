import { definePlugin, defineRoute, OracleError } from '@sibyl/plugin-kit';
import { FactForgotten, FactPage, FactStore, ListFacts, migrations } from './fact-store.js';
import { injectFacts, listMemoryTools } from './memory-tools.js';

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
    examples: ['I work on soil carbon in Kenya.', 'What do you know about my project?'],
    category: 'core',
    visibility: 'always',
  },
  migrations,
  setup: ({ database }) => new FactStore(database),
  getTools: ({ services: facts }) => listMemoryTools(facts),
  getMiddlewares: ({ services: facts }) => [injectFacts(facts)],
  routes: ({ services: facts }) => [
    defineRoute({
      method: 'GET',
      path: '/memory',
      summary: 'What the oracle remembers about the caller, newest first',
      query: ListFacts,
      reply: FactPage,
      handler: async ({ caller: { did: owner }, query }) => {
        const [page, total] = await Promise.all([
          facts.list({ owner, ...query }),
          facts.count({ owner }),
        ]);
        return { facts: page, total };
      },
    }),
    defineRoute({
      method: 'DELETE',
      path: '/memory/:id',
      summary: 'Forget a fact',
      reply: FactForgotten,
      errors: ['not_found'],
      handler: async ({ caller: { did: owner }, params: { id } }) => {
        if (!(await facts.remove({ owner, id }))) throw new OracleError('not_found');
        return { message: 'The fact is forgotten' };
      },
    }),
  ],
});
