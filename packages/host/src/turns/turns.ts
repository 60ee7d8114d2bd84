import { createHash } from 'node:crypto';
import type { GateRequest } from '@sibyl/plugin-kit';
import { type Multitask, OracleError } from '@sibyl/protocol';
import { settlesWithin } from '@sibyl/server-kit';
import type { Logger } from 'pino';
import type { EventBus, SessionKey } from '../bus/event-bus.js';
import type { Config } from '../config/config.js';
import type { Models } from '../models/models.js';
import type { IdempotencyStore } from '../store/idempotency-store.js';
import type { Session } from '../store/session-store.js';
import type { Store } from '../store/store.js';
import type { Gates, TurnAccount } from './gates.js';
import { LiveRun } from './run-log.js';
import { createNotStoredError, RunRecorder } from './run-recorder.js';
import type { TurnRunner } from './run-turn.js';
import { type QueuedTurn, SessionQueue } from './session-queue.js';
import { hostStopping, type TurnSlot, TurnSlots, tooManyTurns } from './turn-limits.js';
import type { TurnRequest } from './turn-request.js';

/** Turns of one session that may wait behind the running one. */
const MAX_WAITING = 10;

interface TurnsDeps {
  readonly store: Store;
  readonly gates: Gates;
  readonly runner: TurnRunner;
  readonly models: Models;
  readonly events: EventBus;
  readonly logger: Logger;
  readonly settings: Pick<Config['turns'], 'maxPerUser' | 'max' | 'storeWaitMs'>;
}

/** Runs turns in this process: one at a time per session, in the order of their messages. */
export class Turns {
  private readonly queues = new Map<string, SessionQueue>();
  private readonly liveRuns = new Map<string, LiveRun>();
  private readonly idempotent: IdempotentStarts;
  private readonly slots: TurnSlots;
  private readonly shutdown = new AbortController();
  private isClosing = false;

  constructor(private readonly deps: TurnsDeps) {
    this.idempotent = new IdempotentStarts(deps.store.idempotency);
    this.slots = new TurnSlots(deps.settings);
  }

  /** Returns the run with this id if this process executes it for this owner. */
  findLive({
    owner,
    runId,
  }: {
    readonly owner: string;
    readonly runId: string;
  }): LiveRun | undefined {
    const live = this.liveRuns.get(runId);
    return live?.run.owner === owner ? live : undefined;
  }

  /** Stores the message and the run that will answer it, and returns the run's id. */
  async start(request: TurnRequest): Promise<string> {
    const { caller, sessionId, message } = request;
    this.assertModelExists(message.model);
    // A session of another user must look unknown before the state of its queue can show.
    const session = await this.deps.store.sessions.get({ owner: caller.did, sessionId });
    return this.idempotent.run(request, (claim) => this.startNew(request, session, claim));
  }

  /**
   * Cancels the running turn of a session; returns false if there is none. Does not wait for its end: the published
   * client fails on a reply that arrives after the end of the stream.
   */
  abort({ owner, sessionId }: SessionKey): boolean {
    const live = this.queues.get(sessionId)?.current;
    if (live?.run.owner !== owner) return false;
    live.cancel('aborted');
    return true;
  }

  /** Cancels every turn of a session, including those that wait, and waits until they have ended. */
  async interruptAll({ owner, sessionId }: SessionKey): Promise<void> {
    const queue = this.queues.get(sessionId);
    await queue?.lastStart;
    const runs = queue?.liveRuns().filter(({ run }) => run.owner === owner) ?? [];
    for (const live of runs) live.cancel('interrupted', new OracleError('turn_interrupted'));
    await Promise.all(runs.map(({ outcome }) => outcome));
  }

  /**
   * Accepts no more turns, lets running ones finish, and cancels the rest after `graceMs`. Returns false if
   * some have not ended after `timeoutMs`, for example because the store does not answer.
   */
  async close(graceMs: number, timeoutMs: number): Promise<boolean> {
    this.isClosing = true;
    const timer = setTimeout(() => {
      for (const live of this.liveRuns.values()) live.cancel('interrupted', hostStopping());
      this.shutdown.abort();
    }, graceMs);
    const hasEnded = await settlesWithin(timeoutMs, this.waitUntilIdle());
    clearTimeout(timer);
    const runs = [...this.liveRuns.keys()];
    if (!hasEnded) this.deps.logger.error({ runs }, 'turns did not end; closing without them');
    return hasEnded;
  }

  private async waitUntilIdle(): Promise<void> {
    while (this.queues.size > 0) {
      const queues = [...this.queues.values()];
      await Promise.all(queues.map(({ lastStart }) => lastStart));
      await Promise.all(queues.flatMap((queue) => queue.liveRuns()).map(({ outcome }) => outcome));
      // Not immediately: a run that is not stored yet has an outcome but stays in its queue.
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }

  private assertOpen(): void {
    if (this.isClosing) throw hostStopping();
  }

  private assertModelExists(id: string | undefined): void {
    if (id === undefined || this.deps.models.find(id)) return;
    throw new OracleError('validation_failed', { message: [`model: unknown; see /models`] });
  }

  private async startNew(
    request: TurnRequest,
    session: Session,
    idempotency?: IdempotencyClaim,
  ): Promise<string> {
    this.assertOpen();
    // A message that interrupts others receives the slot of one of them after the gates have admitted it.
    const waits = request.message.multitask === 'interrupt' && this.queues.has(session.id);
    const slot = waits ? undefined : this.slots.acquire(session.owner);
    try {
      return await this.admit({ request, session, idempotency, slot });
    } catch (error) {
      slot?.release();
      throw error;
    }
  }

  private async admit(turn: NewTurn): Promise<string> {
    const account = await this.deps.gates.admit(this.toGateRequest(turn.request));
    try {
      return await this.enqueue({ ...turn, account });
    } catch (error) {
      void account.settle();
      throw error;
    }
  }

  private toGateRequest({ caller, sessionId, requestId, message }: TurnRequest): GateRequest {
    const model = message.model ?? this.deps.models.get('main').id;
    return { owner: caller.did, sessionId, requestId, model, length: message.message.length };
  }

  private async enqueue(turn: AdmittedTurn): Promise<string> {
    const { session, request } = turn;
    const { multitask } = request.message;
    this.assertOpen();
    // Before anything is interrupted: a rejected message must not affect the running turn.
    const slot =
      turn.slot ?? this.queues.get(session.id)?.transferSlot() ?? this.slots.acquire(session.owner);
    try {
      if (multitask === 'interrupt')
        await this.interruptAll({ owner: session.owner, sessionId: session.id });
      // No await between this check and adding the turn, or two requests could take the last position.
      this.assertOpen();
      const queue = this.getQueue(session.id);
      assertQueueHasRoom(queue, multitask);
      return await this.startInOrder({ ...turn, slot, queue });
    } catch (error) {
      slot.release();
      throw error;
    }
  }

  private async startInOrder(turn: Omit<StartingTurn, 'queued'>): Promise<string> {
    const { queue, session } = turn;
    const queued = queue.add();
    const start = queue.lastStart.then(() => this.storeRun({ ...turn, queued }));
    queue.lastStart = start.catch(() => undefined);
    try {
      return await start;
    } catch (error) {
      this.remove(session.id, queue, queued);
      throw error;
    }
  }

  private async storeRun(turn: StartingTurn): Promise<string> {
    const { request, queue, queued, session, idempotency, account } = turn;
    const { message: content, attachments, metadata } = request.message;
    const result = await this.deps.store.runs.start({
      owner: session.owner,
      sessionId: session.id,
      requestId: request.requestId,
      status: queue.isFirst(queued) ? 'running' : 'queued',
      message: { content, attachments, metadata },
      maxLive: this.deps.settings.maxPerUser,
      idempotency,
    });
    switch (result.state) {
      case 'started':
        this.addLiveRun(new LiveRun(result.run), turn);
        return result.run.id;
      case 'existing':
        // Another process was first.
        this.remove(session.id, queue, queued);
        turn.slot.release();
        void account.settle();
        return result.runId;
      case 'conflict':
        throw new OracleError('idempotency_conflict');
      case 'too-many':
        // The limit counts the turns of all hosts; this host had a free slot.
        throw tooManyTurns();
      case 'unknown-session':
        throw new OracleError('session_not_found');
      default:
        return result satisfies never;
    }
  }

  private addLiveRun(live: LiveRun, turn: StartingTurn): void {
    const { request, queue, queued, session, account, slot } = turn;
    const { store, events, logger, settings } = this.deps;
    const { run, log } = live;
    const recorder = new RunRecorder({
      run,
      log,
      runs: store.runs,
      events,
      logger,
      storeWaitMs: settings.storeWaitMs,
      shutdown: this.shutdown.signal,
      onLost: () => live.cancel('interrupted'),
      onUnstored: (outcome) => live.settle(outcome),
      onFull: (error) => live.fail(error),
    });
    const { id: runId, sessionId, requestId } = run;
    recorder.write({ event: 'run', data: { runId, sessionId, requestId } });
    this.liveRuns.set(runId, live);
    queued.liveRun = live;
    queued.slot = slot;
    queued.execute = () => this.deps.runner.run({ live, recorder, request, session, account });
    this.startNext(session.id, queue);
  }

  /** Starts the first turn of a queue unless it is running. */
  private startNext(sessionId: string, queue: SessionQueue): void {
    const turn = queue.startNext();
    if (!turn) return;
    void this.execute(turn).finally(() => this.remove(sessionId, queue, turn));
  }

  private async execute(turn: QueuedTurn): Promise<void> {
    const { liveRun, execute } = turn;
    if (!liveRun || !execute) return;
    try {
      liveRun.settle(await execute());
    } catch (err) {
      this.deps.logger.error({ err, runId: liveRun.run.id }, 'run ended without being stored');
      const outcome = { status: 'failed', messageId: undefined, text: '', warnings: [] } as const;
      liveRun.settle({ ...outcome, error: createNotStoredError() });
    } finally {
      this.liveRuns.delete(liveRun.run.id);
      turn.slot?.release();
      turn.slot = undefined;
    }
  }

  private remove(sessionId: string, queue: SessionQueue, turn: QueuedTurn): void {
    queue.remove(turn);
    if (queue.isEmpty && this.queues.get(sessionId) === queue) this.queues.delete(sessionId);
    else this.startNext(sessionId, queue);
  }

  private getQueue(sessionId: string): SessionQueue {
    const queue = this.queues.get(sessionId) ?? new SessionQueue();
    this.queues.set(sessionId, queue);
    return queue;
  }
}

function assertQueueHasRoom(queue: SessionQueue, multitask: Multitask): void {
  if (multitask === 'reject' && !queue.isEmpty) throw new OracleError('turn_running');
  if (queue.waitingCount >= MAX_WAITING) throw new OracleError('queue_full');
}

/** A turn before its gates have decided. */
interface NewTurn {
  readonly request: TurnRequest;
  readonly session: Session;
  readonly idempotency: IdempotencyClaim | undefined;
  /** A message that interrupts others receives its slot later. */
  readonly slot: TurnSlot | undefined;
}

/** A turn that the gates have admitted. */
interface AdmittedTurn extends NewTurn {
  readonly account: TurnAccount;
}

/** A turn that has its position in the queue of the session. */
interface StartingTurn extends AdmittedTurn {
  readonly slot: TurnSlot;
  readonly queue: SessionQueue;
  readonly queued: QueuedTurn;
}

/** An idempotency key, stored with the run that it starts. */
export interface IdempotencyClaim {
  readonly key: string;
  readonly bodyHash: string;
  readonly expiresAt: number;
}

/** Starts a run and returns its id. */
type Start = (claim?: IdempotencyClaim) => Promise<string>;

const IDEMPOTENCY_TTL_MS = 24 * 60 * 60 * 1000;

/** Makes requests with the same `Idempotency-Key` share one run. */
export class IdempotentStarts {
  private readonly store: IdempotencyStore;
  private readonly inProgress = new Map<string, Promise<string>>();

  constructor(store: IdempotencyStore) {
    this.store = store;
  }

  /** Returns the id of the run that the first request with this key started, or of a new run if there is no key. */
  async run(request: TurnRequest, start: Start): Promise<string> {
    const { idempotencyKey: key, caller } = request;
    if (key === undefined) return start();
    const claim = {
      key,
      bodyHash: hashRequest(request),
      expiresAt: Date.now() + IDEMPOTENCY_TTL_MS,
    };
    // Concurrent requests share one start regardless of `multitask`.
    const flight = JSON.stringify([caller.did, key, claim.bodyHash]);
    const shared = this.inProgress.get(flight) ?? this.find(caller.did, claim, start);
    this.inProgress.set(flight, shared);
    return shared.finally(() => this.inProgress.delete(flight));
  }

  private async find(owner: string, claim: IdempotencyClaim, start: Start): Promise<string> {
    const known = await this.store.find({ owner, key: claim.key });
    if (known === undefined) return start(claim);
    if (known.bodyHash !== claim.bodyHash) throw new OracleError('idempotency_conflict');
    return known.runId;
  }
}

/** Two requests are the same if these fields are. */
function hashRequest({ sessionId, message }: TurnRequest): string {
  return createHash('sha256')
    .update(JSON.stringify([sessionId, message]))
    .digest('base64');
}
