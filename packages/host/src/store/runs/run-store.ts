import { errorCatalog, type Multitask } from '@sibyl/protocol';
import { type Kysely, sql } from 'kysely';
import type { SessionKey } from '../../bus/event-bus.js';
import { closeGap, type PathKey, type TurnOrigin } from '../branches.js';
import { prepareQuery, type StoreContext } from '../database.js';
import type { Vault } from '../encryption.js';
import { claimKey, findLatestAttempt, isUnanswered } from '../idempotency-store.js';
import { type MessageBody, type OpenedTurn, openTurn } from '../message-store.js';
import { pruneFrames } from '../own-data/expired-rows.js';
import type { Schema } from '../schema/index.js';
import { interrupts } from '../schema/interrupts.js';
import {
  type CancelReason,
  isActive,
  isOpen,
  type RunKey,
  type RunRow,
  runs,
} from '../schema/runs.js';
import { StoreError } from '../store-errors.js';
import { insertClientIds } from '../thread-store.js';
import {
  type FlushResult,
  type Frame,
  flushRuns,
  insertFrames,
  type RunWrites,
  readFramePage,
  type UnsealedWrites,
} from './frames.js';
import {
  type AnswerResult,
  type Canceled,
  cancelPausedRun,
  cancelRun,
  endInterrupt,
  findInterrupt,
  type Interrupt,
  type Pause,
  type PauseResult,
  pauseRun,
  selectAnswers,
  selectAsking,
  selectExpired,
  selectPausedRuns,
  toNextAttempt,
  type UnsealedEnd,
} from './pauses.js';
import {
  claimRun,
  type EndedRun,
  findRun,
  finishRun,
  insertRun,
  lockSession,
  promoteNext,
  RUN_COLUMNS,
  type Run,
  type RunEnd,
  toRun,
  unstartRun,
} from './run.js';

/** More turns than a user queues. */
const RUNS_PER_LIST = 100;

/** Runs that one pass over the runs of a dead host takes. */
const RUNS_PER_PASS = 500;

interface RunStoreHost {
  readonly hostId: string;
  /** While it returns false, other hosts may take over the runs of this one, which then writes nothing for them. */
  readonly isAlive?: (() => boolean) | undefined;
}

/** Running, queued, paused and past attempts of turns with their logs. */
export class RunStore {
  /** Every write for a live run is fenced by it. */
  readonly hostId: string;
  private readonly context: StoreContext;
  private readonly vault: Vault;
  private readonly isAlive: () => boolean;

  constructor(context: StoreContext, vault: Vault, { hostId, isAlive = () => true }: RunStoreHost) {
    this.context = context;
    this.vault = vault;
    this.hostId = hostId;
    this.isAlive = isAlive;
  }

  /** See `Database`. */
  estimateDelay(): number {
    return this.context.database.estimateDelay();
  }

  /** See `Database`. */
  isStoring(ms: number): boolean {
    return this.context.database.isStoring(ms);
  }

  newId(): string {
    return this.context.newId();
  }

  /** By the clock of the database. */
  now(): number {
    return this.context.clock();
  }

  /** Stores key, user message and the run that answers it in one unit of work, or nothing. */
  async start(request: Omit<NewRun, 'seal'> & { readonly request: unknown }): Promise<StartResult> {
    this.assertAlive();
    await this.context.disk?.assertRoom();
    const { request: body, onCommit, ...run } = request;
    const { context, hostId } = this;
    const seal = () => this.seal('request', run.owner, body);
    try {
      return await context.database.writeFor(
        run.owner,
        (tables) => insertStart(tables, { ...run, seal }, { ...context, hostId }),
        { onCommit },
      );
    } catch (error) {
      if (error instanceof RefusedStart) return { state: error.state };
      throw error;
    }
  }

  /** Takes back a message that waits. */
  withdraw(key: RunKey): Promise<WithdrawResult> {
    return this.context.database.writeFor(key.owner, (tables) =>
      withdrawRun(tables, key, this.context),
    );
  }

  /** Stores what this host's runs wrote since the last flush, in one unit of work. */
  async flush(writes: readonly UnsealedWrites[]): Promise<FlushResult> {
    this.assertAlive();
    const { database, clock } = this.context;
    const sealed = writes.map((each) => ({ ...each, steps: this.sealSteps(each) }));
    return flushRuns(database, sealed, { hostId: this.hostId, now: clock() });
  }

  /**
   * Stores the outcome and the answer, both or neither, and promotes the next run of the session; undefined if the run
   * has ended already or another host has it.
   */
  async finish({
    takesNext,
    ...request
  }: RunKey & { readonly end: RunEnd; readonly takesNext: boolean }): Promise<
    EndedRun | undefined
  > {
    this.assertAlive();
    const host = { hostId: this.hostId, next: takesNext ? this.hostId : undefined };
    return this.context.database.write(
      (tables) => finishRun(tables, { ...request, host }, this.context),
      { isFirst: true },
    );
  }

  /** Pauses a run until its interrupts have ended. */
  async pause({
    steps,
    ...pause
  }: Pause & RunKey & Pick<UnsealedWrites, 'steps'>): Promise<PauseResult> {
    this.assertAlive();
    const { owner } = pause;
    const request = {
      ...pause,
      hostId: this.hostId,
      steps: this.sealSteps({ owner, steps }),
      seal: (kind: SealedKind, value: unknown) => this.seal(kind, owner, value),
    };
    // The limit counts rows that must not change until it is committed.
    return this.context.database.writeFor(
      owner,
      (tables) => pauseRun(tables, request, this.context),
      { isFirst: true },
    );
  }

  /** Ends an interrupt; the last one of its run starts the next attempt on this host. */
  async endInterrupt({ value, request, ...end }: UnsealedEnd): Promise<AnswerResult> {
    this.assertAlive();
    const seal = (kind: SealedKind, content: unknown) =>
      content === undefined ? null : this.seal(kind, end.owner, content);
    const sealed = { answer: seal('answer', value), request: seal('request', request) };
    return this.context.database.writeFor(end.owner, (tables) =>
      endInterrupt(tables, { ...end, ...sealed, hostId: this.hostId }, this.context),
    );
  }

  async findInterrupt(key: { readonly owner: string; readonly interruptId: string }) {
    const row = await findInterrupt(this.context.database.tables, key);
    return row && this.toInterrupt(row);
  }

  /** The interrupts of a turn, oldest first. */
  async interrupts(turn: SessionKey & { readonly turn: number }): Promise<readonly Interrupt[]> {
    const { rows } = await selectAnswers(this.context.database.tables, turn);
    return rows.map((row) => this.toInterrupt(row));
  }

  async askingSessions(owner: string): Promise<ReadonlySet<string>> {
    const { rows } = await selectAsking(this.context.database.tables, { owner });
    return new Set(rows.map((row) => row.session_id));
  }

  /** Interrupts that expired without an answer. */
  async expiredInterrupts(): Promise<readonly { owner: string; interruptId: string }[]> {
    const { database, clock } = this.context;
    const rows = await selectExpired(database.tables, database.engine, clock());
    return rows.map(({ owner, id }) => ({ owner, interruptId: id }));
  }

  findPaused(keys: readonly RunKey[]): Promise<readonly RunKey[]> {
    return selectPausedRuns(this.context.database.tables, keys);
  }

  /** Cancels a run: ends a paused one, marks a running one; nothing if it is neither. */
  cancel(key: RunKey, reason: CancelReason): Promise<Canceled> {
    const { context, hostId } = this;
    return context.database.write(
      (tables) => cancelRun(tables, key, { ...context, hostId, reason }),
      { isFirst: true },
    );
  }

  /** Takes a running run that no host has started, from the host that it is assigned to; undefined if another host was faster. */
  async claim({
    owner,
    runId,
    from,
  }: RunKey & { readonly from: string | undefined }): Promise<Run | undefined> {
    this.assertAlive();
    return this.context.database.write(async (tables) => {
      const { rows } = await claimRun(tables, {
        owner,
        runId,
        from: from ?? '',
        hostId: this.hostId,
        now: this.context.clock(),
      });
      return rows[0] && toRun(rows[0]);
    });
  }

  /** Makes a run that this host has not begun available to all others, although it is marked as started. */
  giveBack({ owner, runId }: RunKey): Promise<Run | undefined> {
    return this.context.database.write(async (tables) => {
      const { rows } = await unstartRun(tables, { owner, runId, hostId: this.hostId });
      return rows[0] && toRun(rows[0]);
    });
  }

  /** Makes the queued runs of a host available to all others. */
  async release(hostId: string): Promise<void> {
    await this.context.database.write((tables) =>
      tables
        .updateTable('runs')
        .set({ host_id: null })
        .where('host_id', '=', hostId)
        .where(sql<boolean>`status in ('queued', 'running')`)
        .where((e) => e.or([e('status', '=', 'queued'), e('started_at', 'is', null)]))
        .where('abort_requested', 'is', null)
        .execute(),
    );
  }

  /** The hosts that have queued or running runs; undefined if a run has none. */
  async hosts(): Promise<readonly (string | undefined)[]> {
    const rows = await this.context.database.tables
      .selectFrom('runs')
      .select('host_id')
      .distinct()
      .where(sql<boolean>`status in ('queued', 'running')`)
      .execute();
    return rows.map(({ host_id }) => host_id ?? undefined);
  }

  /** Some of the queued and running runs of a host, or of none. */
  async ofHost(hostId: string | undefined): Promise<readonly Run[]> {
    const rows = await this.context.database.tables
      .selectFrom('runs')
      .select(RUN_COLUMNS)
      .where('host_id', hostId === undefined ? 'is' : '=', hostId ?? null)
      .where(sql<boolean>`status in ('queued', 'running')`)
      .limit(RUNS_PER_PASS)
      .execute();
    return rows.map(toRun);
  }

  /** Ends a run of a dead host; undefined if it ended meanwhile or another host was faster. */
  async close(run: Run, end: EndAbandoned): Promise<EndedRun | undefined> {
    const ending = end(run, await this.allFrames(run));
    const host = { hostId: run.hostId ?? null, next: this.hostId };
    return this.context.database.write(
      (tables) =>
        finishRun(tables, { owner: run.owner, runId: run.runId, end: ending, host }, this.context),
      { isFirst: true },
    );
  }

  /** Replaces the run of a dead host by the next attempt of its turn, on this host. */
  resume(run: Run, frames: readonly Frame[]): Promise<Run | undefined> {
    return this.context.database.write((tables) => this.insertNextAttempt(tables, run, frames));
  }

  /** How many attempts of a turn ended because their host died. */
  async countCrashes({ owner, sessionId, turn }: Run): Promise<number> {
    const { crashes } = await this.context.database.tables
      .selectFrom('runs')
      .select((e) => e.fn.countAll<number>().as('crashes'))
      .where('owner', '=', owner)
      .where('session_id', '=', sessionId)
      .where('turn', '=', turn)
      .where('status', '=', 'continued')
      // A paused attempt has no host.
      .where('host_id', 'is not', null)
      .executeTakeFirstOrThrow();
    return Number(crashes);
  }

  /** Opens the request of a run; undefined if it is not stored or cannot be read. */
  async request({ owner, runId }: RunKey): Promise<unknown> {
    const row = await this.context.database.tables
      .selectFrom('runs')
      .select('request')
      .where('owner', '=', owner)
      .where('id', '=', runId)
      .executeTakeFirst();
    return row?.request ? this.unseal('request', owner, row.request) : undefined;
  }

  /** The steps of all attempts of a turn, oldest first. */
  async steps(of: SessionKey & { readonly turn: number }): Promise<readonly unknown[]> {
    const rows = await this.context.database.tables
      .selectFrom('run_steps')
      .innerJoin('runs', (join) =>
        join.onRef('runs.owner', '=', 'run_steps.owner').onRef('runs.id', '=', 'run_steps.run_id'),
      )
      .select('run_steps.data')
      .where('runs.owner', '=', of.owner)
      .where('runs.session_id', '=', of.sessionId)
      .where('runs.turn', '=', of.turn)
      .orderBy('runs.attempt')
      .orderBy('run_steps.step')
      .execute();
    return rows.map(({ data }) => this.unseal('step', of.owner, data));
  }

  async find({ owner, runId }: RunKey): Promise<Run | undefined> {
    const { rows } = await findRun(this.context.database.tables, { owner, runId });
    return rows[0] && toRun(rows[0]);
  }

  /** The latest attempt of the turn of a run. */
  async latestAttempt({ owner, sessionId, turn }: Run): Promise<Run | undefined> {
    const row = await this.context.database.tables
      .selectFrom('runs')
      .select(RUN_COLUMNS)
      .where('owner', '=', owner)
      .where('session_id', '=', sessionId)
      .where('turn', '=', turn)
      .orderBy('attempt', 'desc')
      .limit(1)
      .executeTakeFirst();
    return row && toRun(row);
  }

  /** The active run of a session, otherwise the first queued one, otherwise the last that ended. */
  async current(key: SessionKey): Promise<Run | undefined> {
    const runs = this.context.database.tables
      .selectFrom('runs')
      .select(RUN_COLUMNS)
      .where('owner', '=', key.owner)
      .where('session_id', '=', key.sessionId)
      .limit(1);
    const first = await runs.where(isOpen).orderBy('turn', 'asc').executeTakeFirst();
    // One that was canceled in the queue may still wait for its host while a later one runs.
    const isPassed = first?.status === 'queued' && first.abort_requested !== null;
    const row =
      (isPassed && (await runs.where(isActive).executeTakeFirst())) ||
      (first ?? (await runs.orderBy('turn', 'desc').orderBy('attempt', 'desc').executeTakeFirst()));
    return row && toRun(row);
  }

  /** The runs of a session that have not ended. */
  async open({ owner, sessionId }: SessionKey): Promise<readonly OpenRun[]> {
    return (await this.openForOwner(owner)).filter((run) => run.sessionId === sessionId);
  }

  /** The runs of a user that have not ended. */
  async openForOwner(owner: string): Promise<readonly OpenRun[]> {
    return (await selectOpen(this.context.database.tables, { owner })).rows;
  }

  /** The runs of a session after a given one, in their order. */
  async list(after: SessionKey & { readonly fromTurn: number }): Promise<readonly Run[]> {
    const { owner, sessionId, fromTurn } = after;
    const rows = await this.context.database.tables
      .selectFrom('runs')
      .select(RUN_COLUMNS)
      .where('owner', '=', owner)
      .where('session_id', '=', sessionId)
      .where('turn', '>=', fromTurn)
      .orderBy('turn')
      .orderBy('attempt')
      .limit(RUNS_PER_LIST)
      .execute();
    return rows.map(toRun);
  }

  /** A page of the stored frames with a number above `after`; empty if there is none. */
  frames(request: RunKey & { readonly after: number }): Promise<readonly Frame[]> {
    return readFramePage(this.context.database.tables, request);
  }

  async allFrames(key: RunKey): Promise<readonly Frame[]> {
    const frames: Frame[] = [];
    for await (const page of this.framePages({ ...key, after: 0 })) frames.push(...page);
    return frames;
  }

  /** All stored frames with a number above `after`, in pages. */
  async *framePages(
    request: RunKey & { readonly after: number },
  ): AsyncGenerator<readonly Frame[]> {
    for (let after = request.after; ; ) {
      const page = await this.frames({ ...request, after });
      if (page.length === 0) return;
      yield page;
      after = page.at(-1)?.seq ?? after;
    }
  }

  /** Deletes the logs of runs that ended before a time; their answers are kept. */
  pruneFrames({ endedBefore }: { readonly endedBefore: number }): Promise<void> {
    return pruneFrames(this.context.database, endedBefore);
  }

  private async insertNextAttempt(
    tables: Kysely<Schema>,
    run: Run,
    frames: readonly Frame[],
  ): Promise<Run | undefined> {
    const { clock, newId } = this.context;
    const now = clock();
    const row = await tables
      .updateTable('runs')
      .set({ status: 'continued', updated_at: now, last_seq: frames.at(-1)?.seq ?? run.lastSeq })
      .where('owner', '=', run.owner)
      .where('id', '=', run.runId)
      .where('status', '=', 'running')
      .where('host_id', '=', run.hostId ?? '')
      .returningAll()
      .executeTakeFirst();
    if (row === undefined) return undefined;
    await insertFrames(tables, run, frames);
    const next = toNextAttempt(row, { id: newId(), hostId: this.hostId, now });
    await insertRun(tables, next);
    return toRun(next);
  }

  private assertAlive(): void {
    if (!this.isAlive()) throw new StoreError('Disconnected from PostgreSQL; trying again');
  }

  private sealSteps({ owner, steps }: Pick<UnsealedWrites, 'owner' | 'steps'>): RunWrites['steps'] {
    return steps.map(({ step, value }) => ({ step, data: this.seal('step', owner, value) }));
  }

  private seal(kind: SealedKind, owner: string, value: unknown): string {
    return this.vault.seal(JSON.stringify(value), [kind, owner]);
  }

  private unseal(kind: SealedKind, owner: string, sealed: string): unknown {
    const opened = this.vault.open(sealed, [kind, owner]);
    return 'ok' in opened ? JSON.parse(opened.ok) : undefined;
  }

  private toInterrupt(row: Awaited<ReturnType<typeof findInterrupt>> & object): Interrupt {
    const { data, answer, ...interrupt } = interrupts.toValues(row);
    const { owner } = interrupt;
    return {
      ...interrupt,
      data: data && this.unseal('interrupt', owner, data),
      value: answer && this.unseal('answer', owner, answer),
    };
  }
}

type SealedKind = 'request' | 'step' | 'interrupt' | 'answer' | 'approval';

/** Decides from its log how an interrupted run ends. */
type EndAbandoned = (run: Run, frames: readonly Frame[]) => RunEnd;

/** Runs of a user that were canceled but have not ended yet may exceed the limit by this factor. */
const CANCELED_FACTOR = 2;

export interface NewRun {
  /** Chosen by the caller, so that it can find the run if the reply of the database is lost. */
  readonly runId: string;
  readonly owner: string;
  readonly sessionId: string;
  readonly requestId: string;
  readonly traceparent?: string | undefined;
  readonly message: Pick<MessageBody, 'content' | 'parts' | 'metadata'>;
  /** Default: the end of the active branch. */
  readonly origin?: TurnOrigin | undefined;
  /** The ids that a client gave the message. */
  readonly clientIds?: readonly string[] | undefined;
  /** What to do if the session has a running turn. */
  readonly multitask: Multitask;
  /** A paused turn makes this one wait instead of being canceled by it. */
  readonly waitsForPaused?: boolean | undefined;
  readonly limits: {
    /** Running and queued turns of the owner, including this one. */
    readonly live: number;
    /** Turns that wait in one session. */
    readonly waiting: number;
  };
  /** Encrypts the request for another host; called if the run has to wait or may be resumed. */
  readonly seal: () => string;
  /** Whether the request is stored even if the run starts immediately. */
  readonly isResumable?: boolean | undefined;
  /** A repeated request with this key returns this run instead of starting another. */
  readonly idempotency?:
    | { readonly key: string; readonly bodyHash: string; readonly expiresAt: number }
    | undefined;
  /** Called as soon as others see the run, if that is before it is on disk. */
  readonly onCommit?: ((result: StartResult) => void) | undefined;
}

/** Why a message was not accepted. */
type RefusedState = 'unknown-session' | 'unknown-message' | 'too-many' | 'busy' | 'queue-full';

export interface StartedRun {
  readonly state: 'started';
  readonly run: Run;
  /** The runs that this one cancels; their hosts end them. */
  readonly canceled: readonly OpenRun[];
  /** The run that had waited for a paused one, which this one cancels. */
  readonly next?: Run | undefined;
}

export type StartResult =
  | StartedRun
  | { readonly state: RefusedState }
  | { readonly state: 'existing'; readonly runId: string }
  | { readonly state: 'conflict' }
  /** The turn of a repeated request ended without an answer, and later turns exist. */
  | { readonly state: 'superseded' };

/** A run of the owner that has not ended. */
interface OpenRun {
  readonly runId: string;
  readonly sessionId: string;
  readonly status: 'queued' | 'running' | 'paused';
  readonly hostId: string | null;
  readonly cancelReason: string | null;
}

/** Rolls back the unit of work. */
class RefusedStart extends Error {
  readonly state: RefusedState;

  constructor(state: RefusedState) {
    super(state);
    this.state = state;
  }
}

async function insertStart(
  tables: Kysely<Schema>,
  request: NewRun,
  context: StoreContext & { readonly hostId: string },
): Promise<StartResult> {
  const { runId, owner, sessionId, idempotency } = request;
  const claim =
    idempotency && (await claimKey(tables, { ...idempotency, owner, runId }, context.clock()));
  if (claim?.state === 'conflict') return claim;
  if (claim?.state === 'existing') return repeatStart(tables, request, claim.runId, context);
  const answerId = context.newId();
  // Locks the session, so that no turn of it ends between the decision below and the commit.
  const opened = await openTurn(tables, { ...request, runId, answerId }, context);
  if (typeof opened === 'string') throw new RefusedStart(opened);
  const { clientIds } = request;
  if (clientIds) await insertClientIds(tables, request, { clientIds, messageId: opened.askedId });
  const { rows: open } = await selectOpen(tables, { owner });
  assertAdmitted(request, open);
  const ofSession = open.filter((run) => run.sessionId === sessionId);
  const paused = ofSession.find(({ status }) => status === 'paused');
  if (paused && !request.waitsForPaused)
    await cancelPausedRun(tables, { owner, runId: paused.runId }, context);
  const canceled = request.multitask === 'interrupt' ? ofSession.filter(isLive) : [];
  if (canceled.length > 0)
    await requestCancel(tables, { owner, sessionId, reason: 'interrupted', turn: opened.turn });
  const waits = ofSession.some((run) => isLive(run) || (run === paused && request.waitsForPaused));
  const row = createRow(request, {
    opened,
    hostId: context.hostId,
    messageId: answerId,
    status: waits ? 'queued' : 'running',
  });
  await insertRun(tables, row);
  const promotion = { owner, sessionId, now: opened.createdAt, host: context.hostId };
  const next = paused ? await promoteNext(tables, promotion) : undefined;
  return { state: 'started', run: toRun(row), canceled, next };
}

/** Returns the turn that the first request started; starts its next attempt if it may be tried again. */
async function repeatStart(
  tables: Kysely<Schema>,
  request: NewRun,
  firstRunId: string,
  { hostId, clock }: StoreContext & { readonly hostId: string },
): Promise<StartResult> {
  const { runId: id, owner, sessionId } = request;
  const latest = await findLatestAttempt(tables, { owner, runId: firstRunId });
  if (!latest || !isUnanswered(latest))
    return { state: 'existing', runId: latest?.id ?? firstRunId };
  const { rows } = await lockLastTurn(tables, { owner, sessionId });
  if (rows[0] === undefined) throw new RefusedStart('unknown-session');
  // Turns are executed in order.
  if (rows[0].lastTurn !== latest.turn) return { state: 'superseded' };
  assertAdmitted(request, (await selectOpen(tables, { owner })).rows);
  const next = toNextAttempt(latest, { id, hostId, now: clock() });
  const row = { ...next, request: request.isResumable ? request.seal() : null };
  await insertRun(tables, row);
  return { state: 'started', run: toRun(row), canceled: [] };
}

/** An update, because it locks the row on PostgreSQL: the session is not deleted before the run is stored. */
const lockLastTurn = prepareQuery((tables, { owner, sessionId }: SessionKey) =>
  tables
    .updateTable('sessions')
    .set((e) => ({ last_turn: e.ref('last_turn') }))
    .where('owner', '=', owner)
    .where('id', '=', sessionId)
    .returning('last_turn as lastTurn'),
);

const isLive = ({ status }: OpenRun) => status !== 'paused';

function assertAdmitted(request: NewRun, open: readonly OpenRun[]): void {
  const { sessionId, multitask, limits } = request;
  const live = open.filter(isLive);
  const remaining = live.filter(
    ({ cancelReason, sessionId: id }) =>
      cancelReason === null && !(multitask === 'interrupt' && id === sessionId),
  );
  if (remaining.length >= limits.live || live.length >= limits.live * CANCELED_FACTOR)
    throw new RefusedStart('too-many');
  const ofSession = remaining.filter((run) => run.sessionId === sessionId);
  if (multitask === 'reject' && ofSession.length > 0) throw new RefusedStart('busy');
  if (ofSession.length > limits.waiting) throw new RefusedStart('queue-full');
}

/** The runs of an owner that have not ended. */
const selectOpen = prepareQuery((tables, { owner }: { owner: string }) =>
  tables
    .selectFrom('runs')
    .select([
      'id as runId',
      'session_id as sessionId',
      'status',
      'host_id as hostId',
      'abort_requested as cancelReason',
    ])
    .where('owner', '=', owner)
    // Literally as in the index `runs_open_by_owner`: with parameters, neither engine would use it.
    .where(sql<boolean>`status in ('queued', 'running', 'paused')`)
    .$narrowType<{ status: OpenRun['status'] }>(),
);

interface CancelRequest {
  readonly owner: string;
  readonly sessionId: string;
  readonly reason: 'aborted' | 'interrupted';
  /** Only earlier turns. */
  readonly turn: number;
}

/** Marks the running and queued runs of a session as canceled. */
const requestCancel = prepareQuery((tables, { owner, sessionId, reason, turn }: CancelRequest) =>
  tables
    .updateTable('runs')
    .set({ abort_requested: reason })
    .where('owner', '=', owner)
    // An expression, so that SQLite uses the index of open runs instead of reading all runs of the session.
    .where(sql<string>`session_id || ''`, '=', sessionId)
    .where('turn', '<', turn)
    .where(sql<boolean>`status in ('queued', 'running', 'paused')`)
    .where('abort_requested', 'is', null),
);

interface RunDecision {
  readonly opened: OpenedTurn;
  readonly hostId: string;
  readonly messageId: string;
  readonly status: 'queued' | 'running';
}

function createRow(request: NewRun, { opened, hostId, messageId, status }: RunDecision): RunRow {
  const { owner, sessionId, runId, requestId, traceparent } = request;
  const { turn, branch, questionId, createdAt } = opened;
  const isStored = status === 'queued' || request.isResumable;
  return runs.toRow({
    ...{ owner, sessionId, runId, requestId, traceparent, turn, branch, status, hostId, messageId },
    questionId: questionId ?? undefined,
    attempt: 1,
    request: isStored ? request.seal() : undefined,
    lastSeq: 0,
    inputTokens: 0,
    outputTokens: 0,
    cachedTokens: 0,
    createdAt,
    startedAt: status === 'running' ? createdAt : undefined,
    updatedAt: createdAt,
  });
}

/** Why a run that was withdrawn has no answer. */
export const WITHDRAWN = 'message_withdrawn';

export type WithdrawResult =
  | { readonly state: 'withdrawn'; readonly run: Run }
  | { readonly state: 'unknown' }
  /** Its turn has begun or ended. */
  | { readonly state: 'begun' };

/** Takes back a queued run with its question, unless another one answers that too, inside a unit of work. */
async function withdrawRun(
  tables: Kysely<Schema>,
  { owner, runId }: RunKey,
  { clock }: StoreContext,
): Promise<WithdrawResult> {
  const now = clock();
  await lockSession(tables, { owner, runId, now });
  const report = JSON.stringify({
    error: { code: WITHDRAWN, message: errorCatalog[WITHDRAWN][1] },
  });
  const row = await tables
    .updateTable('runs')
    .set({ status: 'aborted', request: null, updated_at: now, report })
    .where('owner', '=', owner)
    .where('id', '=', runId)
    .where('status', '=', 'queued')
    .where('abort_requested', 'is', null)
    .returning(RUN_COLUMNS)
    .executeTakeFirst();
  if (row === undefined)
    return { state: (await hasRun(tables, owner, runId)) ? 'begun' : 'unknown' };
  const { session_id: sessionId, branch, turn, question_id: questionId } = row;
  const withdrawn = { owner, sessionId, branch, turn, answerId: row.message_id ?? '' };
  const keptId = questionId ?? (await findQuestionToKeep(tables, withdrawn));
  const question = keptId === undefined ? await deleteQuestion(tables, withdrawn) : undefined;
  await closeGap(tables, { ...withdrawn, question, parent: keptId ?? question?.parent ?? null });
  if (questionId) await withdrawQuestion(tables, { owner, sessionId, questionId });
  return { state: 'withdrawn', run: toRun(row) };
}

/** The question of a turn if another open one answers it again. */
async function findQuestionToKeep(
  tables: Kysely<Schema>,
  { owner, sessionId, branch, turn }: PathKey & { readonly turn: number },
): Promise<string | undefined> {
  const row = await tables
    .selectFrom('messages')
    .select('id')
    .where('owner', '=', owner)
    .where('session_id', '=', sessionId)
    .where('branch', '=', branch)
    .where('turn', '=', turn)
    .where('id', 'in', (e) =>
      e
        .selectFrom('runs')
        .select(sql<string>`question_id`.as('id'))
        .where('owner', '=', owner)
        .where('session_id', '=', sessionId)
        .where(isOpen)
        .where('question_id', 'is not', null),
    )
    .executeTakeFirst();
  return row?.id;
}

/** Takes back a question that stayed because another turn answered it again, once none does. */
async function withdrawQuestion(
  tables: Kysely<Schema>,
  { owner, sessionId, questionId }: SessionKey & { readonly questionId: string },
): Promise<void> {
  const question = await tables
    .selectFrom('messages')
    .select(['branch', 'turn', 'run_id as runId'])
    .where('owner', '=', owner)
    .where('id', '=', questionId)
    .where(({ not, exists, selectFrom }) =>
      not(
        exists(
          selectFrom('messages as answers')
            .select('answers.id')
            .where('answers.owner', '=', owner)
            .where('answers.session_id', '=', sessionId)
            .where('answers.parent', '=', questionId)
            .where('answers.type', '=', 'ai'),
        ),
      ),
    )
    .executeTakeFirst();
  const [first] = question?.runId
    ? (await findRun(tables, { owner, runId: question.runId })).rows
    : [];
  if (!question || !first || toRun(first).report.error?.code !== WITHDRAWN) return;
  const { branch, turn } = question;
  const withdrawn = { owner, sessionId, branch, turn, answerId: questionId };
  if (await findQuestionToKeep(tables, withdrawn)) return;
  const deleted = await deleteQuestion(tables, withdrawn);
  await closeGap(tables, { ...withdrawn, question: deleted, parent: deleted?.parent ?? null });
}

const deleteQuestion = (
  tables: Kysely<Schema>,
  { owner, sessionId, branch, turn }: PathKey & { readonly turn: number },
) =>
  tables
    .deleteFrom('messages')
    .where('owner', '=', owner)
    .where('session_id', '=', sessionId)
    .where('branch', '=', branch)
    .where('turn', '=', turn)
    .returning(['id', 'parent'])
    .executeTakeFirst();

async function hasRun(tables: Kysely<Schema>, owner: string, id: string): Promise<boolean> {
  const runs = tables.selectFrom('runs').select('id').where('owner', '=', owner);
  return (await runs.where('id', '=', id).executeTakeFirst()) !== undefined;
}
