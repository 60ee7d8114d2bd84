import type { ModelTool } from '../model.js';
import type { Intent, OfflineToolCall } from './intent.js';
import { argumentsFrom } from './tool-arguments.js';
import { withoutEnd } from './without-end.js';

const VERBS = new Set(['use', 'call', 'run', 'invoke', 'try', 'execute', 'start']);
const VERB_REACH = 4;
// Begins where a run of spaces does, so that a long one is looked at once.
const NEXT_STEP = /[,;.]?(?<!\s)\s+(?:and )?then\s+/i;

/** Calls the tools the user names ("use a and b"), one step after the other ("…, then use c"). */
export const callNamedTools: Intent = ({ said, step, tools }) => {
  const now = said.split(NEXT_STEP)[step];
  const calls = now ? namedCalls(now, tools) : [];
  return calls.length > 0 ? { calls } : undefined;
};

interface Word {
  readonly text: string;
  readonly start: number;
  readonly end: number;
}

function namedCalls(said: string, tools: ReadonlyMap<string, ModelTool>): OfflineToolCall[] {
  const words = wordsOf(said);
  const named = words.filter((word, i) => tools.has(word.text) && followsVerb(words, i));
  return named.flatMap(({ text, end }, i) => {
    const tool = tools.get(text);
    const rest = said.slice(end, named[i + 1]?.start).trim();
    const wanted = /(^|\s)and$/i.test(rest.slice(-4)) ? rest.slice(0, -3).trim() : rest;
    return tool ? [{ name: text, input: argumentsFrom(tool, wanted) }] : [];
  });
}

function wordsOf(said: string): Word[] {
  return [...said.matchAll(/[\w.-]+/g)].flatMap(({ 0: found, index: start }) => {
    const text = withoutEnd(found, '.-');
    return text ? [{ text, start, end: start + text.length }] : [];
  });
}

function followsVerb(words: readonly Word[], index: number): boolean {
  const before = words.slice(Math.max(0, index - VERB_REACH), index);
  return before.some(({ text }) => VERBS.has(text.toLowerCase()));
}
