import { settlesWithin } from '@sibyl/server-kit';
import type { Logger } from 'pino';

/** The stages of a shutdown in their order, and the milliseconds that are reserved for each. */
export type ShutdownShares = Readonly<Record<string, number>>;

/**
 * The shares of a host that lets running turns finish for `timeoutMs`. With ten seconds they add up to 25 s, so
 * that the process has ended before a supervisor that waits for 30 s kills it.
 */
export const shutdownShares = (timeoutMs: number) => ({
  turns: timeoutMs + 5_000,
  titles: 1_000,
  gates: 2_500,
  sockets: 500,
  requests: 1_000,
  imports: 500,
  plugins: 2_000,
  budget: 1_000,
  store: 1_000,
  cluster: 500,
});

interface StageWork {
  /** Receives the milliseconds it may take. */
  run(leftMs: number): Promise<unknown>;
  /** The most it may take, however much is left. */
  readonly maxMs?: number;
}

/**
 * Closes a host in stages that share one deadline, the sum of their shares. A stage may use what earlier
 * ones left over, but never the shares of later ones.
 */
export class ShutdownStages<Shares extends ShutdownShares> {
  private readonly shares: Shares;
  private readonly logger: Pick<Logger, 'error'>;
  private readonly deadline: number;
  private readonly errors: unknown[] = [];

  constructor(shares: Shares, logger: Pick<Logger, 'error'>) {
    this.shares = shares;
    this.logger = logger;
    this.deadline = performance.now() + sum(Object.values(shares));
  }

  /** The milliseconds left until this stage has to end. */
  left(stage: keyof Shares & string): number {
    const stages = Object.keys(this.shares);
    const later = stages.slice(stages.indexOf(stage) + 1);
    const reserved = sum(later.map((each) => this.shares[each] ?? 0));
    return Math.max(0, this.deadline - reserved - performance.now());
  }

  /** Runs a stage until its time is over; the next stage follows even if this one fails or is still running. */
  async run(stage: keyof Shares & string, { run, maxMs = Infinity }: StageWork): Promise<void> {
    const leftMs = Math.min(this.left(stage), maxMs);
    const running = (async () => run(leftMs))();
    running.catch((error) => this.errors.push(error));
    if (!(await settlesWithin(leftMs, running)))
      this.logger.error({ stage }, 'a stage of the shutdown took too long; continuing without it');
  }

  /** Throws the first error of a stage. */
  end(): void {
    if (this.errors.length > 0) throw this.errors[0];
  }
}

const sum = (values: readonly number[]) => values.reduce((total, each) => total + each, 0);
