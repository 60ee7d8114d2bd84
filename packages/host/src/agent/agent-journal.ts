import type { ToolCall } from '@sibyl/protocol';
import { abortable } from '@sibyl/server-kit';
import type { AgentRequest } from './agent.js';
import { CallInterrupts } from './call-interrupts.js';
import { loseCall, type ParsedCall, readCall } from './run-tools.js';
import {
  type AgentStep,
  type AssistantMessage,
  buildCallPath,
  buildInterruptKey,
  type InterruptRequest,
  type PendingInterrupt,
  type StepJournal,
} from './steps.js';

/** A model step of an earlier attempt. */
export interface EarlierStep {
  readonly message: AssistantMessage;
  readonly calls: readonly EarlierCall[];
}

/** A call of an earlier attempt, and how far it got. */
export interface EarlierCall {
  readonly call: ParsedCall;
  readonly result: ToolCall | undefined;
  /** Its questions, in order. */
  readonly asked: readonly InterruptRequest[];
  /** Whether it stopped at its last question and has not run again since. */
  readonly isWaiting: boolean;
}

interface SortedCalls {
  /** The results that are known, `lost` included. */
  readonly ended: Map<string, ToolCall>;
  /** Those that never run again and whose outcome is unknown, as results. */
  readonly lost: ToolCall[];
  /** Those that run again because there is an answer. */
  readonly answered: ParsedCall[];
  /** Those that run an agent, which continues by itself. */
  readonly agents: ParsedCall[];
  readonly waiting: PendingInterrupt[];
}

interface ModelStep {
  readonly message: AssistantMessage;
  readonly calls: readonly ParsedCall[];
  readonly refused: ReadonlyMap<string, ToolCall>;
}

/** The steps of one agent in the journal of its turn. Without a journal, nothing is stored and nothing is earlier. */
export class AgentJournal {
  /** Oldest first; only calls of the last one may have no result. */
  readonly earlier: readonly EarlierStep[];
  private readonly journal: StepJournal | undefined;
  private readonly path: string;

  constructor({ journal, path = '' }: Pick<AgentRequest, 'journal' | 'path'>) {
    this.journal = journal;
    this.path = path;
    this.earlier = readEarlierSteps(journal?.earlier ?? [], path);
  }

  /** Counts the model calls of earlier attempts, if this is the main agent: it does so for all agents. */
  countEarlierCalls(): number {
    if (this.path !== '') return 0;
    const steps = this.journal?.earlier ?? [];
    const agents = steps.flatMap(({ type, path }) => (type === 'model' ? [path] : []));
    const known = new Set(agents);
    // The last call of a sub-agent that has ended was its answer, which is not a step.
    const answers = steps.filter(
      (step) => step.type === 'result' && known.has(buildCallPath(step.path, step.call.id)),
    );
    return agents.length + answers.length;
  }

  /** Stores what the model wants, and what of it is refused, before any of its tools run. */
  async begin({ message, calls, refused }: ModelStep, signal: AbortSignal): Promise<void> {
    if (!this.journal) return;
    const invalid = calls.flatMap(({ id, error }) => (error ? [{ callId: id, error }] : []));
    this.journal.add({
      type: 'model',
      path: this.path,
      message,
      ...(invalid.length > 0 && { invalid }),
    });
    for (const call of refused.values()) this.end(call);
    await this.commit(signal);
  }

  end(call: ToolCall): void {
    this.journal?.add({ type: 'result', path: this.path, call });
  }

  /** Stores that answered calls run again, before they do. */
  async retry(calls: readonly ParsedCall[], signal: AbortSignal): Promise<void> {
    for (const { id: callId } of calls)
      this.journal?.add({ type: 'retry', path: this.path, callId });
    if (calls.length > 0) await this.commit(signal);
  }

  get isResumable(): boolean {
    return this.journal?.isResumable ?? false;
  }

  async commit(signal: AbortSignal): Promise<void> {
    const { journal } = this;
    if (journal) await abortable(() => journal.commit(), signal);
  }

  /** Opens a call that is about to run, for the first time or again. */
  openCall({ id: callId }: ParsedCall): CallInterrupts {
    const { journal, path } = this;
    const earlier = this.earlier.at(-1)?.calls.find(({ call }) => call.id === callId);
    return new CallInterrupts({ journal, path, callId, asked: earlier?.asked ?? [] });
  }

  /** Sorts the calls of an earlier step by what has to happen to them. */
  sortCalls(calls: readonly EarlierCall[], isAgent: (call: ParsedCall) => boolean): SortedCalls {
    const sorted: SortedCalls = {
      ended: new Map(),
      lost: [],
      answered: [],
      agents: [],
      waiting: [],
    };
    for (const { call, result, asked, isWaiting } of calls) {
      const unanswered = isWaiting && this.findUnanswered(call.id, asked);
      if (result) sorted.ended.set(call.id, result);
      else if (unanswered) sorted.waiting.push(unanswered);
      else if (isWaiting) sorted.answered.push(call);
      else if (isAgent(call)) sorted.agents.push(call);
      else sorted.lost.push(loseCall(call));
    }
    for (const call of sorted.lost) sorted.ended.set(call.id, call);
    return sorted;
  }

  private findUnanswered(
    callId: string,
    asked: readonly InterruptRequest[],
  ): PendingInterrupt | undefined {
    const { path } = this;
    const request = asked.at(-1);
    const key = buildInterruptKey(path, callId, asked.length - 1);
    return request && !this.journal?.answers.has(key)
      ? { ...request, callId, path, key }
      : undefined;
  }
}

type Mutable<T> = { -readonly [Key in keyof T]: T[Key] };
type OpenCall = Mutable<EarlierCall> & { readonly asked: InterruptRequest[] };

function readEarlierSteps(steps: readonly AgentStep[], path: string): EarlierStep[] {
  const read: EarlierStep[] = [];
  let open = new Map<string, OpenCall>();
  for (const step of steps) {
    if (step.path !== path) continue;
    if (step.type === 'model') {
      open = new Map(readCalls(step).map((call) => [call.id, createOpenCall(call)]));
      read.push({ message: step.message, calls: [...open.values()] });
    } else applyStep(step, open);
  }
  return read;
}

function createOpenCall(call: ParsedCall): OpenCall {
  return { call, result: undefined, asked: [], isWaiting: false };
}

type CallStep = Exclude<AgentStep, { type: 'model' }>;

function applyStep(step: CallStep, open: ReadonlyMap<string, OpenCall>): void {
  const call = open.get(step.type === 'result' ? step.call.id : step.callId);
  if (!call) return;
  switch (step.type) {
    case 'result':
      call.result = step.call;
      break;
    case 'interrupt':
      call.asked.push(step.request);
      call.isWaiting = true;
      break;
    case 'retry':
      call.isWaiting = false;
      break;
    default:
      step satisfies never;
  }
}

function readCalls({ message, invalid = [] }: Extract<AgentStep, { type: 'model' }>): ParsedCall[] {
  const errors = new Map(invalid.map(({ callId, error }) => [callId, error]));
  return (message.toolCalls ?? []).map((call) => {
    const error = errors.get(call.id);
    return error === undefined ? readCall(call) : { ...readCall(call), error };
  });
}
