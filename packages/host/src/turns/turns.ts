import { setTimeout as sleep } from 'node:timers/promises';
import { OracleError } from '@sibyl/protocol';
import { type Holder, settlesWithin } from '@sibyl/server-kit';
import type { Logger } from 'pino';
import type { Holders } from '../auth/holders.js';
import type { Cluster } from '../bus/cluster.js';
import type { EventBus, SessionKey } from '../bus/event-bus.js';
import type { SessionChanges } from '../bus/session-changes.js';
import type { Config } from '../config/config.js';
import type { Models } from '../models/models.js';
import { findSubUser } from '../store/room-store.js';
import { type ActiveRunKey, hasStopped, type Run } from '../store/runs/run.js';
import { type StartedRun, WITHDRAWN } from '../store/runs/run-store.js';
import { type CancelReason, type RunKey } from '../store/schema/runs.js';
import type { Session } from '../store/session-store.js';
import type { Store } from '../store/store.js';
import { buildFirstFrame, endUnanswered, readProgress, storeWithdrawal } from './closing-runs.js';
import { FlushLoop } from './flush-loop.js';
import type { Gates, TurnAccount } from './gates.js';
import { HostLoad, StartPace } from './host-load.js';
import { type IdempotencyClaim, IdempotentStarts, storeStart } from './idempotent-starts.js';
import { DisconnectedTurns, LiveTurns, type TurnCounts } from './live-turns.js';
import { FeedSender } from './run-feeds.js';
import { LiveRun } from './run-log.js';
import {
  buildCacheInvalidation,
  buildDoneFrame,
  createNotStoredError,
  createUnstoredOutcome,
  RunRecorder,
} from './run-recorder.js';
import type { TurnRunner } from './run-turn.js';
import type { TurnAccess } from './turn-access.js';
import { hostBusy, hostStopping, startErrors, TurnSlots } from './turn-limits.js';
import {
  assertModelExists,
  fromStoredRequest,
  readQuestion,
  type TurnRequest,
  toGateRequest,
  withExpiryWarning,
} from './turn-request.js';
import type { LiveTurn, NewTurn } from './turn-setup.js';

interface StartContext {
  readonly session: Session;
  readonly holder: Holder;
  readonly idempotency: IdempotencyClaim | undefined;
}

interface TurnsDeps {
  readonly store: Store;
  readonly cluster: Cluster;
  readonly gates: Gates;
  readonly access: TurnAccess;
  readonly holders: Pick<Holders, 'find'>;
  readonly runner: TurnRunner;
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
  private readonly liveTurns = new LiveTurns();
  /** Runs whose start is not confirmed yet, and whether the end of another one has promoted them meanwhile. */
  private readonly starting = new Map<string, boolean>();
  private pendingClaims = 0;
  private readonly idempotent: IdempotentStarts;
  private readonly slots: TurnSlots;
  private readonly load: HostLoad;
  private readonly pace = new StartPace();
  private readonly flushes: FlushLoop;
  private readonly feeds: FeedSender;
  private readonly disconnected: DisconnectedTurns;
  private readonly shutdown = new AbortController();
  private isClosing = false;

  constructor(private readonly deps: TurnsDeps) {
    this.idempotent = new IdempotentStarts(deps.store);
    this.slots = new TurnSlots(deps.settings);
    this.load = new HostLoad(() => deps.store.runs.estimateDelay());
    this.flushes = new FlushLoop(deps.store.runs, deps.logger, deps.onFlush);
    const { bus } = deps.cluster;
    this.feeds = new FeedSender(bus, (runId) => this.liveTurns.has(runId));
    this.disconnected = new DisconnectedTurns(deps.cluster.liveness, () => {
      for (const runId of this.liveTurns.keys()) this.lose(runId);
    });
    bus.on('run-promoted', (key) => void this.startStored(key));
    bus.on('run-withdrawn', (key) => void this.dropLost(key));
    bus.on('run-canceled', ({ runId, reason }) => this.cancel(runId, reason));
  }

  /** Returns the run with this id if this host executes or has queued it for this owner. */
  findLive(key: RunKey): LiveRun | undefined {
    return this.liveTurns.find(key)?.live;
  }

  /** Whether this host may take over further turns. */
  get hasRoom(): boolean {
    return this.slots.hasRoom;
  }

  /** Whether this host executes the run or is starting it. */
  isExecuting(runId: string): boolean {
    return this.liveTurns.get(runId)?.isExecuting || this.starting.has(runId);
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
    return this.idempotent.run(request, async (claim) =>
      this.startNew(await readQuestion(request, this.deps.store.messages), {
        session,
        holder,
        idempotency: claim,
      }),
    );
  }

  /** Takes back a message that waits; throws if its turn has begun. */
  async withdraw(key: RunKey): Promise<void> {
    const { store, cluster, changes } = this.deps;
    const result = await storeWithdrawal(store.runs, key);
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
  private forgetWithdrawn({ owner, runId }: RunKey): void {
    const turn = this.liveTurns.find({ owner, runId });
    if (!turn || turn.isExecuting) return;
    const done = buildDoneFrame({ runId, messageId: undefined, status: 'aborted', text: '' });
    turn.live.log.add(done.event, JSON.stringify(done.data));
    turn.live.log.close();
    this.forget(turn, new OracleError(WITHDRAWN), 'aborted');
  }

  /** Cancels the running or paused turn of a session, on any host; false if there is none, or not with this run. */
  async abort(key: ActiveRunKey): Promise<boolean> {
    const { runs } = this.deps.store;
    const local = this.liveTurns.findExecuting(key)?.live;
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
    const turns = this.liveTurns.ofSession(session);
    for (const { runId, hostId } of open) this.sendCancel(hostId, runId, 'interrupted');
    await Promise.all(turns.map(({ live }) => live.outcome));
  }

  /** Executes a run that is assigned to this host, also if it does not know it; one that is closing leaves it to others. */
  async adopt(run: Run, { isClaimed = false } = {}): Promise<void> {
    const known = this.liveTurns.get(run.runId);
    if (known) return this.execute(known);
    if (this.starting.has(run.runId)) return void this.starting.set(run.runId, true);
    this.starting.set(run.runId, false);
    try {
      if (this.isClosing && !isClaimed) {
        const given = await this.deps.store.runs.giveBack(run);
        return given && this.startOrForward(given);
      }
      const turn = await this.restore(run);
      if (turn) this.execute(turn);
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
      for (const { live } of this.liveTurns.values()) live.cancel('interrupted', hostStopping());
      this.shutdown.abort();
    }, graceMs);
    const hasEnded = await settlesWithin(timeoutMs, this.finishAll());
    clearTimeout(timer);
    this.load.close();
    const runs = [...this.liveTurns.keys()];
    if (!hasEnded) this.deps.logger.error({ runs }, 'turns did not end; closing without them');
    return hasEnded;
  }

  private async finishAll(): Promise<void> {
    while (this.pendingClaims + this.starting.size + this.liveTurns.size > 0) {
      await this.handOver();
      await Promise.all(this.liveTurns.list().map(({ live }) => live.outcome));
      // Not immediately: a run that is not stored yet has an outcome but is still live.
      await sleep(10);
    }
  }

  /** Makes the queued runs of this host available to other hosts, or to this one after a restart. */
  private async handOver(): Promise<void> {
    const queued = this.liveTurns.queued();
    if (queued.length === 0) return;
    const { store, cluster, logger } = this.deps;
    await store.runs.release(cluster.hostId).catch((error) => {
      // The others take them over once this host has ended.
      logger.warn({ reason: String(error) }, 'queued turns not released');
    });
    // One may have begun meanwhile.
    for (const turn of queued) if (!turn.isExecuting) this.giveAway(turn, hostStopping());
    cluster.bus.send('others', 'run-available', null);
  }

  count(): TurnCounts {
    return this.liveTurns.count();
  }

  /** The runs that this host executes or has queued. */
  listLive(): readonly Run[] {
    return this.liveTurns.list().map(({ live }) => live.run);
  }

  /** Stops a turn that others have taken over, ended or, while it was queued, withdrawn; the next pass over all turns repeats this. */
  async dropLost(key: RunKey): Promise<void> {
    const { store, cluster } = this.deps;
    const run = await store.runs.find(key).catch(() => 'unread' as const);
    if (run === 'unread' || !this.liveTurns.find(key)) return;
    if (run?.report.error?.code === WITHDRAWN) this.forgetWithdrawn(key);
    else if (!run || hasStopped(run) || run.hostId !== cluster.hostId) this.lose(key.runId);
  }

  /** Stops a turn that another host has taken over or may take over. */
  private lose(runId: string): void {
    const turn = this.liveTurns.get(runId);
    if (turn?.isExecuting) turn.live.cancel('interrupted', createNotStoredError());
    else if (turn) this.giveAway(turn, createNotStoredError());
  }

  /** Drops a queued run that another host executes. */
  private giveAway(turn: LiveTurn, error: OracleError): void {
    turn.live.log.detach(error);
    this.forget(turn, error, 'interrupted');
  }

  /** Drops a queued run. */
  private forget(turn: LiveTurn, error: OracleError, status: CancelReason): void {
    const { live, account, freeSlot } = turn;
    this.liveTurns.delete(live.run.runId);
    this.feeds.forget(live.run.runId);
    live.settle({ status, messageId: undefined, text: '', warnings: [], error });
    freeSlot();
    void account.settle();
  }

  /** Throws while the host stops. */
  assertOpen(): void {
    if (this.isClosing) throw hostStopping();
  }

  /** Throws while this host has more work than it can do in time: turns that it has accepted must end. */
  assertPrompt({ address, isKnown }: Omit<Holder, 'owner'>): void {
    const holder = { address, isKnown };
    const turns = this.liveTurns.size;
    if (this.load.isTooHigh(turns) && !this.slots.hasFew(holder)) throw hostBusy();
    if (this.load.isHigh(turns)) this.slots.assertFree({ owner: '', ...holder });
  }

  async assertPromptFor(owner: string): Promise<void> {
    this.assertPrompt(await this.deps.holders.find(owner));
  }

  private async startNew(
    request: TurnRequest,
    { session, holder, idempotency }: StartContext,
  ): Promise<string> {
    this.assertOpen();
    const freeSlot = this.acquireSlot(request, session, holder);
    const runId = this.deps.store.runs.newId();
    this.starting.set(runId, false);
    try {
      const turn = { request, session, freeSlot, account: await this.admit(request) };
      return await this.store(runId, turn, idempotency).catch(async (error) => {
        void turn.account.settle();
        await this.deps.access.release(request);
        throw error;
      });
    } catch (error) {
      freeSlot();
      throw error;
    } finally {
      this.starting.delete(runId);
    }
  }

  private async admit(request: TurnRequest): Promise<TurnAccount> {
    const { access, gates } = this.deps;
    await access.admit(request);
    return gates.admit(toGateRequest(request, this.deps.models)).catch(async (error) => {
      await access.release(request);
      throw error;
    });
  }

  /** A message that interrupts a turn of this host replaces it: one at a time, others need a free place. */
  private acquireSlot(
    { message }: TurnRequest,
    { owner, sessionId }: Session,
    holder: Holder,
  ): () => void {
    if (message.multitask !== 'interrupt') return this.slots.acquire(holder);
    const replaced = this.liveTurns.findExecuting({ owner, sessionId });
    if (!replaced || replaced.isReplaced) return this.slots.acquire(holder);
    const freeSlot = this.slots.take(holder);
    replaced.isReplaced = true;
    return () => {
      freeSlot();
      replaced.isReplaced = false;
    };
  }

  /** Returns the id of the new run, or of the run that an earlier request with the same key started. */
  private async store(
    runId: string,
    turn: NewTurn,
    idempotency: IdempotencyClaim | undefined,
  ): Promise<string> {
    this.assertOpen();
    const { request, account, freeSlot } = turn;
    let adding: Promise<void> | undefined;
    const result = await storeStart(this.deps, request, {
      runId,
      idempotency,
      // The turn begins while the disk still writes; the caller hears about it afterwards.
      onCommit: (committed) => {
        if (committed.state !== 'started') return;
        adding = this.add(committed, turn);
        adding.catch(() => undefined);
      },
    }).catch((error) => {
      this.starting.delete(runId);
      this.lose(runId);
      throw error;
    });
    switch (result.state) {
      case 'started':
        await (adding ?? this.add(result, turn));
        return runId;
      case 'existing':
        // Another host was first.
        freeSlot();
        void account.settle();
        await this.deps.access.release(request);
        return result.runId;
      default:
        throw startErrors[result.state]();
    }
  }

  private async add({ run, canceled, next }: StartedRun, turn: NewTurn): Promise<void> {
    for (const { runId, hostId } of canceled) this.sendCancel(hostId, runId, 'interrupted');
    const progress = await readProgress(this.deps.store.runs, run);
    // The start has failed meanwhile.
    if (!this.starting.has(run.runId)) return;
    const added = this.createLiveTurn(run, { ...turn, progress });
    added.recorder.write(buildFirstFrame(run, progress));
    if (run.status === 'running' || this.starting.get(run.runId)) this.execute(added);
    if (next) this.startOrForward(next);
  }

  private createLiveTurn(run: Run, turn: NewTurn): LiveTurn {
    const { store, access, events, logger, settings } = this.deps;
    const live = new LiveRun(run, (frame) => this.feeds.send(run.runId, frame));
    const recorder = new RunRecorder({
      run,
      log: live.log,
      runs: store.runs,
      flushes: this.flushes,
      events,
      logger,
      storeWaitMs: settings.storeWaitMs,
      isResumable: settings.resumesTurns,
      isStoreLost: () => this.disconnected.areStopped,
      shutdown: this.shutdown.signal,
      takesNext: () => !this.isClosing,
      onLost: () => (created.isExecuting ? this.lose(run.runId) : void this.dropLost(run)),
      onCanceled: (reason) => this.cancel(run.runId, reason),
      onUnstored: (outcome) => live.settle(outcome),
      onFull: (error) => live.fail(error),
      onPromoted: (next) => this.startOrForward(next),
    });
    const created = { ...turn, live, recorder, isExecuting: false, isReplaced: false };
    this.liveTurns.set(run.runId, created);
    const announceCancel = () => live.cancelReason && this.feeds.announceEnd(run.runId);
    live.signal.addEventListener('abort', announceCancel, { once: true });
    access.watch(turn.request.caller, live, (error) => {
      live.cancel('aborted', error);
      this.execute(created);
    });
    return created;
  }

  /** Loads a run that another host has accepted; ends it if it cannot be executed any more. */
  private async restore(run: Run): Promise<LiveTurn | undefined> {
    const { store, holders } = this.deps;
    const request = fromStoredRequest(await store.runs.request(run));
    const session = await store.sessions.find(run);
    if (!session) return undefined;
    if (!request) return this.refuse(run, createNotStoredError());
    const admitted = await this.admitAgain(request).catch((error) => ({ error }));
    if ('error' in admitted) return this.refuse(run, admitted.error);
    const progress = await readProgress(store.runs, run);
    const frames = await store.runs.allFrames(run);
    const turn = this.createLiveTurn(run, {
      request: run.attempt > 1 ? withExpiryWarning(request) : request,
      session,
      account: admitted,
      freeSlot: this.slots.take(await holders.find(run.owner)),
      progress,
    });
    const { log } = turn.live;
    // Before any reader can find the run here.
    log.load(frames);
    if (log.lastSeq === 0) turn.recorder.write(buildFirstFrame(run, progress));
    return turn;
  }

  private async admitAgain(request: TurnRequest): Promise<TurnAccount> {
    await this.deps.access.assertKept(request.caller);
    return this.deps.gates.admit(toGateRequest(request, this.deps.models));
  }

  /** Ends a run that another host accepted and that cannot be executed. */
  private async refuse(run: Run, error: unknown): Promise<undefined> {
    const reason = error instanceof OracleError ? error : createNotStoredError();
    const ending = { owner: run.owner, runId: run.runId, ending: endUnanswered(run, reason) };
    const ended = await this.deps.store.runs.finish({ ...ending, takesNext: true });
    if (ended?.next) this.startOrForward(ended.next);
  }

  /** If a claim fails, the next pass over the runs of this host repeats it. */
  private startAssigned(run: Run): Promise<void> {
    if (run.startedAt !== undefined) return this.adopt(run);
    return this.claim(run).catch(() => undefined);
  }

  /** Executes a turn in the background. */
  private execute(turn: LiveTurn): void {
    if (turn.isExecuting) return;
    turn.isExecuting = true;
    this.pace.run(() => void this.run(turn));
  }

  private async run(turn: LiveTurn): Promise<void> {
    const { live, freeSlot } = turn;
    this.deps.changes.publish(live.run, 'turn_started');
    try {
      live.settle(await this.deps.runner.run(turn));
    } catch (err) {
      this.deps.logger.error({ err, runId: live.run.runId }, 'run ended without being stored');
      live.settle(createUnstoredOutcome());
    } finally {
      this.liveTurns.delete(live.run.runId);
      this.feeds.forget(live.run.runId);
      freeSlot();
      this.deps.changes.publish(live.run, 'turn_ended');
    }
  }

  /** Cancels a run of this host; a queued one ends at once. */
  cancel(runId: string, reason: CancelReason): void {
    const turn = this.liveTurns.get(runId);
    if (!turn) return;
    const error = reason === 'interrupted' ? new OracleError('turn_interrupted') : undefined;
    turn.live.cancel(reason, error);
    this.execute(turn);
  }

  private sendCancel(hostId: string | null | undefined, runId: string, reason: CancelReason): void {
    if (this.liveTurns.has(runId)) this.cancel(runId, reason);
    else if (hostId) this.deps.cluster.bus.send(hostId, 'run-canceled', { runId, reason });
  }
}
