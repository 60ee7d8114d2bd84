import type { Intent, OfflineRequest } from './intent.js';

const TITLE_WORDS = 6;
const SUMMARY_LENGTH = 600;
const SPEAKER = /^(user|human|assistant|ai|oracle)\s*:\s*/i;

/** Names the conversation by its first words, when the system prompt asks for a title. */
export const makeTitle: Intent = (request) => {
  if (!asksFor(request, 'title')) return undefined;
  const words = linesOf(request.texts[0] ?? '')[0]?.split(/\s+/) ?? [];
  const title = words
    .slice(0, TITLE_WORDS)
    .join(' ')
    .replace(/[\s.,;:!?]+$/, '');
  return { text: title || 'Untitled' };
};

/** Takes the first sentence of every message, when the system prompt asks for a summary. */
export const makeSummary: Intent = (request) => {
  if (!asksFor(request, 'summary') && !asksFor(request, 'summarise', 'summarize')) return undefined;
  const sentences = request.texts.flatMap(linesOf).map((line) => line.split(/(?<=[.!?])\s/)[0]);
  return { text: sentences.join(' ').slice(0, SUMMARY_LENGTH).trim() || 'Nothing was said.' };
};

// A turn of a conversation may mention titles too, but it comes with tools or a longer prompt.
const UTILITY_PROMPT_LENGTH = 1500;

function asksFor({ system, tools, results }: OfflineRequest, ...words: string[]): boolean {
  if (tools.size > 0 || results.length > 0 || system.length > UTILITY_PROMPT_LENGTH) return false;
  const said = system.toLowerCase();
  return words.some((word) => said.includes(word));
}

function linesOf(text: string): string[] {
  const lines = text.split('\n').map((line) => line.trim().replace(SPEAKER, ''));
  return lines.filter(Boolean);
}
