import type { AgentLimits } from '../agent.js';
import type { Meter } from '../meter.js';
import type { Model, ModelMessage, ModelTool } from '../model/model.js';
import { type Warning, warning } from '../warning.js';
import { estimateMessages, estimateTokens, estimateTools } from './estimate-tokens.js';
import { dropOldest, shortenHistory } from './shorten-history.js';
import { type ConversationTurn, splitTurns } from './split-turns.js';
import { summarise } from './summarise.js';
import { SummaryCache } from './summary-cache.js';
import { OLD_RESULT_LENGTH, squeezeTurn, trimResults } from './trim-results.js';

const CURRENT_SHARE = 0.7;
/** What a conversation gets at least, however long system prompt and tools are. */
const LEAST_SHARE = 0.2;
/** For the words that ask for an answer without tools. */
const RESERVE = 50;
const TRANSCRIPT_SHARE = 0.7;
/** Tokens below which no summary is worth its call. */
const LEAST_SUMMARY_ROOM = 100;

export interface CompactorOptions {
  readonly smallModel: Model;
  readonly limits: Pick<AgentLimits, 'contextTokens'>;
  readonly summaries?: SummaryCache | undefined;
  readonly meter: Meter;
}

/** All a model call would send. */
export interface CallDraft {
  readonly system: string;
  readonly tools: readonly ModelTool[];
  /** The turns before the current one. */
  readonly history: readonly ModelMessage[];
  readonly current: readonly ModelMessage[];
  readonly signal: AbortSignal;
}

export interface FittedCall {
  readonly messages: readonly ModelMessage[];
  /** What the user is told of it: what was left out. */
  readonly warnings: readonly Warning[];
}

/** Keeps the calls of one turn within the model's context. */
export interface Compactor {
  fit(draft: CallDraft): Promise<FittedCall>;
}

/** Makes the compactor of one turn; what it is given stays as it is. */
export function createCompactor(options: CompactorOptions): Compactor {
  return new SummarisingCompactor(options);
}

class SummarisingCompactor implements Compactor {
  private readonly summaries: SummaryCache;
  /** A small model that failed once in a turn is not asked again: every step would wait for it. */
  private canSumUp = true;
  private hasWarned = false;

  constructor(private readonly options: CompactorOptions) {
    this.summaries = options.summaries ?? new SummaryCache();
  }

  async fit(draft: CallDraft): Promise<FittedCall> {
    const { history, current } = draft;
    const room = this.roomFor(draft);
    const whole = [...history, ...current];
    if (estimateMessages(whole) <= room) return { messages: whole, warnings: [] };
    const turns = trimOldTurns(splitTurns(history));
    const trimmed = [...turns.flat(), ...current];
    if (estimateMessages(trimmed) <= room) return { messages: trimmed, warnings: [] };
    return this.shorten(draft, turns, room);
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
    if (this.canSumUp && room >= LEAST_SUMMARY_ROOM) {
      const { summaries } = this;
      const sumUp = this.summariser(signal);
      try {
        return { messages: await shortenHistory({ turns, room, summaries, sumUp }), warnings: [] };
      } catch {
        signal.throwIfAborted();
        this.canSumUp = false;
      }
    }
    const warnings = this.hasWarned ? [] : [warning('history_shortened', LEFT_OUT)];
    this.hasWarned = true;
    return { messages: dropOldest(turns, room), warnings };
  }

  private summariser(signal: AbortSignal) {
    const { smallModel: model, limits, meter } = this.options;
    const transcriptTokens = Math.floor(limits.contextTokens * TRANSCRIPT_SHARE);
    return (messages: readonly ModelMessage[], earlier: string | undefined) =>
      summarise({ model, earlier, messages, transcriptTokens, meter, signal });
  }

  private roomFor({ system, tools }: CallDraft): number {
    const { contextTokens } = this.options.limits;
    const taken = estimateTokens(system) + estimateTools(tools) + RESERVE;
    return Math.max(contextTokens - taken, Math.floor(contextTokens * LEAST_SHARE));
  }
}

const LEFT_OUT = 'The conversation is too long: its oldest messages were left out of this turn.';

function trimOldTurns(turns: readonly ConversationTurn[]): ConversationTurn[] {
  return turns.map((turn, i) =>
    i < turns.length - 1 ? trimResults(turn, OLD_RESULT_LENGTH) : turn,
  );
}
