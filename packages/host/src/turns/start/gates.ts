import type { GateRequest, MessageGate, ModelUse, TurnHold } from '@sibyl/plugin-kit';
import type { LoadedPlugin } from '@sibyl/plugin-kit/host';
import { OracleError } from '@sibyl/protocol';
import { retry, settlesWithin } from '@sibyl/server-kit';
import type { Logger } from 'pino';
import type { Meter } from '../../agent/agent.js';
import type { TokenUsage } from '../../store/schema/runs.js';
import type { Hooks } from '../plugins/hooks.js';

/** Delays between attempts to settle: doubled up to the last. */
const RETRIES = { firstMs: 200, lastMs: 10_000, attempts: 12 };

/** Turns that may be unsettled at a time; beyond that, messages are rejected. */
const MAX_OPEN = 10_000;

interface GatesDeps {
  readonly plugins: readonly LoadedPlugin[];
  readonly hooks: Hooks;
  /** The budget of all turns together. */
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

/** Asks plugins whether a message may start a turn, and reports the turn's usage to each. */
export class Gates {
  private readonly gates: readonly PluginGate[];
  private readonly open = new Set<Promise<void>>();
  private readonly shutdown = new AbortController();

  constructor(private readonly deps: GatesDeps) {
    this.gates = deps.plugins.flatMap(({ name: plugin, gate }) => (gate ? [{ plugin, gate }] : []));
  }

  /** Throws if a gate rejects the message or fails. The caller must settle the returned account in every case. */
  async admit(request: GateRequest): Promise<TurnAccount> {
    if (this.open.size >= MAX_OPEN)
      throw new OracleError('gate_unavailable', { retryAfterSeconds: 5 });
    const holds: PluginHold[] = [];
    const account = this.openAccount(holds);
    try {
      await this.deps.budget.check();
      for (const gate of this.gates) holds.push(...(await this.askGate(gate, request)));
      return account;
    } catch (refusal) {
      void account.settle();
      throw refusal;
    }
  }

  /** Waits until every account is settled, for at most `timeoutMs`; failed attempts are retried for `graceMs`. */
  async close(graceMs: number, timeoutMs: number): Promise<void> {
    const timer = setTimeout(() => this.shutdown.abort(), graceMs);
    const isClosed = await settlesWithin(timeoutMs, this.waitUntilSettled());
    clearTimeout(timer);
    if (!isClosed) this.deps.logger.error({ turns: this.open.size }, 'turns were not settled');
  }

  private async waitUntilSettled(): Promise<void> {
    while (this.open.size > 0) await Promise.all(this.open);
  }

  private openAccount(holds: readonly PluginHold[]): TurnAccount {
    const closed = Promise.withResolvers<void>();
    this.open.add(closed.promise);
    const { budget, hooks } = this.deps;
    return new TurnAccount({
      check: async (used) => {
        await budget.check();
        for (const { plugin, hold } of holds)
          if (hold.check)
            await hooks.callRequired({ plugin, hook: 'TurnHold.check' }, () => hold.check?.(used));
      },
      add: (use) => budget.add(use),
      settle: async (used) => {
        await Promise.all(holds.map((held) => this.settle(held, used)));
        this.open.delete(closed.promise);
        closed.resolve();
      },
    });
  }

  private async askGate({ plugin, gate }: PluginGate, request: GateRequest): Promise<PluginHold[]> {
    const call = { plugin, hook: 'getMessageGate' };
    let admission: Promise<TurnHold | undefined> | undefined;
    const asked = this.deps.hooks.callRequired(call, () => {
      admission = gate.admit(request);
      return admission;
    });
    const hold = await asked.catch((refusal) => {
      admission?.then((late) => this.release(plugin, late)).catch(() => undefined);
      throw refusal;
    });
    if (hold === undefined) return [];
    if (typeof hold?.settle === 'function') return [{ plugin, hold }];
    throw this.deps.hooks.refuse(call, new Error('admit gave no hold'));
  }

  /** Settles a hold that arrived too late and belongs to no turn. */
  private async release(plugin: string, hold: TurnHold | undefined): Promise<void> {
    if (typeof hold?.settle === 'function') await this.openAccount([{ plugin, hold }]).settle();
  }

  private async settle({ plugin, hold }: PluginHold, used: readonly ModelUse[]): Promise<void> {
    const { hooks, logger } = this.deps;
    const call = { plugin, hook: 'TurnHold.settle' };
    const settle = async () => {
      const answer = await hooks.callOptional(call, () => hold.settle(used));
      if ('fault' in answer) throw answer.fault;
    };
    await retry(settle, { ...RETRIES, signal: this.shutdown.signal }).catch(() =>
      logger.error({ plugin, used }, 'a turn was not settled'),
    );
  }
}

interface TurnAccountDeps {
  readonly check: (used: readonly ModelUse[]) => Promise<void>;
  readonly add: (use: ModelUse) => void;
  readonly settle: (used: readonly ModelUse[]) => Promise<void>;
}

/** Counts what one turn spends on models, from admission until everything that belongs to it has ended. */
export class TurnAccount implements Meter {
  private readonly uses = new Map<string, ModelUse>();
  private settled: Promise<void> | undefined;

  constructor(private readonly deps: TurnAccountDeps) {}

  /** Usage by model. */
  get used(): readonly ModelUse[] {
    return [...this.uses.values()];
  }

  get total(): TokenUsage {
    const models = this.used;
    return { ...models.reduce<TokenUsage>(addUsage, { input: 0, output: 0, cached: 0 }), models };
  }

  /** Throws after the account was settled: a later call would not be paid. */
  async check(): Promise<void> {
    if (this.settled !== undefined) throw new Error('The turn is over');
    await this.deps.check(this.used);
  }

  add(use: ModelUse): void {
    if (use.input + use.output === 0) return;
    this.deps.add(use);
    const known = this.uses.get(use.model);
    this.uses.set(use.model, known ? { model: use.model, ...addUsage(known, use) } : use);
  }

  /** Closes the account; repeated calls return the same promise. */
  settle(): Promise<void> {
    this.settled ??= this.deps.settle(this.used);
    return this.settled;
  }
}

function addUsage(a: TokenUsage, b: TokenUsage): TokenUsage {
  const cost =
    a.cost === undefined && b.cost === undefined ? undefined : (a.cost ?? 0) + (b.cost ?? 0);
  return {
    input: a.input + b.input,
    output: a.output + b.output,
    cached: a.cached + b.cached,
    ...(cost !== undefined && { cost }),
  };
}
