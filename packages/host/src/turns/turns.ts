import { setTimeout as sleep } from 'node:timers/promises';
import { OracleError } from '@sibyl/protocol';
import { type Holder, settlesWithin } from '@sibyl/server-kit';
import type { Logger } from 'pino';
import type { Holders } from '../auth/rate-limits.js';
import type { Cluster } from '../bus/cluster.js';
import type { EventBus, SessionKey } from '../bus/event-bus.js';
import type { SessionChanges } from '../bus/session-changes.js';
import type { Config } from '../config/config.js';
import type { Models } from '../models/models.js';
import { findSubUser } from '../store/room-store.js';
import { type ActiveRunKey, hasStopped, type Run } from '../store/runs/run.js';
import { type StartedRun, WITHDRAWN } from '../store/runs/run-store.js';
import type { CancelReason, RunKey } from '../store/schema/runs.js';
import type { Session } from '../store/session-store.js';
import type { Store } from '../store/store.js';
import { FeedSender } from './read/run-feeds.js';
import { ActiveRun, ActiveRuns, DisconnectedTurns, type TurnCounts } from './run/active-run.js';
import { createNotStoredError, createUnstoredOutcome, endUnanswered } from './run/run-end.js';
import type { RunExecutor } from './run/run-executor.js';
import { buildCacheInvalidation, buildDoneFrame } from './run/run-log.js';
import { FlushLoop, type Recording } from './run/run-recorder.js';
import { buildFirstFrame, readProgress } from './run/turn-progress.js';
import type { Gates, TurnAccount } from './start/gates.js';
import {
  confirmWrite,
  type IdempotencyClaim,
  IdempotentStarts,
  storeStart,
} from './start/idempotent-starts.js';
import type { TurnAccess } from './start/turn-access.js';
import {
  HostLoad,
  hostBusy,
  hostStopping,
  StartPace,
  startErrors,
  TurnSlots,
} from './start/turn-limits.js';
import {
  assertModelExists,
  fromStoredRequest,
  readQuestion,
  type TurnRequest,
  toGateRequest,
  withExpiryWarning,
} from './turn-request.js';

/** What a turn has once the gates have admitted it. */
type Admitted = Pick<ActiveRun, 'request' | 'session' | 'account' | 'freeSlot'>;

interface TurnsDeps {
  readonly store: Store;
  readonly cluster: Cluster;
  readonly gates: Gates;
  readonly access: TurnAccess;
  readonly holders: Pick<Holders, 'find'>;
  readonly executor: RunExecutor;
  readonly models: Models;
  readonly events: EventBus;
  readonly changes: SessionChanges;
  readonly logger: Logger;
  /** Called after each flush with the number of its runs and its duration. */
  readonly onFlush?: ((runs: number, seconds: number) => void) | undefined;
  readonly settings: Pick<Config['turns'], 'maxPerUser' | 'max' | 'storeWaitMs' | 'resumesTurns'>;
}

/**
 * Runs turns. The store decides which run of a session is executed and which are queued, for all hosts together; this
 * class executes the runs that are assigned to this host.
 */
export class Turns {
  private readonly active = new ActiveRuns();
  /** Runs whose start is not confirmed yet, and whether the end of another one has promoted them meanwhile. */
  private readonly starting = new Map<string, boolean>();
  private pendingClaims = 0;
  private readonly idempotent: IdempotentStarts;
  private readonly slots: TurnSlots;
  private readonly load: HostLoad;
  private readonly pace = new StartPace();
  private readonly recording: Recording;
  private readonly feeds: FeedSender;
  private readonly disconnected: DisconnectedTurns;
  private readonly shutdown = new AbortController();
  private isClosing = false;

  constructor(private readonly deps: TurnsDeps) {
    this.idempotent = new IdempotentStarts(deps.store);
    this.slots = new TurnSlots(deps.settings);
    this.load = new HostLoad(() => deps.store.runs.estimateDelay());
    const { bus } = deps.cluster;
    this.feeds = new FeedSender(bus, (runId) => this.active.has(runId));
    this.disconnected = new DisconnectedTurns(deps.cluster.liveness, () => {
      for (const active of this.active.values()) this.lose(active);
    });
    const { events, logger, settings, store } = deps;
    this.recording = {
      runs: store.runs,
      flushes: new FlushLoop(store.runs, logger, deps.onFlush),
      events,
      logger,
      storeWaitMs: settings.storeWaitMs,
      isResumable: settings.resumesTurns,
      isStoreLost: () => this.disconnected.areStopped,
      shutdown: this.shutdown.signal,
      takesNext: () => !this.isClosing,
      onLost: (run) => this.stopLost(run),
      onCanceled: (runId, reason) => this.cancel(runId, reason),
      onPromoted: (next) => this.startOrForward(next),
    };
    bus.on('run-promoted', (key) => void this.startStored(key));
    bus.on('run-withdrawn', (key) => void this.dropLost(key));
    bus.on('run-canceled', ({ runId, reason }) => this.cancel(runId, reason));
  }

  /** Returns the run with this id if this host executes or has queued it for this owner. */
  findActive(key: RunKey): ActiveRun | undefined {
    return this.active.find(key);
  }

  /** Whether this host may take over further turns. */
  get hasRoom(): boolean {
    return this.slots.hasRoom;
  }

  /** Whether this host executes the run or is starting it. */
  isExecuting(runId: string): boolean {
    return this.active.get(runId)?.isExecuting || this.starting.has(runId);
  }

  /** Stores the message and the run that will answer it, and returns the run's id. */
  async start(request: TurnRequest): Promise<string> {
    const { caller, sessionId, message } = request;
    const holder = caller.holder ?? (await this.deps.holders.find(caller.did));
    this.assertPrompt(holder);
    // Before anything is read: an overloaded host must refuse in time. A repetition or an interruption may need no further slot.
    if (request.idempotencyKey === undefined && message.multitask !== 'interrupt')
      this.slots.assertFree(holder);
    assertModelExists(this.deps.models, message.model);
    // A session of another user must look unknown before its gates are asked.
    const session = await this.deps.store.sessions.get({ owner: caller.did, sessionId });
    const { subUser = findSubUser(session) } = caller.accessKey ?? {};
    if (findSubUser(session) !== subUser) throw new OracleError('session_not_found');
    return this.idempotent.run(request, async (idempotency) =>
      this.startNew(await readQuestion(request, this.deps.store.messages), {
        session,
        holder,
        idempotency,
      }),
    );
  }

  /** Takes back a message that waits; throws if its turn has begun. */
  async withdraw(key: RunKey): Promise<void> {
    const { store, cluster, changes } = this.deps;
    const result = await store.runs.withdraw(key).catch((error) =>
      confirmWrite(error, async () => {
        const run = await store.runs.find(key);
        return run?.report.error?.code === WITHDRAWN
          ? ({ state: 'withdrawn', run } as const)
          : undefined;
      }),
    );
    if (result.state === 'unknown') throw new OracleError('run_not_found');
    if (result.state === 'begun') throw new OracleError('not_queued');
    const { run } = result;
    if (run.hostId && run.hostId !== cluster.hostId)
      cluster.bus.send(run.hostId, 'run-withdrawn', key);
    this.forgetWithdrawn(key);
    const { event, data: payload } = buildCacheInvalidation(run);
    this.deps.events.publish(run, { event, payload });
    changes.publish(run, 'switched');
  }

  /** Drops a queued turn whose message was withdrawn. */
  private forgetWithdrawn(key: RunKey): void {
    const active = this.active.find(key);
    if (!active || active.isExecuting) return;
    const { runId } = active.run;
    const done = buildDoneFrame({ runId, messageId: undefined, status: 'aborted', text: '' });
    active.log.add(done.event, JSON.stringify(done.data));
    active.log.close();
    this.forget(active, new OracleError(WITHDRAWN), 'aborted');
  }

  /** Cancels the running or paused turn of a session, on any host; false if there is none, or not with this run. */
  async abort(key: ActiveRunKey): Promise<boolean> {
    const { runs } = this.deps.store;
    const local = this.active.findExecuting(key);
    const { runId, status } = local?.run ?? (await runs.current(key)) ?? {};
    const isActive = local || status === 'running' || status === 'paused';
    if (runId === undefined || !isActive || (key.runId ?? runId) !== runId) return false;
    local?.cancel('aborted');
    // Stored also if it runs here: if this host crashes, no other continues the turn.
    const { run, next } = await runs.cancel({ owner: key.owner, runId }, 'aborted');
    if (run?.status === 'running') this.sendCancel(run.hostId, run.runId, 'aborted');
    else if (run) this.deps.changes.publish(run, 'turn_ended');
    if (next) this.startOrForward(next);
    return local !== undefined || run !== undefined;
  }

  /** Cancels every turn of a session, and waits until those of this host have ended. */
  async interruptAll(session: SessionKey): Promise<void> {
    const open = await this.deps.store.runs.open(session);
    const own = this.active.ofSession(session);
    for (const { runId, hostId } of open) this.sendCancel(hostId, runId, 'interrupted');
    await Promise.all(own.map(({ outcome }) => outcome));
  }

  /** Executes a run that is assigned to this host, also if it does not know it; one that is closing leaves it to others. */
  async adopt(run: Run, { isClaimed = false } = {}): Promise<void> {
    const known = this.active.get(run.runId);
    if (known) return this.execute(known);
    if (this.starting.has(run.runId)) return void this.starting.set(run.runId, true);
    this.starting.set(run.runId, false);
    try {
      if (this.isClosing && !isClaimed) {
        const given = await this.deps.store.runs.giveBack(run);
        return given && this.startOrForward(given);
      }
      const active = await this.restore(run);
      if (active) this.execute(active);
    } catch (err) {
      this.deps.logger.error({ err, runId: run.runId, did: run.owner }, 'run not taken over');
    } finally {
      this.starting.delete(run.runId);
    }
  }

  /** Starts a run that the end of another one has promoted, here or on the host that accepted it. */
  startOrForward(next: Run): void {
    const { hostId, bus } = this.deps.cluster;
    if (next.hostId === hostId) void this.startAssigned(next);
    else if (next.hostId === undefined) bus.send('others', 'run-available', null);
    else bus.send(next.hostId, 'run-promoted', { owner: next.owner, runId: next.runId });
  }

  /** Executes a run if it is running and assigned to this host. */
  async startStored(key: RunKey): Promise<void> {
    const run = await this.deps.store.runs.find(key).catch(() => undefined);
    if (run?.status === 'running' && run.hostId === this.deps.cluster.hostId)
      await this.startAssigned(run);
  }

  /** Claims a promoted run that no host has started, and executes it; a host that is closing leaves it to others. */
  async claim({ runId, owner, hostId: from }: Run): Promise<void> {
    if (this.isClosing) return;
    this.pendingClaims += 1;
    const claimed = this.deps.store.runs.claim({ owner, runId, from });
    const adopted = claimed.then((run) => run && this.adopt(run, { isClaimed: true }));
    await adopted.finally(() => (this.pendingClaims -= 1));
  }

  /**
   * Accepts no more turns, hands queued ones over, lets running ones finish, and cancels the rest after `graceMs`.
   * Returns false if some have not ended after `timeoutMs`, for example because the store does not answer.
   */
  async close(graceMs: number, timeoutMs: number): Promise<boolean> {
    this.isClosing = true;
    const timer = setTimeout(() => {
      for (const active of this.active.values()) active.cancel('interrupted', hostStopping());
      this.shutdown.abort();
    }, graceMs);
    const hasEnded = await settlesWithin(timeoutMs, this.finishAll());
    clearTimeout(timer);
    this.load.close();
    const runs = [...this.active.keys()];
    if (!hasEnded) this.deps.logger.error({ runs }, 'turns did not end; closing without them');
    return hasEnded;
  }

  private async finishAll(): Promise<void> {
    while (this.pendingClaims + this.starting.size + this.active.size > 0) {
      await this.handOver();
      await Promise.all(this.active.list().map(({ outcome }) => outcome));
      // Not immediately: a run that is not stored yet has an outcome but is still live.
      await sleep(10);
    }
  }

  /** Makes the queued runs of this host available to other hosts, or to this one after a restart. */
  private async handOver(): Promise<void> {
    const queued = this.active.queued();
    if (queued.length === 0) return;
    const { store, cluster, logger } = this.deps;
    await store.runs.release(cluster.hostId).catch((error) => {
      // The others take them over once this host has ended.
      logger.warn({ reason: String(error) }, 'queued turns not released');
    });
    // One may have begun meanwhile.
    for (const active of queued) if (!active.isExecuting) this.giveAway(active, hostStopping());
    cluster.bus.send('others', 'run-available', null);
  }

  count(): TurnCounts {
    return this.active.count();
  }

  /** The runs that this host executes or has queued. */
  listActive(): readonly Run[] {
    return this.active.list().map(({ run }) => run);
  }

  /** Others have ended a run or taken it over: why matters only while it is queued. */
  private stopLost(key: RunKey): void {
    const active = this.active.find(key);
    if (active?.isExecuting) this.lose(active);
    else void this.dropLost(key);
  }

  /** Stops a turn that others have taken over, ended or, while it was queued, withdrawn; the next pass over all turns repeats this. */
  async dropLost(key: RunKey): Promise<void> {
    const { store, cluster } = this.deps;
    const run = await store.runs.find(key).catch(() => 'unread' as const);
    const active = this.active.find(key);
    if (run === 'unread' || !active) return;
    if (run?.report.error?.code === WITHDRAWN) this.forgetWithdrawn(key);
    else if (!run || hasStopped(run) || run.hostId !== cluster.hostId) this.lose(active);
  }

  /** Stops a turn that another host has taken over or may take over. */
  private lose(active: ActiveRun): void {
    if (active.isExecuting) active.cancel('interrupted', createNotStoredError());
    else this.giveAway(active, createNotStoredError());
  }

  /** Drops a queued run that another host executes. */
  private giveAway(active: ActiveRun, error: OracleError): void {
    active.log.detach(error);
    this.forget(active, error, 'interrupted');
  }

  /** Drops a queued run. */
  private forget(active: ActiveRun, error: OracleError, status: CancelReason): void {
    this.remove(active);
    active.settle({ status, messageId: undefined, text: '', warnings: [], error });
    active.freeSlot();
    void active.account.settle();
  }

  private remove({ run }: ActiveRun): void {
    this.active.delete(run.runId);
    this.feeds.forget(run.runId);
  }

  /** Throws while the host stops. */
  assertOpen(): void {
    if (this.isClosing) throw hostStopping();
  }

  /** Throws while this host has more work than it can do in time: turns that it has accepted must end. */
  assertPrompt({ address, isKnown }: Omit<Holder, 'owner'>): void {
    const holder = { address, isKnown };
    const turns = this.active.size;
    if (this.load.isTooHigh(turns) && !this.slots.hasFew(holder)) throw hostBusy();
    if (this.load.isHigh(turns)) this.slots.assertFree({ owner: '', ...holder });
  }

  async assertPromptFor(owner: string): Promise<void> {
    this.assertPrompt(await this.deps.holders.find(owner));
  }

  /**
   * Admits a message, stores it with the run that answers it in one transaction, and begins the run. Returns the id of the
   * run, or of the one that an earlier request with the same key started.
   */
  private async startNew(
    request: TurnRequest,
    {
      session,
      holder,
      idempotency,
    }: {
      readonly session: Session;
      readonly holder: Holder;
      readonly idempotency: IdempotencyClaim | undefined;
    },
  ): Promise<string> {
    const { access, gates, models, store } = this.deps;
    this.assertOpen();
    const runId = store.runs.newId();
    const freeSlot = this.acquireSlot(request, session, holder);
    let account: TurnAccount | undefined;
    let isAdmitted = false;
    const giveBack = async () => {
      freeSlot();
      void account?.settle();
      if (isAdmitted) await access.release(request);
    };
    this.starting.set(runId, false);
    try {
      await access.admit(request);
      isAdmitted = true;
      account = await gates.admit(toGateRequest(request, models));
      this.assertOpen();
      const turn = { request, session, account, freeSlot };
      let begun: Promise<void> | undefined;
      const begin = (started: StartedRun) => {
        begun ??= this.begin(started, turn);
        return begun;
      };
      const result = await storeStart(this.deps, request, {
        runId,
        idempotency,
        // The turn begins while the disk still writes; the caller hears about it afterwards.
        onCommit: (committed) => {
          if (committed.state === 'started') begin(committed).catch(() => undefined);
        },
      });
      switch (result.state) {
        case 'started':
          await begin(result);
          return runId;
        case 'existing':
          // Another host was first.
          await giveBack();
          return result.runId;
        default:
          throw startErrors[result.state]();
      }
    } catch (error) {
      this.starting.delete(runId);
      const active = this.active.get(runId);
      if (active) this.lose(active);
      await giveBack();
      throw error;
    } finally {
      this.starting.delete(runId);
    }
  }

  /** A message that interrupts a turn of this host replaces it: one at a time, others need a free place. */
  private acquireSlot(
    { message }: TurnRequest,
    { owner, sessionId }: Session,
    holder: Holder,
  ): () => void {
    if (message.multitask !== 'interrupt') return this.slots.acquire(holder);
    const replaced = this.active.findExecuting({ owner, sessionId });
    if (!replaced || replaced.isReplaced) return this.slots.acquire(holder);
    const freeSlot = this.slots.take(holder);
    replaced.isReplaced = true;
    return () => {
      freeSlot();
      replaced.isReplaced = false;
    };
  }

  private async begin({ run, canceled, next }: StartedRun, turn: Admitted): Promise<void> {
    for (const { runId, hostId } of canceled) this.sendCancel(hostId, runId, 'interrupted');
    const progress = await readProgress(this.deps.store.runs, run);
    // The start has failed meanwhile.
    if (!this.starting.has(run.runId)) return;
    const active = this.addActive(run, { ...turn, progress });
    active.recorder.write(buildFirstFrame(run, progress));
    if (run.status === 'running' || this.starting.get(run.runId)) this.execute(active);
    if (next) this.startOrForward(next);
  }

  private addActive(run: Run, turn: Admitted & Pick<ActiveRun, 'progress'>): ActiveRun {
    const active = new ActiveRun(run, turn, this.recording, (frame) =>
      this.feeds.send(run.runId, frame),
    );
    this.active.set(run.runId, active);
    const announceCancel = () => active.cancelReason && this.feeds.announceEnd(run.runId);
    active.signal.addEventListener('abort', announceCancel, { once: true });
    this.deps.access.watch(turn.request.caller, active, (error) => {
      active.cancel('aborted', error);
      this.execute(active);
    });
    return active;
  }

  /** Loads a run that another host has accepted; ends it if it cannot be executed any more. */
  private async restore(run: Run): Promise<ActiveRun | undefined> {
    const { store, holders } = this.deps;
    const request = fromStoredRequest(await store.runs.request(run));
    const session = await store.sessions.find(run);
    if (!session) return undefined;
    if (!request) return this.refuse(run, createNotStoredError());
    const admitted = await this.admitAgain(request).catch((error) => ({ error }));
    if ('error' in admitted) return this.refuse(run, admitted.error);
    const progress = await readProgress(store.runs, run);
    const frames = await store.runs.allFrames(run);
    const active = this.addActive(run, {
      request: run.attempt > 1 ? withExpiryWarning(request) : request,
      session,
      account: admitted,
      freeSlot: this.slots.take(await holders.find(run.owner)),
      progress,
    });
    // Before any reader can find the run here.
    active.log.load(frames);
    if (active.log.lastSeq === 0) active.recorder.write(buildFirstFrame(run, progress));
    return active;
  }

  private async admitAgain(request: TurnRequest): Promise<TurnAccount> {
    await this.deps.access.assertKept(request.caller);
    return this.deps.gates.admit(toGateRequest(request, this.deps.models));
  }

  /** Ends a run that another host accepted and that cannot be executed. */
  private async refuse(run: Run, error: unknown): Promise<undefined> {
    const reason = error instanceof OracleError ? error : createNotStoredError();
    const ended = await this.deps.store.runs.finish({
      owner: run.owner,
      runId: run.runId,
      end: endUnanswered(run, reason),
      takesNext: true,
    });
    if (ended?.next) this.startOrForward(ended.next);
  }

  /** If a claim fails, the next pass over the runs of this host repeats it. */
  private startAssigned(run: Run): Promise<void> {
    if (run.startedAt !== undefined) return this.adopt(run);
    return this.claim(run).catch(() => undefined);
  }

  /** Executes a run in the background. */
  private execute(active: ActiveRun): void {
    if (active.isExecuting) return;
    active.isExecuting = true;
    this.pace.run(() => void this.run(active));
  }

  private async run(active: ActiveRun): Promise<void> {
    const { run } = active;
    this.deps.changes.publish(run, 'turn_started');
    try {
      active.settle(await this.deps.executor.execute(active));
    } catch (err) {
      this.deps.logger.error({ err, runId: run.runId }, 'run ended without being stored');
      active.settle(createUnstoredOutcome());
    } finally {
      this.remove(active);
      active.freeSlot();
      this.deps.changes.publish(run, 'turn_ended');
    }
  }

  /** Cancels a run of this host; a queued one ends at once. */
  cancel(runId: string, reason: CancelReason): void {
    const active = this.active.get(runId);
    if (!active) return;
    const error = reason === 'interrupted' ? new OracleError('turn_interrupted') : undefined;
    active.cancel(reason, error);
    this.execute(active);
  }

  private sendCancel(hostId: string | null | undefined, runId: string, reason: CancelReason): void {
    if (this.active.has(runId)) this.cancel(runId, reason);
    else if (hostId) this.deps.cluster.bus.send(hostId, 'run-canceled', { runId, reason });
  }
}
