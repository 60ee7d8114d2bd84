import type { AgentRequest } from '../../../src/agent/agent.js';
import type { AgentStep, InterruptAnswer, StepJournal } from '../../../src/agent/steps.js';
import { runToEnd } from './agent-requests.js';

type JournalEvent = 'add' | 'commit' | 'stored';

/** A journal in memory, which keeps steps as a store does: as JSON, and only those that were stored. */
export class MemoryJournal implements StepJournal {
  readonly earlier: readonly AgentStep[];
  readonly answers: Map<string, InterruptAnswer>;
  /** The steps of all attempts that would survive a crash. */
  readonly stored: AgentStep[];
  private readonly added: string[] = [];
  private readonly death = Promise.withResolvers<void>();
  /** Called before each event; may call `crash`. */
  onEvent: (event: JournalEvent) => void | Promise<void> = () => undefined;
  isDead = false;

  constructor(
    earlier: readonly AgentStep[] = [],
    answers: ReadonlyMap<string, InterruptAnswer> = new Map(),
  ) {
    this.earlier = earlier;
    this.answers = new Map(answers);
    this.stored = [...earlier];
  }

  add(step: AgentStep): void {
    void this.onEvent('add');
    this.added.push(JSON.stringify(step));
  }

  async commit(): Promise<void> {
    await this.onEvent('commit');
    await this.freezeIfDead();
    this.flush();
    await this.onEvent('stored');
    await this.freezeIfDead();
  }

  /** Stores what was added, as the host does every now and then. */
  flush(): void {
    if (!this.isDead) this.stored.push(...this.added.splice(0).map((step) => JSON.parse(step)));
  }

  /** The host stops: nothing is stored any more, and nothing that waits for the store continues. */
  crash(): void {
    this.isDead = true;
    this.death.resolve();
  }

  get crashed(): Promise<void> {
    return this.death.promise;
  }

  /** The journal of the next attempt, with more answers. */
  next(answers: Readonly<Record<string, InterruptAnswer>> = {}): MemoryJournal {
    return new MemoryJournal(this.stored, new Map([...this.answers, ...Object.entries(answers)]));
  }

  private async freezeIfDead(): Promise<void> {
    if (this.isDead) await new Promise<never>(() => undefined);
  }
}

/** Runs an attempt until it ends or its host crashes; returns undefined for a crash. */
export async function runUntilCrash(request: AgentRequest, journal: MemoryJournal) {
  const host = new AbortController();
  const signal = AbortSignal.any([request.signal, host.signal]);
  const ended = runToEnd({ ...request, journal, signal });
  const crashed = journal.crashed.then(() => {
    // Nothing of a process that ended continues.
    host.abort();
    return undefined;
  });
  return Promise.race([ended, crashed]);
}

export const answered = (value: unknown): InterruptAnswer => ({ status: 'answered', value });
