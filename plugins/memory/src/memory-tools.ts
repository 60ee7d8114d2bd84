import { defineTool, type Middleware, type ModelMessage } from '@sibyl/plugin-kit';
import { z } from 'zod';
import type { FactStore } from './fact-store.js';
import { FACT_LENGTH } from './fact-store.js';

const FOUND = 10;

/** The tools with which the agent manages facts about the user. */
export const listMemoryTools = (facts: FactStore) => [
  defineTool({
    name: 'remember',
    description: [
      'Keeps a fact about the user for later conversations: who they are, what they work on, people, places, plans, constraints.',
      'Call it when the user says something about themselves that will still matter in another conversation, also when they do not ask you to.',
      'One fact a call, in the third person, complete without the conversation around it.',
      'Not for how you should behave (tone, language, length, your name): that is a preference. Not for what you made yourself, nor for what matters only now. Never passwords, keys or card numbers.',
    ].join(' '),
    inputSchema: z.strictObject({ fact: z.string().trim().min(3).max(FACT_LENGTH) }),
    run: async ({ fact }, { user, session }) =>
      facts.add({ owner: user.did, text: fact, sessionId: session.id }),
  }),
  defineTool({
    name: 'recall',
    description:
      'Finds what was remembered about the user, by words. Call it before you ask the user for something they may have said already.',
    inputSchema: z.strictObject({ query: z.string().trim().min(1).max(500) }),
    run: async ({ query }, { user }) => ({
      facts: await facts.find({ owner: user.did, query, limit: FOUND }),
    }),
  }),
  defineTool({
    name: 'forget',
    description:
      'Removes one remembered fact for good, by its id as recall gave it. Call it when the user asks to forget something, or when a fact has become wrong.',
    inputSchema: z.strictObject({ id: z.string().trim().min(1).max(64) }),
    run: async ({ id }, { user }) => {
      const isForgotten = await facts.remove({ owner: user.did, id });
      if (!isForgotten) throw new Error(`There is no fact with the id ${id}; find it with recall`);
      return { forgotten: id };
    },
  }),
];

const SHOWN = 8;

/** Adds facts that match the message to the prompt, so that the agent need not search first. */
export const injectFacts = (facts: FactStore): Middleware => ({
  name: 'known-facts',
  // The agent can still look facts up with its tools.
  onFailure: 'skip',
  wrapModel: async (request, next, { user }) => {
    const { messages } = request;
    const at = messages.findLastIndex(({ role }) => role === 'user');
    const asked = messages[at];
    if (request.agent !== 'main' || asked?.role !== 'user') return next(request);
    const query = readText(asked);
    const found = await facts.find({ owner: user.did, query, limit: SHOWN });
    if (found.length === 0) return next(request);
    const lines = found.map(({ text }) => `- ${JSON.stringify(text)}`);
    const heading = '[What you remember about the user that may matter for this message:';
    // Not in the system prompt: a change there would make providers read the whole conversation again.
    const note = [asked.note, heading, ...lines].filter(Boolean).join('\n');
    return next({ ...request, messages: messages.with(at, { ...asked, note: `${note}]` }) });
  },
});

function readText({ content }: Extract<ModelMessage, { role: 'user' }>): string {
  if (typeof content === 'string') return content;
  return content.flatMap((part) => (part.type === 'text' ? part.text : [])).join('\n');
}
