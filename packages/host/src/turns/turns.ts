import { createHash } from 'node:crypto';
import type { GateRequest } from '@sibyl/plugin-kit';
import { type Multitask, OracleError } from '@sibyl/protocol';
import type { Logger } from 'pino';
import type { EventBus } from '../bus/event-bus.js';
import type { Config } from '../config/config.js';
import type { Models } from '../models/models.js';
import type { IdempotencyStore } from '../store/idempotency-store.js';
import type { Session, SessionKey } from '../store/session-store.js';
import type { Store } from '../store/store.js';
import type { Gates, TurnAccount } from './gates.js';
import { settlesWithin } from './hooks.js';
import { LiveRun } from './run-log.js';
import { RunRecorder, unstored } from './run-recorder.js';
import type { TurnRunner } from './run-turn.js';
import { Lane, type Slot } from './session-queue.js';
import { hostStopping, type TurnPlace, TurnPlaces, tooManyTurns } from './turn-limits.js';
import type { TurnRequest } from './turn-request.js';

/** Turns that may wait behind the one at work in a session. */
const MAX_WAITING = 10;

interface TurnsParts {
  readonly store: Store;
  readonly gates: Gates;
  readonly runner: TurnRunner;
  readonly models: Models;
  readonly events: EventBus;
  readonly logger: Logger;
  readonly settings: Pick<Config['turns'], 'maxPerUser' | 'max' | 'storeWaitMs'>;
}

/** The turns this process carries out: one at a time in each session, in the order they came. */
export class Turns {
  private readonly parts: TurnsParts;
  private readonly lanes = new Map<string, Lane>();
  readonly #live = new Map<string, LiveRun>();
  private readonly idempotent: IdempotentStarts;
  private readonly places: TurnPlaces;
  private readonly giveUp = new AbortController();
  private isClosing = false;

  constructor(parts: TurnsParts) {
    this.parts = parts;
    this.idempotent = new IdempotentStarts(parts.store.idempotency);
    this.places = new TurnPlaces(parts.settings);
  }

  /** The run with this id, if this process carries it out for this owner. */
  live({ owner, runId }: { readonly owner: string; readonly runId: string }): LiveRun | undefined {
    const live = this.#live.get(runId);
    return live?.run.owner === owner ? live : undefined;
  }

  /** Stores the message and the run that will answer it, and returns the run's id. */
  async start(request: TurnRequest): Promise<string> {
    const { caller, sessionId, message } = request;
    this.assertModel(message.model);
    // A foreign session must look unknown before anything of its lane can be noticed.
    const session = await this.parts.store.sessions.get({ owner: caller.did, sessionId });
    return this.idempotent.run(request, (claim) => this.startNew(request, session, claim));
  }

  /**
   * Has the turn at work in a session end; false if there is none. Does not wait for it: the published client
   * fails on an answer that comes after the stream's own end.
   */
  abort({ owner, sessionId }: SessionKey): boolean {
    const live = this.lanes.get(sessionId)?.atWork;
    if (live?.run.owner !== owner) return false;
    live.cut('aborted');
    return true;
  }

  /** Ends every turn of a session, those that wait included. */
  async interruptAll({ owner, sessionId }: SessionKey): Promise<void> {
    const lane = this.lanes.get(sessionId);
    await lane?.lastStart;
    const runs = lane?.runs().filter(({ run }) => run.owner === owner) ?? [];
    for (const live of runs) live.cut('interrupted', new OracleError('turn_interrupted'));
    await Promise.all(runs.map(({ outcome }) => outcome));
  }

  /**
   * Takes no more turns, lets running ones finish, and cuts off what is left after `patienceMs`. False if
   * some have not ended after `limitMs` even so, such as while the store does not answer.
   */
  async close(patienceMs: number, limitMs: number): Promise<boolean> {
    this.isClosing = true;
    const impatience = setTimeout(() => {
      for (const live of this.#live.values()) live.cut('interrupted', hostStopping());
      this.giveUp.abort();
    }, patienceMs);
    const hasEnded = await settlesWithin(limitMs, this.untilIdle());
    clearTimeout(impatience);
    const runs = [...this.#live.keys()];
    if (!hasEnded) this.parts.logger.error({ runs }, 'turns did not end; closing without them');
    return hasEnded;
  }

  private async untilIdle(): Promise<void> {
    while (this.lanes.size > 0) {
      const lanes = [...this.lanes.values()];
      await Promise.all(lanes.map(({ lastStart }) => lastStart));
      await Promise.all(lanes.flatMap((lane) => lane.runs()).map(({ outcome }) => outcome));
      // Not at once: a run that is not stored yet has an outcome, and keeps its place.
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }

  private assertOpen(): void {
    if (this.isClosing) throw hostStopping();
  }

  private assertModel(id: string | undefined): void {
    if (id === undefined || this.parts.models.find(id)) return;
    throw new OracleError('validation_failed', { message: [`model: unknown; see /models`] });
  }

  private async startNew(
    request: TurnRequest,
    session: Session,
    idempotency?: IdempotencyClaim,
  ): Promise<string> {
    this.assertOpen();
    // A message that interrupts others gets the place of one of them, once the gates have let it in.
    const waits = request.message.multitask === 'interrupt' && this.lanes.has(session.id);
    const place = waits ? undefined : this.places.take(session.owner);
    try {
      return await this.admit(request, { session, idempotency, place });
    } catch (error) {
      place?.release();
      throw error;
    }
  }

  private async admit(request: TurnRequest, wanted: Wanted): Promise<string> {
    const account = await this.parts.gates.admit(this.gateRequest(request));
    try {
      return await this.enterLane(request, { ...wanted, account });
    } catch (error) {
      void account.settle();
      throw error;
    }
  }

  private gateRequest({ caller, sessionId, requestId, message }: TurnRequest): GateRequest {
    const model = message.model ?? this.parts.models.get('main').id;
    return { owner: caller.did, sessionId, requestId, model, length: message.message.length };
  }

  private async enterLane(request: TurnRequest, admitted: Admitted): Promise<string> {
    const { session } = admitted;
    const { multitask } = request.message;
    this.assertOpen();
    // Before anything is interrupted: a message that is refused must leave the running turn alone.
    const place =
      admitted.place ??
      this.lanes.get(session.id)?.handOverPlace() ??
      this.places.take(session.owner);
    try {
      if (multitask === 'interrupt')
        await this.interruptAll({ owner: session.owner, sessionId: session.id });
      // From here to taking a slot nothing may wait, or two requests would find the same room.
      this.assertOpen();
      const lane = this.laneOf(session.id);
      assertRoom(lane, multitask);
      return await this.takeSlot(request, { ...admitted, place, lane });
    } catch (error) {
      place.release();
      throw error;
    }
  }

  private async takeSlot(request: TurnRequest, placed: Omit<Started, 'slot'>): Promise<string> {
    const { lane, session } = placed;
    const slot = lane.take();
    const start = lane.lastStart.then(() => this.store(request, { ...placed, slot }));
    lane.lastStart = start.catch(() => undefined);
    try {
      return await start;
    } catch (error) {
      this.leave(session.id, lane, slot);
      throw error;
    }
  }

  private async store(request: TurnRequest, started: Started): Promise<string> {
    const { lane, slot, session, idempotency, account } = started;
    const { requestId, message } = request;
    const { message: content, attachments, metadata } = message;
    const result = await this.parts.store.runs.start({
      owner: session.owner,
      sessionId: session.id,
      requestId,
      status: lane.isFirst(slot) ? 'running' : 'queued',
      message: { content, attachments, metadata },
      maxLive: this.parts.settings.maxPerUser,
      idempotency,
    });
    switch (result.state) {
      case 'started':
        this.enter(new LiveRun(result.run), request, started);
        return result.run.id;
      case 'existing':
        // Another process was first.
        this.leave(session.id, lane, slot);
        started.place.release();
        void account.settle();
        return result.runId;
      case 'conflict':
        throw new OracleError('idempotency_conflict');
      case 'too-many':
        // On all hosts together: on this one there was a place.
        throw tooManyTurns();
      case 'unknown-session':
        throw new OracleError('session_not_found');
      default:
        return result satisfies never;
    }
  }

  private enter(live: LiveRun, request: TurnRequest, started: Started): void {
    const { lane, slot, session, account, place } = started;
    const { store, events, logger, settings } = this.parts;
    const { run, log } = live;
    const recorder = new RunRecorder({
      run,
      log,
      runs: store.runs,
      events,
      logger,
      storeWaitMs: settings.storeWaitMs,
      giveUp: this.giveUp.signal,
      onLost: () => live.cut('interrupted'),
      onUnstored: (outcome) => live.settle(outcome),
      onFull: (error) => live.fail(error),
    });
    const { id: runId, sessionId, requestId } = run;
    recorder.write({ event: 'run', data: { runId, sessionId, requestId } });
    this.#live.set(runId, live);
    slot.live = live;
    slot.place = place;
    slot.work = () => this.parts.runner.run({ live, recorder, request, session, account });
    this.advance(session.id, lane);
  }

  /** Sets the first run of a lane to work, unless it is at work already. */
  private advance(sessionId: string, lane: Lane): void {
    const slot = lane.nextToWork();
    if (!slot) return;
    void this.work(slot).finally(() => this.leave(sessionId, lane, slot));
  }

  private async work(slot: Slot): Promise<void> {
    const { live, work } = slot;
    if (!live || !work) return;
    try {
      live.settle(await work());
    } catch (err) {
      this.parts.logger.error({ err, runId: live.run.id }, 'run ended without being stored');
      const outcome = { status: 'failed', messageId: undefined, text: '', warnings: [] } as const;
      live.settle({ ...outcome, error: unstored() });
    } finally {
      this.#live.delete(live.run.id);
      slot.place?.release();
      slot.place = undefined;
    }
  }

  private leave(sessionId: string, lane: Lane, slot: Slot): void {
    lane.leave(slot);
    if (lane.isFree && this.lanes.get(sessionId) === lane) this.lanes.delete(sessionId);
    else this.advance(sessionId, lane);
  }

  private laneOf(sessionId: string): Lane {
    const lane = this.lanes.get(sessionId) ?? new Lane();
    this.lanes.set(sessionId, lane);
    return lane;
  }
}

function assertRoom(lane: Lane, multitask: Multitask): void {
  if (multitask === 'reject' && !lane.isFree) throw new OracleError('turn_running');
  if (lane.waiting >= MAX_WAITING) throw new OracleError('queue_full');
}

/** A turn that is to start. */
interface Wanted {
  readonly session: Session;
  readonly idempotency: IdempotencyClaim | undefined;
  /** Not yet there for a message that interrupts others. */
  readonly place: TurnPlace | undefined;
}

/** A turn that the gates have let in. */
interface Admitted extends Wanted {
  readonly account: TurnAccount;
}

/** A turn that has its slot in the session. */
interface Started extends Admitted {
  readonly place: TurnPlace;
  readonly lane: Lane;
  readonly slot: Slot;
}

/** A key as it is claimed with the run it starts. */
export interface IdempotencyClaim {
  readonly key: string;
  readonly bodyHash: string;
  readonly expiresAt: number;
}

/** Starts a run under a claim, or without one, and returns its id. */
type Start = (claim?: IdempotencyClaim) => Promise<string>;

const KEPT_MS = 24 * 60 * 60 * 1000;

/** Lets requests that carry the same `Idempotency-Key` start one run between them. */
export class IdempotentStarts {
  private readonly store: IdempotencyStore;
  private readonly underWay = new Map<string, Promise<string>>();

  constructor(store: IdempotencyStore) {
    this.store = store;
  }

  /** The id of the run the first request with this key started; without a key, of a new run. */
  async run(request: TurnRequest, start: Start): Promise<string> {
    const { idempotencyKey: key, caller } = request;
    if (key === undefined) return start();
    const claim = { key, bodyHash: hashOf(request), expiresAt: Date.now() + KEPT_MS };
    // Requests that arrive together share one start, whatever `multitask` says.
    const flight = JSON.stringify([caller.did, key, claim.bodyHash]);
    const shared = this.underWay.get(flight) ?? this.find(caller.did, claim, start);
    this.underWay.set(flight, shared);
    return shared.finally(() => this.underWay.delete(flight));
  }

  private async find(owner: string, claim: IdempotencyClaim, start: Start): Promise<string> {
    const known = await this.store.find({ owner, key: claim.key });
    if (known === undefined) return start(claim);
    if (known.bodyHash !== claim.bodyHash) throw new OracleError('idempotency_conflict');
    return known.runId;
  }
}

/** Of all that makes one request the same as another. */
function hashOf({ sessionId, message }: TurnRequest): string {
  return createHash('sha256')
    .update(JSON.stringify([sessionId, message]))
    .digest('base64');
}
