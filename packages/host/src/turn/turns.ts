import type { GateRequest } from '@sibyl/plugin-kit';
import { type Multitask, OracleError } from '@sibyl/protocol';
import type { Logger } from 'pino';
import type { Models } from '../agent/model/models.js';
import type { EventBus } from '../events/event-bus.js';
import type { Run } from '../store/runs/run.js';
import type { Session } from '../store/sessions/session.js';
import type { SessionKey } from '../store/sessions/session-store.js';
import type { Store } from '../store/store.js';
import type { Gates } from './gates/gates.js';
import type { TurnAccount } from './gates/turn-account.js';
import { type IdempotencyClaim, IdempotentStarts } from './idempotent-starts.js';
import { Lane, type Slot } from './lane.js';
import { LiveRun } from './runs/live-run.js';
import { RunRecorder, unstored } from './runs/run-recorder.js';
import type { TurnRequest } from './turn-request.js';
import type { TurnRunner } from './turn-runner.js';

/** Turns that may wait behind the one at work in a session. */
const MAX_WAITING = 10;

interface TurnsParts {
  readonly store: Store;
  readonly gates: Gates;
  readonly runner: TurnRunner;
  readonly models: Models;
  readonly events: EventBus;
  readonly logger: Logger;
  /** Turns of one user at work or waiting, in all sessions together. */
  readonly maxPerUser: number;
  readonly storeWaitMs: number;
}

/** The turns this process carries out: one at a time in each session, in the order they came. */
export class Turns {
  readonly #parts: TurnsParts;
  readonly #lanes = new Map<string, Lane>();
  readonly #live = new Map<string, LiveRun>();
  readonly #idempotent: IdempotentStarts;
  readonly #turnsOf = new Map<string, number>();
  readonly #giveUp = new AbortController();
  #isClosing = false;

  constructor(parts: TurnsParts) {
    this.#parts = parts;
    this.#idempotent = new IdempotentStarts(parts.store.idempotency);
  }

  /** The run with this id, if this process carries it out for this owner. */
  live({ owner, runId }: { readonly owner: string; readonly runId: string }): LiveRun | undefined {
    const live = this.#live.get(runId);
    return live?.run.owner === owner ? live : undefined;
  }

  /** Stores the message and the run that will answer it, and returns the run's id. */
  async start(request: TurnRequest): Promise<string> {
    const { caller, sessionId, message } = request;
    this.#assertModel(message.model);
    // A foreign session must look unknown before anything of its lane can be noticed.
    const session = await this.#parts.store.sessions.get({ owner: caller.did, sessionId });
    return this.#idempotent.run(request, (claim) => this.#startNew(request, session, claim));
  }

  /**
   * Has the turn at work in a session end; false if there is none. Does not wait for it: the published client
   * fails on an answer that comes after the stream's own end.
   */
  abort({ owner, sessionId }: SessionKey): boolean {
    const live = this.#lanes.get(sessionId)?.atWork;
    if (live?.run.owner !== owner) return false;
    live.cut('aborted');
    return true;
  }

  /** Ends every turn of a session, those that wait included. */
  async interruptAll({ owner, sessionId }: SessionKey): Promise<void> {
    const lane = this.#lanes.get(sessionId);
    await lane?.lastStart;
    const runs = lane?.runs().filter(({ run }) => run.owner === owner) ?? [];
    for (const live of runs) live.cut('interrupted');
    await Promise.all(runs.map(({ outcome }) => outcome));
  }

  /** Takes no more turns, lets those at work finish, and cuts off what is left after `patienceMs`. */
  async close(patienceMs: number): Promise<void> {
    this.#isClosing = true;
    const impatience = setTimeout(() => {
      for (const live of this.#live.values()) live.cut('interrupted');
      this.#giveUp.abort();
    }, patienceMs);
    while (this.#lanes.size > 0) {
      const lanes = [...this.#lanes.values()];
      await Promise.all(lanes.map(({ lastStart }) => lastStart));
      await Promise.all(lanes.flatMap((lane) => lane.runs()).map(({ outcome }) => outcome));
      // Not at once: a run that is not stored yet has an outcome, and keeps its place.
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    clearTimeout(impatience);
  }

  /** Identities cost nothing, model calls do: each user has so many turns at once. */
  #assertTaking(owner: string): void {
    if (this.#isClosing) throw new OracleError('host_stopping', { retryAfterSeconds: 5 });
    if ((this.#turnsOf.get(owner) ?? 0) < this.#parts.maxPerUser) return;
    throw new OracleError('too_many_turns', { retryAfterSeconds: 5 });
  }

  #assertModel(id: string | undefined): void {
    if (id === undefined || this.#parts.models.find(id)) return;
    throw new OracleError('validation_failed', { message: [`model: unknown; see /models`] });
  }

  async #startNew(
    request: TurnRequest,
    session: Session,
    idempotency?: IdempotencyClaim,
  ): Promise<string> {
    const account = await this.#parts.gates.admit(this.#gateRequest(request));
    try {
      return await this.#takePlace(request, { session, idempotency, account });
    } catch (error) {
      void account.settle();
      throw error;
    }
  }

  #gateRequest({ caller, sessionId, requestId, message }: TurnRequest): GateRequest {
    const model = message.model ?? this.#parts.models.get('main').id;
    return { owner: caller.did, sessionId, requestId, model, length: message.message.length };
  }

  async #takePlace(request: TurnRequest, admitted: Admitted): Promise<string> {
    const { session } = admitted;
    const { multitask } = request.message;
    if (multitask === 'interrupt')
      await this.interruptAll({ owner: session.owner, sessionId: session.id });
    // From here to taking a place nothing may wait, or two requests would find the same room.
    this.#assertTaking(session.owner);
    const lane = this.#laneOf(session.id);
    assertRoom(lane, multitask);
    const slot = lane.take();
    const start = lane.lastStart.then(() => this.#store(request, { ...admitted, lane, slot }));
    lane.lastStart = start.catch(() => undefined);
    try {
      return await start;
    } catch (error) {
      this.#leave(session.id, lane, slot);
      throw error;
    }
  }

  async #store(request: TurnRequest, place: Place): Promise<string> {
    const { lane, slot, session, idempotency, account } = place;
    const { requestId, message } = request;
    const { message: content, attachments, metadata } = message;
    const result = await this.#parts.store.runs.start({
      owner: session.owner,
      sessionId: session.id,
      requestId,
      status: lane.isFirst(slot) ? 'running' : 'queued',
      message: { content, attachments, metadata },
      idempotency,
    });
    switch (result.state) {
      case 'started':
        this.#enter(new LiveRun(result.run), request, place);
        return result.run.id;
      case 'existing':
        // Another process was first.
        this.#leave(session.id, lane, slot);
        void account.settle();
        return result.runId;
      case 'conflict':
        throw new OracleError('idempotency_conflict');
      case 'unknown-session':
        throw new OracleError('session_not_found');
      default:
        return result satisfies never;
    }
  }

  #enter(live: LiveRun, request: TurnRequest, { lane, slot, session, account }: Place): void {
    const { store, events, logger, storeWaitMs } = this.#parts;
    const { run, log } = live;
    const recorder = new RunRecorder({
      run,
      log,
      runs: store.runs,
      events,
      logger,
      storeWaitMs,
      giveUp: this.#giveUp.signal,
      onLost: () => live.cut('interrupted'),
      onUnstored: (outcome) => live.settle(outcome),
    });
    const { id: runId, sessionId, requestId } = run;
    recorder.write({ event: 'run', data: { runId, sessionId, requestId } });
    this.#live.set(runId, live);
    this.#turnsOf.set(run.owner, (this.#turnsOf.get(run.owner) ?? 0) + 1);
    slot.live = live;
    slot.work = () => this.#parts.runner.run({ live, recorder, request, session, account });
    this.#advance(session.id, lane);
  }

  /** Sets the first run of a lane to work, unless it is at work already. */
  #advance(sessionId: string, lane: Lane): void {
    const slot = lane.nextToWork();
    if (!slot) return;
    void this.#work(slot).finally(() => this.#leave(sessionId, lane, slot));
  }

  async #work({ live, work }: Slot): Promise<void> {
    if (!live || !work) return;
    try {
      live.settle(await work());
    } catch (err) {
      this.#parts.logger.error({ err, runId: live.run.id }, 'run ended without being stored');
      const refusal = unstored();
      const fault = { kind: 'server', message: refusal.message, refusal } as const;
      live.settle({ status: 'failed', messageId: undefined, text: '', fault });
    } finally {
      this.#forget(live.run);
    }
  }

  #forget({ id, owner }: Run): void {
    this.#live.delete(id);
    const left = (this.#turnsOf.get(owner) ?? 1) - 1;
    if (left > 0) this.#turnsOf.set(owner, left);
    else this.#turnsOf.delete(owner);
  }

  #leave(sessionId: string, lane: Lane, slot: Slot): void {
    lane.leave(slot);
    if (lane.isFree && this.#lanes.get(sessionId) === lane) this.#lanes.delete(sessionId);
    else this.#advance(sessionId, lane);
  }

  #laneOf(sessionId: string): Lane {
    const lane = this.#lanes.get(sessionId) ?? new Lane();
    this.#lanes.set(sessionId, lane);
    return lane;
  }
}

function assertRoom(lane: Lane, multitask: Multitask): void {
  if (multitask === 'reject' && !lane.isFree) throw new OracleError('turn_running');
  if (lane.waiting >= MAX_WAITING) throw new OracleError('queue_full');
}

/** A turn that the gates have let in. */
interface Admitted {
  readonly session: Session;
  readonly idempotency: IdempotencyClaim | undefined;
  readonly account: TurnAccount;
}

interface Place extends Admitted {
  readonly lane: Lane;
  readonly slot: Slot;
}
