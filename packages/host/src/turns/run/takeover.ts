import type { Logger } from 'pino';
import type { AgentStep } from '../../agent/steps.js';
import type { Cluster } from '../../bus/cluster.js';
import { type EventBus, endOfRun } from '../../bus/event-bus.js';
import type { Run } from '../../store/runs/run.js';
import type { RunStore } from '../../store/runs/run-store.js';
import type { PausedTurns } from '../answer/paused-turns.js';
import type { Turns } from '../turns.js';
import { buildHandover, endInterrupted } from './run-end.js';
import { buildCacheInvalidation } from './run-log.js';
import { hasUnusedAnswer, readSteps } from './turn-progress.js';

/** A turn that was interrupted this often may be what kills its hosts. */
const MAX_CRASHES = 5;

/** How often a host looks for work that no other host has reported to it. */
const PASS_MS = 1_000;

interface TakeoverDeps {
  readonly runs: RunStore;
  readonly turns: Turns;
  readonly paused: PausedTurns;
  readonly cluster: Cluster;
  readonly events: EventBus;
  readonly logger: Logger;
  /** Whether running turns of dead hosts are continued instead of closed, also those that have begun to use an answer. */
  readonly resumes: boolean;
  /** Called when a run was ended or continued, so that its readers read the store. */
  readonly onClosed: (run: Run) => void;
  /** Called for each run of a dead host. */
  readonly onTakeover: (outcome: 'closed' | 'resumed') => void;
}

/** Closes the running turns of dead hosts, and executes what they had queued. */
export class Takeover {
  private timer: NodeJS.Timeout | undefined;
  private passing: Promise<void> | undefined;
  private isWanted = false;
  private isClosed = false;

  constructor(private readonly deps: TakeoverDeps) {}

  /** Closes what dead hosts left behind, then continues to watch. Queued turns start only when `watch` is called. */
  async start(): Promise<void> {
    await this.closeDead();
  }

  /** Looks for work now, regularly, and whenever another host ends. */
  watch(): void {
    const { cluster } = this.deps;
    cluster.liveness.onHostLost(() => this.pass());
    cluster.liveness.onRegained(() => this.pass());
    cluster.bus.on('run-available', () => this.pass());
    cluster.bus.onMissed(() => this.pass());
    this.timer = setInterval(() => this.pass(), PASS_MS);
    this.timer.unref();
    this.pass();
  }

  async close(): Promise<void> {
    this.isClosed = true;
    clearInterval(this.timer);
    await this.passing;
  }

  /** One pass at a time; a request during a pass causes another one. */
  private pass(): void {
    this.isWanted = true;
    this.passing ??= this.passWhileWanted().finally(() => {
      this.passing = undefined;
    });
  }

  private async passWhileWanted(): Promise<void> {
    while (this.isWanted && !this.isClosed) {
      this.isWanted = false;
      try {
        await this.closeDead();
        await this.startUnstarted();
        await this.deps.paused.expire();
      } catch (error) {
        // Without a stack: the store logs its outages itself.
        this.deps.logger.debug({ reason: String(error) }, 'runs not checked; trying again');
      }
    }
  }

  private async closeDead(): Promise<void> {
    const { runs, cluster } = this.deps;
    const hosts = (await runs.hosts()).filter((id) => id !== undefined);
    const others = hosts.filter((id) => id !== cluster.hostId);
    if (others.length === 0) return;
    for (const hostId of await cluster.liveness.findDeadHosts(others)) await this.takeOver(hostId);
  }

  private async takeOver(hostId: string): Promise<void> {
    const { runs } = this.deps;
    await runs.release(hostId);
    for (let closed = Number.POSITIVE_INFINITY; closed > 0; ) {
      closed = 0;
      for (const run of await runs.ofHost(hostId)) if (await this.tryToClose(run)) closed += 1;
    }
  }

  /** A run that cannot be closed must not keep others from it; the next pass tries again. */
  private async tryToClose(run: Run): Promise<boolean> {
    try {
      await this.resumeOrClose(run);
      return true;
    } catch (err) {
      this.deps.logger.error(
        { err, runId: run.runId, did: run.owner },
        'run of a dead host not closed',
      );
      return false;
    }
  }

  private async resumeOrClose(run: Run): Promise<void> {
    const { runs, turns, logger, onTakeover } = this.deps;
    const about = { runId: run.runId, did: run.owner, hostId: run.hostId };
    const next = await this.resume(run);
    if (next) {
      logger.warn(about, 'run of a dead host is continued');
      onTakeover('resumed');
      this.deps.onClosed(run);
      return turns.adopt(next);
    }
    const ended = await runs.close(run, endInterrupted);
    if (!ended) return;
    logger.warn(about, 'run of a dead host closed as interrupted');
    onTakeover('closed');
    this.deps.onClosed(run);
    this.publish(ended.run);
    if (ended.next) turns.startOrForward(ended.next);
  }

  /**
   * Starts the next attempt of a running turn; undefined if it may not be continued, was canceled, its request is not
   * stored, or it was interrupted too often.
   */
  private async resume(run: Run): Promise<Run | undefined> {
    const { runs, resumes } = this.deps;
    if (run.status !== 'running' || run.cancelReason) return undefined;
    // Only a later attempt can have an answer.
    if (!resumes && run.attempt === 1) return undefined;
    const steps = (await runs.steps(run)) as readonly AgentStep[];
    if (!resumes && !hasUnusedAnswer(steps)) return undefined;
    if (!(await runs.request(run))) return undefined;
    if ((await runs.countCrashes(run)) >= MAX_CRASHES) return undefined;
    return runs.resume(run, buildHandover(run, readSteps(steps).content));
  }

  /** Executes promoted runs that no host has started: of dead or stopped hosts, and those of this host that a hint missed. */
  private async startUnstarted(): Promise<void> {
    const { runs, turns, cluster } = this.deps;
    const known = turns.listActive();
    const unassigned = await runs.ofHost(undefined);
    const own = await runs.ofHost(cluster.hostId);
    for (const run of [...own, ...unassigned]) {
      if (run.status !== 'running' || run.startedAt !== undefined) continue;
      // Another host may have room for it.
      if (run.hostId !== undefined || turns.hasRoom) await turns.claim(run);
    }
    await this.compareOwn(own, known);
  }

  /** Finds what this host has missed about its runs: those in the store, and those it knows. */
  private async compareOwn(own: readonly Run[], known: readonly Run[]): Promise<void> {
    const { turns } = this.deps;
    for (const run of own) {
      // While a run writes nothing, no flush finds out that it was canceled.
      if (run.cancelReason) turns.cancel(run.runId, run.cancelReason);
      // The reply of the database to its start, claim or promotion was lost.
      if (run.startedAt !== undefined && !turns.isExecuting(run.runId))
        await turns.startStored(run);
    }
    const stored = new Set(own.map((run) => run.runId));
    // While a run writes nothing, no flush finds out that it was lost.
    for (const { owner, runId } of known)
      if (!stored.has(runId)) await turns.dropLost({ owner, runId });
  }

  private publish(run: Run): void {
    const { event, data: payload } = buildCacheInvalidation(run, run.messageId);
    this.deps.events.publish(run, { event, payload, position: endOfRun(run) });
  }
}
