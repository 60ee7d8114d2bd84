import { type DelegatedTurns, type Logger, OracleError } from '@sibyl/plugin-kit';
import type { StoppedWork } from '@sibyl/protocol';
import { type RunEnd, type ScheduleRuns, toRunKey } from './run-store.js';
import type { SchedulePermits } from './schedule-permits.js';
import {
  type RunRow,
  readTrigger,
  type ScheduleRow,
  type ScheduleStore,
} from './schedule-store.js';
import type { ResultDelivery } from './webhooks.js';

/** How long a host sleeps at most before it looks for work of others. */
const MAX_SLEEP_MS = 1_000;
/** After a round that failed, and between rounds with work. */
const MIN_SLEEP_MS = 20;
/** Attempts to start a turn that the host refuses for now. */
const MAX_STARTS = 8;
const RETRY_MS = 2_000;
/** How often the state of a turn is read: soon at first, then ever more rarely; in whole milliseconds. */
const FIRST_CHECK_MS = 250;
const MAX_CHECK_MS = 10_000;
/** How often all delegations are checked, in case the news of a revocation did not arrive. */
const SWEEP_MS = 600_000;
/** How often rounds that fail one after the other are logged. */
const LOG_MS = 60_000;

interface SchedulerDeps {
  readonly schedules: ScheduleStore;
  readonly runs: ScheduleRuns;
  readonly turns: DelegatedTurns;
  readonly delivery: ResultDelivery;
  readonly permits: SchedulePermits;
  readonly logger: Logger;
}

/** Starts what is due on this host, and continues runs whose host has died. */
export class Scheduler {
  private timer: NodeJS.Timeout | undefined;
  private round: Promise<void> | undefined;
  private isWanted = false;
  private isClosed = false;
  private sweptAt = performance.now();
  /** Undefined after a round that succeeded. */
  private loggedAt: number | undefined;
  private readonly stopListening: () => void;

  constructor(private readonly deps: SchedulerDeps) {
    this.stopListening = deps.turns.onRevoked((cid) => this.stopRevoked(cid));
    this.sleep(MIN_SLEEP_MS);
  }

  /** Looks for work at once. */
  wake(): void {
    this.isWanted = true;
    if (this.isClosed) return;
    this.round ??= this.work().finally(() => {
      this.round = undefined;
    });
  }

  async close(): Promise<void> {
    this.isClosed = true;
    this.stopListening();
    clearTimeout(this.timer);
    await this.round;
  }

  /** Ends a schedule, and makes its session show why. */
  async stop(schedule: ScheduleRow, reason: string, notice: 'notify' | 'known'): Promise<void> {
    const stopped = await this.deps.schedules.stop(schedule, reason);
    if (!stopped) return;
    const { owner, id } = schedule;
    this.deps.logger.info({ did: owner, scheduleId: id, reason }, 'schedule stopped');
    let hasTurn = false;
    for (const runId of await this.deps.runs.listOpenTurns(schedule))
      hasTurn = !(await this.deps.turns.abortPaused({ owner, runId })) || hasTurn;
    // A running turn ends with its delegation and shows the reason itself.
    if (notice === 'notify' && !hasTurn) await this.notify(stopped);
  }

  private sleep(ms: number): void {
    clearTimeout(this.timer);
    if (this.isClosed) return;
    this.timer = setTimeout(() => this.wake(), Math.max(MIN_SLEEP_MS, ms));
    this.timer.unref();
  }

  private async work(): Promise<void> {
    let pause = MAX_SLEEP_MS;
    while (this.isWanted && !this.isClosed) {
      this.isWanted = false;
      try {
        await this.runRound();
        pause = await this.deps.runs.untilNext(MAX_SLEEP_MS);
        this.loggedAt = undefined;
      } catch (err) {
        this.report(err);
        pause = MAX_SLEEP_MS;
      }
    }
    this.sleep(pause);
  }

  private report(err: unknown): void {
    if (this.loggedAt !== undefined && performance.now() - this.loggedAt < LOG_MS) return;
    this.loggedAt = performance.now();
    this.deps.logger.warn({ reason: String(err) }, 'schedules not checked; trying again');
  }

  private async runRound(): Promise<void> {
    const { runs, schedules, delivery } = this.deps;
    const claimed = await runs.claimDue();
    const unattended = await runs.takeUnattended();
    await Promise.all([...claimed, ...unattended].map((run) => this.attend(run)));
    await delivery.deliverSome();
    const expired = await schedules.listExpired(await schedules.now());
    await this.forEach(expired, (schedule) => this.stop(schedule, EXPIRED, 'notify'));
    if (performance.now() - this.sweptAt > SWEEP_MS) await this.sweep();
  }

  /** Starts a run, or looks how its turn is doing. A run that fails here is taken again later. */
  private async attend(run: RunRow): Promise<void> {
    try {
      if (run.run_id === null) await this.start(run);
      else await this.follow(run, run.run_id);
    } catch (err) {
      const about = { err, did: run.owner, scheduleId: run.schedule_id, dueAt: run.due_at };
      this.deps.logger.warn(about, 'run of a schedule not started or read; trying again');
    }
  }

  private async start(run: RunRow): Promise<void> {
    const { schedules, runs, turns, permits } = this.deps;
    const schedule = await schedules.find({ owner: run.owner, id: run.schedule_id });
    if (!schedule) return;
    const reason = await permits.check(schedule);
    if (reason !== undefined) {
      await runs.end(toRunKey(run), { status: 'aborted', error: reason });
      return this.stop(schedule, reason, 'notify');
    }
    try {
      const { runId } = await turns.start(await this.toTurn(schedule, run));
      await runs.attend(run, { run_id: runId, status: 'running' }, FIRST_CHECK_MS);
    } catch (error) {
      await this.handleRefusal(run, schedule, error);
    }
  }

  private async handleRefusal(run: RunRow, schedule: ScheduleRow, error: unknown): Promise<void> {
    if (!(error instanceof OracleError)) throw error;
    const { runs } = this.deps;
    const attempts = run.attempts + 1;
    const isTemporary = error.status === 429 || error.status === 503 || error.code === 'queue_full';
    if (error.code === 'session_not_found' && attempts < MAX_STARTS)
      return this.openSession(schedule).then(
        (session_id) => runs.attend(run, { attempts, session_id }, 0),
        (refusal) => this.handleRefusal(run, schedule, refusal),
      );
    if (isTemporary && attempts < MAX_STARTS)
      return runs.attend(run, { attempts }, RETRY_MS * 2 ** (attempts - 1));
    return this.end(run, { status: 'failed', error: error.message });
  }

  /** The user has deleted the schedule's session. */
  private async openSession({ owner, id, name }: ScheduleRow): Promise<string> {
    const { turns, schedules } = this.deps;
    const { sessionId } = await turns.openSession({ owner, title: name });
    try {
      await schedules.change({ owner, id }, () => ({ session_id: sessionId }));
    } catch (error) {
      // The schedule was deleted meanwhile, or its user erased. After another error, it may have the session.
      if (error instanceof OracleError && error.code === 'schedule_not_found')
        await turns.removeEmptySession({ owner, sessionId });
      throw error;
    }
    return sessionId;
  }

  private async follow(run: RunRow, runId: string): Promise<void> {
    const outcome = await this.deps.turns.outcome({ owner: run.owner, runId });
    if (!outcome) return this.end(run, { status: 'interrupted', error: 'The session was deleted' });
    const { status, error } = outcome;
    switch (status) {
      case 'queued':
      case 'running':
      case 'paused': {
        const shown = status === 'paused' ? 'paused' : 'running';
        const attempts = run.attempts + 1;
        const pause = Math.min(Math.round(FIRST_CHECK_MS * 1.5 ** attempts), MAX_CHECK_MS);
        return this.deps.runs.attend(run, { status: shown, attempts }, pause);
      }
      default:
        await this.end(run, { status, error: error?.message });
    }
    if (!error || !ENDED.has(error.code)) return;
    // The turn shows the reason already.
    const schedule = await this.deps.schedules.find({ owner: run.owner, id: run.schedule_id });
    if (schedule) await this.stop(schedule, error.message, 'known');
  }

  private async end(run: RunRow, end: RunEnd): Promise<void> {
    const { runs, schedules } = this.deps;
    const reason = await runs.end(toRunKey(run), end);
    const key = { owner: run.owner, id: run.schedule_id };
    await schedules.pruneRuns(key);
    const schedule = reason === undefined ? undefined : await schedules.find(key);
    if (reason !== undefined && schedule) await this.stop(schedule, reason, 'known');
  }

  private async stopRevoked(cid: string): Promise<StoppedWork[]> {
    try {
      const schedules = await this.deps.schedules.listByDelegation(cid);
      await this.forEach(schedules, (schedule) => this.stop(schedule, REVOKED, 'notify'));
      return schedules.map(({ id, name }) => ({ kind: 'schedule', id, name }));
    } catch (err) {
      // The sweep or the next due time finds it.
      this.deps.logger.warn({ err, cid }, 'schedules of a revoked delegation not stopped yet');
      return [];
    }
  }

  private async sweep(): Promise<void> {
    this.sweptAt = performance.now();
    const { schedules, permits } = this.deps;
    for (let after = { owner: '', id: '' }; ; ) {
      const page = await schedules.listActive(after);
      await this.forEach(page, async (schedule) => {
        const reason = await permits.check(schedule);
        if (reason !== undefined) await this.stop(schedule, reason, 'notify');
      });
      const last = page.at(-1);
      if (!last || this.isClosed) return;
      after = last;
    }
  }

  /** One that fails, such as a user whose DID document cannot be read, does not keep the others waiting. */
  private async forEach(
    schedules: readonly ScheduleRow[],
    handle: (schedule: ScheduleRow) => Promise<void>,
  ): Promise<void> {
    for (const schedule of schedules)
      try {
        await handle(schedule);
      } catch (err) {
        const about = { err, did: schedule.owner, scheduleId: schedule.id };
        this.deps.logger.warn(about, 'schedule not checked or stopped; trying again later');
      }
  }

  /**
   * Starts a turn under the delegation that has ended: it fails at once, without a model, and the session and its
   * sockets show the reason like that of any failed turn.
   */
  private async notify(schedule: ScheduleRow): Promise<void> {
    const { owner, id, delegation_cid: cid, session_id: sessionId, message, updated_at } = schedule;
    if (cid === null) return;
    try {
      await this.deps.turns.start({
        ...(await this.deps.permits.toPermission(schedule)),
        sessionId,
        message,
        client: CLIENT,
        idempotencyKey: `schedule:${id}:stopped:${updated_at}`,
      });
    } catch (err) {
      this.deps.logger.warn(
        { err, did: owner, scheduleId: id },
        'user not notified in the session',
      );
    }
  }

  private async toTurn(schedule: ScheduleRow, run: RunRow) {
    const { id } = schedule;
    const trigger = readTrigger(schedule);
    return {
      ...(await this.deps.permits.toPermission(schedule)),
      sessionId: run.session_id,
      message: run.data === null ? schedule.message : `${schedule.message}\n\n${run.data}`,
      client: CLIENT,
      ...(trigger.type === 'cron' && { timezone: trigger.timezone }),
      idempotencyKey: `schedule:${id}:${run.due_at}`,
    };
  }
}

const CLIENT = 'schedule';
const EXPIRED = 'The delegation has expired';
const REVOKED = 'The delegation was revoked';
/** Codes of turns that the end of their delegation has aborted. */
const ENDED: ReadonlySet<string> = new Set(['delegation_ended', 'access_revoked']);
