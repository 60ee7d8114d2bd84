import { createHash } from 'node:crypto';
import type { ModelMessage } from '../model/model.js';
import { keepStart } from './cut-text.js';
import { estimateMessages } from './estimate-tokens.js';
import type { ConversationTurn } from './split-turns.js';
import type { SummaryCache } from './summary-cache.js';
import { OLD_RESULT_LENGTH, trimResults } from './trim-results.js';

/** Part of the room that a fresh cut fills, so that the next turns fit without another one. */
const FILL = 0.6;
const SUMMARY_TOKENS = 1000;
const SUMMARY_SHARE = 0.3;
/** What the words around a summary take. */
const PREFACE_TOKENS = 40;

export interface LongHistory {
  readonly turns: readonly ConversationTurn[];
  /** Tokens it may take. */
  readonly room: number;
  readonly summaries: SummaryCache;
  readonly sumUp: (
    messages: readonly ModelMessage[],
    earlier: string | undefined,
  ) => Promise<string>;
}

/** Replaces the oldest turns by a summary, one made before if it still does. */
export async function shortenHistory(history: LongHistory): Promise<ModelMessage[]> {
  const { turns, room, summaries, sumUp } = history;
  const hashes = hashPrefixes(turns);
  const known = hashes.findLastIndex((hash) => summaries.get(hash) !== undefined) + 1;
  const earlier = known > 0 ? summaries.get(hashes[known - 1] as string) : undefined;
  if (earlier !== undefined) {
    const reused = withSummary(earlier, turns.slice(known));
    if (estimateMessages(reused) <= room) return reused;
  }
  const tokens = Math.min(SUMMARY_TOKENS, room * SUMMARY_SHARE);
  const kept = countNewest(turns, room * FILL - tokens);
  const cut = Math.max(known, turns.length - kept);
  if (cut === known) return withSummary(keepStart(earlier ?? '', tokens), turns.slice(cut));
  const summary = await sumUp(turns.slice(known, cut).flat(), earlier);
  const bounded = keepStart(summary, tokens);
  summaries.set(hashes[cut - 1] as string, bounded);
  return withSummary(bounded, turns.slice(cut));
}

/** Leaves out the oldest turns: what is left to do when nothing can sum them up. */
export function dropOldest(turns: readonly ConversationTurn[], room: number): ModelMessage[] {
  const kept = turns.slice(turns.length - countNewest(turns, room - PREFACE_TOKENS)).flat();
  return [...preface('(The earlier part of this conversation is left out.)'), ...kept];
}

function withSummary(summary: string, turns: readonly ConversationTurn[]): ModelMessage[] {
  const told = `(Summary of the conversation so far, not a request: ${summary})`;
  return [...preface(told), ...turns.flat()];
}

/** With an answer of its own, so that user and assistant still take turns. */
function preface(content: string): ModelMessage[] {
  return [
    { role: 'user', content },
    { role: 'assistant', text: 'Noted.' },
  ];
}

function countNewest(turns: readonly ConversationTurn[], room: number): number {
  let left = room;
  const firstTooMany = turns.findLastIndex((turn) => {
    left -= estimateMessages(turn);
    return left < 0;
  });
  return turns.length - firstTooMany - 1;
}

/** For every turn the hash of all up to it, so that a longer conversation finds its shorter self. */
function hashPrefixes(turns: readonly ConversationTurn[]): string[] {
  let hash = '';
  return turns.map((turn) => {
    const text = JSON.stringify(trimResults(turn, OLD_RESULT_LENGTH), writeForHash);
    hash = createHash('sha256').update(hash).update(text).digest('base64');
    return hash;
  });
}

/** Ids are left out: where a model repeated one, each turn gives it another. */
function writeForHash(key: string, value: unknown): unknown {
  if (key === 'id') return undefined;
  if (!(value instanceof Uint8Array)) return value;
  return createHash('sha256').update(value).digest('base64');
}
