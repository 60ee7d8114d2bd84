import { setTimeout as sleep } from 'node:timers/promises';
import type { GateRequest, MessageGate, ModelUse, TurnHold } from '@sibyl/plugin-kit';
import type { LoadedPlugin } from '@sibyl/plugin-kit/rules';
import { OracleError } from '@sibyl/protocol';
import type { Logger } from 'pino';
import type { Meter } from '../agent/agent.js';
import type { TokenUsage } from '../store/runs/run.js';
import { type Hooks, settlesWithin } from './hooks.js';

/** Waits between attempts to settle: doubling up to the last. */
const FIRST_RETRY_MS = 200;
const LAST_RETRY_MS = 10_000;
const ATTEMPTS = 12;

/** Turns that may wait to be settled while a gate does not take it; beyond it no message is let in. */
const MAX_OPEN = 10_000;

interface GatesParts {
  readonly plugins: readonly LoadedPlugin[];
  readonly hooks: Hooks;
  /** What all turns together may spend. */
  readonly budget: Meter;
  readonly logger: Logger;
}

interface PluginHold {
  readonly plugin: string;
  readonly hold: TurnHold;
}

interface PluginGate {
  readonly plugin: string;
  readonly gate: MessageGate;
}

/** Asks the plugins whether a message may become a turn, and tells each what the turn has used. */
export class Gates {
  private readonly parts: GatesParts;
  private readonly gates: readonly PluginGate[];
  private readonly open = new Set<Promise<void>>();
  private readonly giveUp = new AbortController();
  /** Of calls that belong to no turn. */
  private readonly always = new AbortController().signal;

  constructor(parts: GatesParts) {
    this.parts = parts;
    this.gates = parts.plugins.flatMap(({ name: plugin, gate }) =>
      gate ? [{ plugin, gate }] : [],
    );
  }

  /** Throws a gate's refusal, which a gate that fails gives too; what is let in must be settled, whatever becomes of it. */
  async admit(request: GateRequest): Promise<TurnAccount> {
    if (this.open.size >= MAX_OPEN)
      throw new OracleError('gate_unavailable', { retryAfterSeconds: 5 });
    const holds: PluginHold[] = [];
    const account = this.openAccount(holds);
    try {
      await this.parts.budget.check();
      for (const gate of this.gates) holds.push(...(await this.ask(gate, request)));
      return account;
    } catch (refusal) {
      void account.settle();
      throw refusal;
    }
  }

  /** Waits until every account is settled, for at most `limitMs`, repeating what fails for `patienceMs`. */
  async close(patienceMs: number, limitMs: number): Promise<void> {
    const impatience = setTimeout(() => this.giveUp.abort(), patienceMs);
    const isClosed = await settlesWithin(limitMs, this.untilClosed());
    clearTimeout(impatience);
    if (!isClosed) this.parts.logger.error({ turns: this.open.size }, 'turns were not settled');
  }

  private async untilClosed(): Promise<void> {
    while (this.open.size > 0) await Promise.all(this.open);
  }

  private openAccount(holds: readonly PluginHold[]): TurnAccount {
    const closed = Promise.withResolvers<void>();
    this.open.add(closed.promise);
    const { budget } = this.parts;
    return new TurnAccount({
      check: async (used) => {
        await budget.check();
        await this.check(holds, used);
      },
      add: (use) => budget.add(use),
      settle: async (used) => {
        await Promise.all(holds.map((held) => this.settle(held, used)));
        this.open.delete(closed.promise);
        closed.resolve();
      },
    });
  }

  private async ask({ plugin, gate }: PluginGate, request: GateRequest): Promise<PluginHold[]> {
    const call = { plugin, hook: 'getMessageGate', signal: this.always };
    let admission: Promise<TurnHold | undefined> | undefined;
    const asked = this.parts.hooks.insist(call, () => {
      admission = gate.admit(request);
      return admission;
    });
    const hold = await asked.catch((refusal) => {
      // What it holds after all, it holds of no turn.
      void admission?.then((late) => late?.settle([])).catch(() => undefined);
      throw refusal;
    });
    if (hold === undefined) return [];
    if (typeof hold?.settle === 'function') return [{ plugin, hold }];
    throw this.parts.hooks.refuse(call, new Error('admit gave no hold'));
  }

  private async check(holds: readonly PluginHold[], used: readonly ModelUse[]): Promise<void> {
    for (const { plugin, hold } of holds) {
      if (!hold.check) continue;
      const call = { plugin, hook: 'TurnHold.check', signal: this.always };
      await this.parts.hooks.insist(call, () => hold.check?.(used));
    }
  }

  private async settle({ plugin, hold }: PluginHold, used: readonly ModelUse[]): Promise<void> {
    const call = { plugin, hook: 'TurnHold.settle', signal: this.always };
    let wait = FIRST_RETRY_MS;
    for (let attempt = 1; attempt <= ATTEMPTS; attempt++) {
      const answer = await this.parts.hooks.ask(call, () => hold.settle(used));
      if ('ok' in answer) return;
      if (this.giveUp.signal.aborted) break;
      await sleep(wait, undefined, { signal: this.giveUp.signal }).catch(() => undefined);
      wait = Math.min(2 * wait, LAST_RETRY_MS);
    }
    this.parts.logger.error({ plugin, used }, 'a turn was not settled');
  }
}

interface TurnAccountParts {
  readonly check: (used: readonly ModelUse[]) => Promise<void>;
  readonly add: (use: ModelUse) => void;
  readonly settle: (used: readonly ModelUse[]) => Promise<void>;
}

/** What one turn spends on models, from being let in until all that belongs to it is over. */
export class TurnAccount implements Meter {
  private readonly parts: TurnAccountParts;
  private readonly uses = new Map<string, ModelUse>();
  private settled: Promise<void> | undefined;

  constructor(parts: TurnAccountParts) {
    this.parts = parts;
  }

  /** By model. */
  get used(): readonly ModelUse[] {
    return [...this.uses.values()];
  }

  get total(): TokenUsage {
    return this.used.reduce<TokenUsage>(sum, { input: 0, output: 0, cached: 0 });
  }

  /** What comes after the account is closed would be paid by nobody. */
  async check(): Promise<void> {
    if (this.settled !== undefined) throw new Error('The turn is over');
    await this.parts.check(this.used);
  }

  add(use: ModelUse): void {
    if (use.input + use.output === 0) return;
    this.parts.add(use);
    const known = this.uses.get(use.model);
    this.uses.set(use.model, known ? { model: use.model, ...sum(known, use) } : use);
  }

  /** Closes the account; asked again, it is the same once. */
  settle(): Promise<void> {
    this.settled ??= this.parts.settle(this.used);
    return this.settled;
  }
}

function sum(a: TokenUsage, b: TokenUsage): TokenUsage {
  return { input: a.input + b.input, output: a.output + b.output, cached: a.cached + b.cached };
}
