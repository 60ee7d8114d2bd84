import { createHash } from 'node:crypto';
import {
  type Model,
  type ModelCall,
  ModelError,
  type ModelMessage,
  type ModelTool,
  type UserPart,
} from '../models/model.js';
import type { Rejection } from '../models/rejections.js';
import { type AgentLimits, type Meter, SummaryCache, type Warning, warning } from './agent.js';
import {
  estimateCall,
  estimateMessages,
  estimateTokens,
  estimateTools,
  keepStart,
} from './model-call.js';
import { shortenResult } from './run-tools.js';
import { summarize } from './summaries.js';

const CURRENT_SHARE = 0.7;
/** Minimum share for the conversation, regardless of the system prompt and the tools. */
const LEAST_SHARE = 0.2;
/** For the text that asks for an answer without tools. */
const RESERVE = 50;
const TRANSCRIPT_SHARE = 0.7;
/** Below this a summary is not worth a model call. */
const LEAST_SUMMARY_ROOM = 100;
/** How much of a refused call to send again, at most; with a known limit, how much of the limit to fill. */
const SHRINK = { ofCall: 0.7, ofLimit: 0.8 };

export interface CompactorOptions {
  readonly model: Model;
  readonly smallModel: Model;
  readonly limits: Pick<AgentLimits, 'contextTokens'>;
  readonly summaries?: SummaryCache | undefined;
  readonly meter: Meter;
}

/** A model call before it is fitted into the context. */
export interface CallDraft {
  readonly system: string;
  readonly tools: readonly ModelTool[];
  /** The turns before the current one. */
  readonly history: readonly ModelMessage[];
  readonly current: readonly ModelMessage[];
  readonly signal: AbortSignal;
}

interface FittedCall {
  readonly messages: readonly ModelMessage[];
  /** Warnings for the user about what was left out. */
  readonly warnings: readonly Warning[];
}

/** Keeps the calls of one turn within the model's context. Never changes its input. */
export class Compactor {
  private readonly summaries: SummaryCache;
  /** False after the small model failed once in this turn: otherwise every step would wait for it. */
  private canSummarize = true;
  private readonly warned = new Set<string>();
  /** Estimated tokens of a call, after the model refused a longer one. */
  private cap = Number.POSITIVE_INFINITY;

  constructor(private readonly options: CompactorOptions) {
    this.summaries = options.summaries ?? new SummaryCache();
  }

  async fit(draft: CallDraft): Promise<FittedCall> {
    const { system, tools, history, current } = draft;
    const { model } = this.options;
    await model.facts.refresh(draft.signal);
    const budget = Math.min(this.getBudget(model), this.cap);
    const taken = estimateTokens(system) + estimateTools(tools) + RESERVE;
    const room = Math.max(budget - taken, Math.floor(budget * LEAST_SHARE));
    const whole = [...history, ...current];
    if (estimateMessages(whole) <= room) return { messages: whole, warnings: [] };
    const turns = trimOldTurns(splitTurns(history));
    const trimmed = [...turns.flat(), ...current];
    if (estimateMessages(trimmed) <= room) return { messages: trimmed, warnings: [] };
    return this.shorten(draft, turns, room);
  }

  /** Leaves out files, and long texts of files, that do not fit although the conversation does. */
  fitFiles(call: ModelCall): { readonly call: ModelCall; readonly warnings: readonly Warning[] } {
    const fitted = fitFiles(call, Math.min(this.getBudget(this.options.model), this.cap));
    const warnings = fitted === call ? [] : this.warnOnce('files_left_out', FILES_LEFT_OUT);
    return { call: fitted, warnings };
  }

  /** Sends less from now on, because the model refused this call as too long. */
  shrink(call: ModelCall, { limit, requested }: Extract<Rejection, { of: 'context' }>): void {
    const estimate = estimateCall(call);
    const { facts } = this.options.model;
    if (requested !== undefined) facts.learnTokens(estimate, requested);
    const ratio = requested === undefined ? facts.tokenRatio : requested / estimate;
    const allowed = limit === undefined ? estimate : (limit * SHRINK.ofLimit) / ratio;
    this.cap = Math.floor(Math.min(this.cap, estimate * SHRINK.ofCall, allowed));
  }

  private async shorten(
    draft: CallDraft,
    turns: readonly ConversationTurn[],
    room: number,
  ): Promise<FittedCall> {
    const share = turns.length > 0 ? room * CURRENT_SHARE : room;
    const current = squeezeTurn(draft.current, share);
    const left = room - estimateMessages(current);
    if (estimateMessages(turns.flat()) <= left) {
      return { messages: [...turns.flat(), ...current], warnings: [] };
    }
    const shortened = await this.shortenTurns(draft.signal, turns, Math.max(0, left));
    return { ...shortened, messages: [...shortened.messages, ...current] };
  }

  private async shortenTurns(
    signal: AbortSignal,
    turns: readonly ConversationTurn[],
    room: number,
  ): Promise<FittedCall> {
    if (this.canSummarize && room >= LEAST_SUMMARY_ROOM) {
      const { summaries } = this;
      const summarize = this.createSummarizer(signal);
      try {
        const { messages, isNew } = await shortenHistory({ turns, room, summaries, summarize });
        return { messages, warnings: isNew ? this.warnOnce('history_summarized', SUMMARIZED) : [] };
      } catch {
        signal.throwIfAborted();
        this.canSummarize = false;
      }
    }
    const warnings = this.warnOnce('history_shortened', LEFT_OUT);
    return { messages: dropOldest(turns, room), warnings };
  }

  private createSummarizer(signal: AbortSignal) {
    const { smallModel: model, meter } = this.options;
    return async (messages: readonly ModelMessage[], earlier: string | undefined) => {
      await model.facts.refresh(signal);
      const tokens = Math.floor(this.getBudget(model) * TRANSCRIPT_SHARE);
      const ask = (transcriptTokens: number) =>
        summarize({ model, earlier, messages, transcriptTokens, meter, signal });
      try {
        return await ask(tokens);
      } catch (error) {
        if (!(error instanceof ModelError && error.rejection?.of === 'context')) throw error;
        return ask(Math.floor(tokens / 2));
      }
    };
  }

  private warnOnce(code: string, message: string): Warning[] {
    if (this.warned.has(code)) return [];
    this.warned.add(code);
    return [warning(code, message)];
  }

  /** The most tokens of a call to a model, in the unit of our estimates. */
  private getBudget({ facts }: Model): number {
    const { contextTokens } = this.options.limits;
    return Math.floor(Math.min(contextTokens, facts.promptTokens) / facts.tokenRatio);
  }
}

const LEFT_OUT = 'The conversation is too long: its oldest messages were left out of this turn.';
const FILES_LEFT_OUT =
  'Files of this conversation do not fit into the context of the model: the oldest are left out or shortened.';
const SUMMARIZED =
  'The conversation no longer fits into the context of the model, which now sees a summary of its oldest part.';

function trimOldTurns(turns: readonly ConversationTurn[]): ConversationTurn[] {
  return turns.map((turn, i) =>
    i < turns.length - 1 ? trimResults(turn, OLD_RESULT_LENGTH) : turn,
  );
}

/** Share of the room that a new summary and the turns after it may fill, so that the next turns fit as well. */
const FILL = 0.6;
const SUMMARY_TOKENS = 1000;
const SUMMARY_SHARE = 0.3;
/** Tokens of the text around a summary. */
const PREFACE_TOKENS = 40;

interface LongHistory {
  readonly turns: readonly ConversationTurn[];
  /** In tokens. */
  readonly room: number;
  readonly summaries: SummaryCache;
  readonly summarize: (
    messages: readonly ModelMessage[],
    earlier: string | undefined,
  ) => Promise<string>;
}

interface ShortenedHistory {
  readonly messages: ModelMessage[];
  /** Whether more of the conversation is summarized than before. */
  readonly isNew: boolean;
}

/** Replaces the oldest turns by a summary; reuses a cached one if it fits. */
async function shortenHistory(history: LongHistory): Promise<ShortenedHistory> {
  const { turns, room, summaries, summarize } = history;
  const hashes = hashPrefixes(turns);
  const known = hashes.findLastIndex((hash) => summaries.get(hash) !== undefined) + 1;
  const earlier = known > 0 ? summaries.get(hashes[known - 1] as string) : undefined;
  if (earlier !== undefined) {
    const reused = withSummary(earlier, turns.slice(known));
    if (estimateMessages(reused) <= room) return { messages: reused, isNew: false };
  }
  const tokens = Math.min(SUMMARY_TOKENS, room * SUMMARY_SHARE);
  const kept = countNewest(turns, room * FILL - tokens);
  const end = Math.max(known, turns.length - kept);
  if (end === known) {
    const messages = withSummary(keepStart(earlier ?? '', tokens), turns.slice(end));
    return { messages, isNew: true };
  }
  const summary = await summarize(turns.slice(known, end).flat(), earlier);
  const bounded = keepStart(summary, tokens);
  summaries.set(hashes[end - 1] as string, bounded);
  return { messages: withSummary(bounded, turns.slice(end)), isNew: true };
}

/** Drops the oldest turns when they cannot be summarized. */
function dropOldest(turns: readonly ConversationTurn[], room: number): ModelMessage[] {
  const kept = turns.slice(turns.length - countNewest(turns, room - PREFACE_TOKENS)).flat();
  return [...preface('(The earlier part of this conversation is left out.)'), ...kept];
}

function withSummary(summary: string, turns: readonly ConversationTurn[]): ModelMessage[] {
  const text = `(Summary of the conversation until now, not a request: ${summary})`;
  return [...preface(text), ...turns.flat()];
}

/** With an answer, so that user and assistant messages still alternate. */
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

/** Hashes every prefix of the conversation, so that a longer conversation finds the summary of its beginning. */
function hashPrefixes(turns: readonly ConversationTurn[]): string[] {
  let hash = '';
  return turns.map((turn) => {
    const text = JSON.stringify(trimResults(turn, OLD_RESULT_LENGTH), writeForHash);
    hash = createHash('sha256').update(hash).update(text).digest('base64');
    return hash;
  });
}

/** Ignores ids: duplicates are replaced by random ids in each turn. */
function writeForHash(key: string, value: unknown): unknown {
  if (key === 'id') return undefined;
  if (!(value instanceof Uint8Array)) return value;
  return createHash('sha256').update(value).digest('base64');
}

/** A message of the user and everything until the next one. */
type ConversationTurn = readonly ModelMessage[];

/** Splits a conversation before every message of the user. */
function splitTurns(messages: readonly ModelMessage[]): ConversationTurn[] {
  const turns: ModelMessage[][] = [];
  for (const message of messages) {
    const open = turns.at(-1);
    if (message.role === 'user' || open === undefined) turns.push([message]);
    else open.push(message);
  }
  return turns;
}

/** Characters kept of a tool result in an older turn: the answer contains what matters. */
const OLD_RESULT_LENGTH = 500;

/** Lengths to try for tool results, in characters, until they fit. */
const LENGTHS = [20_000, 5000, 1000, 250];

/** Shortens tool results to `limit` characters. */
function trimResults(messages: readonly ModelMessage[], limit: number): ModelMessage[] {
  return messages.map((message) => {
    if (message.role !== 'tool') return message;
    if (message.results.every(({ output }) => output.length <= limit)) return message;
    const results = message.results.map((result) => ({
      ...result,
      output: shortenResult(result.output, limit),
    }));
    return { ...message, results };
  });
}

/** Shortens the tool results of a turn until it fits into `room` tokens; the newest step is shortened last. */
function squeezeTurn(turn: readonly ModelMessage[], room: number): readonly ModelMessage[] {
  const newest = Math.max(
    0,
    turn.findLastIndex(({ role }) => role === 'tool'),
  );
  const older = LENGTHS.map((length) => () => [
    ...trimResults(turn.slice(0, newest), length),
    ...turn.slice(newest),
  ]);
  const all = LENGTHS.map((length) => () => [
    ...trimResults(turn.slice(0, newest), LENGTHS.at(-1) ?? length),
    ...trimResults(turn.slice(newest), length),
  ]);
  let squeezed = turn;
  for (const squeeze of [...older, ...all]) {
    if (estimateMessages(squeezed) <= room) break;
    squeezed = squeeze();
  }
  return squeezed;
}

/** Characters of a text that is worth shortening, and what is kept of it. */
const LONG_TEXT = 4000;
const KEPT_TOKENS = 500;

const FILE_LEFT_OUT = '[A file is left out here: it no longer fits into the conversation]';

/** Changes a message, or returns the same one. */
type Change = (message: ModelMessage) => ModelMessage;

/**
 * Leaves out what middlewares and tools added to a call until it fits: files first, then long texts, those of older
 * messages before those of the newest. Returns the same call if it fits.
 */
export function fitFiles(call: ModelCall, budget: number): ModelCall {
  let excess = estimateCall(call) - budget;
  if (excess <= 0) return call;
  const asked = call.messages.findLastIndex(({ role }) => role === 'user');
  const older = range(0, asked);
  const newest = range(Math.max(0, asked), call.messages.length);
  const plans: readonly [readonly number[], Change][] = [
    [older, dropFiles],
    [older, shortenTexts],
    [newest, shortenTexts],
    [newest, dropFiles],
  ];
  const messages = [...call.messages];
  for (const [positions, change] of plans)
    for (const at of positions) {
      const message = messages[at];
      if (excess <= 0 || !message) break;
      const changed = change(message);
      excess -= estimateMessages([message]) - estimateMessages([changed]);
      messages[at] = changed;
    }
  const isSame = messages.every((message, at) => message === call.messages[at]);
  return isSame ? call : { ...call, messages };
}

function range(start: number, end: number): number[] {
  return Array.from({ length: Math.max(0, end - start) }, (_, i) => start + i);
}

function dropFiles(message: ModelMessage): ModelMessage {
  if (message.role === 'tool') {
    if (!message.results.some(({ media }) => media)) return message;
    return { ...message, results: message.results.map(({ media, ...result }) => result) };
  }
  return changeParts(message, (part) =>
    part.type === 'file' ? { type: 'text', text: FILE_LEFT_OUT } : part,
  );
}

function shortenTexts(message: ModelMessage): ModelMessage {
  return changeParts(message, (part) => {
    if (part.type !== 'text' || part.text.length <= LONG_TEXT) return part;
    const start = keepStart(part.text, KEPT_TOKENS);
    return { type: 'text', text: `${start}\n[The rest is left out: it does not fit]` };
  });
}

/** Changes the parts of a message; what a user wrote is a string, or the first part. */
function changeParts(message: ModelMessage, change: (part: UserPart) => UserPart): ModelMessage {
  if (message.role !== 'user' || typeof message.content === 'string') return message;
  const content = message.content.map((part, i) => (i === 0 ? part : change(part)));
  const isSame = content.every((part, i) => part === message.content[i]);
  return isSame ? message : { ...message, content };
}
