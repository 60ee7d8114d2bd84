import type { Middleware, ModelMessage } from '@sibyl/plugin-kit';
import type { FactStore } from './fact-store.js';

const SHOWN = 8;

/** Puts what fits the message into the prompt, so that the agent need not ask first. */
export const knownFacts = (facts: FactStore): Middleware => ({
  name: 'known-facts',
  // The agent can still look facts up with its tools.
  onFailure: 'skip',
  async beforeModel({ agent, system, messages }, { user }) {
    const last = messages.at(-1);
    // Later calls of the turn end with tool results: what was found is among them.
    if (agent !== 'main' || last?.role !== 'user') return undefined;
    const query = textOf(last);
    const found = await facts.find({ owner: user.did, query, limit: SHOWN });
    if (found.length === 0) return undefined;
    const lines = found.map(({ text }) => `- ${JSON.stringify(text)}`);
    const heading = '## What you remember of the user, and may fit this message';
    return { system: [system, '', heading, ...lines].join('\n') };
  },
});

function textOf({ content }: Extract<ModelMessage, { role: 'user' }>): string {
  if (typeof content === 'string') return content;
  return content.flatMap((part) => (part.type === 'text' ? part.text : [])).join('\n');
}
