import type { Attachment } from '@sibyl/protocol';
import { type Kysely, sql } from 'kysely';
import type { SessionKey } from '../../bus/event-bus.js';
import { prepareQuery, type RunRow, type Schema, type StoreContext } from '../database.js';
import { claimKey, releaseKey } from '../idempotency-store.js';
import { type Message, type MessageBody, toQuestionParts } from '../message.js';
import { appendMessage } from '../message-store.js';
import { type EndedRun, finishRun, type RunEnding } from './finish-run.js';
import { appendFrames, type Frame, pruneSomeFrames, type RunKey, readFrames } from './frames.js';
import { fromClock, type HostProcess, type LeaseClock } from './leases.js';
import { LIVE, type Run, toRun } from './run.js';

/** More turns than a user queues. */
const RUNS_PER_LIST = 100;

/** Running, queued and past turns with their logs. */
export class RunStore {
  private readonly context: StoreContext;
  private readonly host: HostProcess;
  private readonly leases: LeaseClock;

  constructor(
    context: StoreContext,
    host: HostProcess,
    leases: LeaseClock = fromClock(context.clock),
  ) {
    this.context = context;
    this.host = host;
    this.leases = leases;
  }

  /** Stores the user's message and the run that answers it, both or neither. */
  async start(request: NewRun): Promise<StartResult> {
    await this.context.disk?.assertRoom();
    return this.context.database.writeFor(request.owner, (tables) => {
      return startRun(tables, request, { ...this.context, hostId: this.host.id });
    });
  }

  /** Marks a queued run as running; false if the owner has no such queued run. */
  markRunning({ owner, runId }: RunKey): Promise<boolean> {
    const now = this.context.clock();
    const values = { status: 'running' as const, started_at: now, updated_at: now };
    return this.context.database.write(async (tables) => {
      const { numUpdatedRows } = await tables
        .updateTable('runs')
        .set(values)
        .where('id', '=', runId)
        .where('owner', '=', owner)
        .where('status', '=', 'queued')
        .executeTakeFirstOrThrow();
      return numUpdatedRows > 0n;
    });
  }

  /** False if the owner has no such run or it has ended, also when another process ended it. */
  appendFrames(request: RunKey & { readonly frames: readonly Frame[] }): Promise<boolean> {
    const { database, clock } = this.context;
    return database.write((tables) => appendFrames(tables, request, clock()));
  }

  /** Stores the outcome and the answer, both or neither; undefined if the run has ended already. */
  finish(request: RunKey & { readonly ending: RunEnding }): Promise<EndedRun | undefined> {
    return this.context.database.write((tables) => finishRun(tables, request, this.context));
  }

  async find({ owner, runId }: RunKey): Promise<Run | undefined> {
    const row = await this.context.database.tables
      .selectFrom('runs')
      .selectAll()
      .where('id', '=', runId)
      .where('owner', '=', owner)
      .executeTakeFirst();
    return row && toRun(row);
  }

  /** The running run of a session, otherwise the first queued one, otherwise the last that ended. */
  async current(key: SessionKey): Promise<Run | undefined> {
    const runs = this.context.database.tables
      .selectFrom('runs')
      .selectAll()
      .where('session_id', '=', key.sessionId)
      .where('owner', '=', key.owner)
      .limit(1);
    const row =
      (await runs.where('status', 'in', LIVE).orderBy('turn', 'asc').executeTakeFirst()) ??
      (await runs.orderBy('turn', 'desc').executeTakeFirst());
    return row && toRun(row);
  }

  /** The runs of a session from a given turn on, in their order. */
  async list({
    owner,
    sessionId,
    fromTurn,
  }: SessionKey & { readonly fromTurn: number }): Promise<readonly Run[]> {
    const rows = await this.context.database.tables
      .selectFrom('runs')
      .selectAll()
      .where('session_id', '=', sessionId)
      .where('owner', '=', owner)
      .where('turn', '>=', fromTurn)
      .orderBy('turn')
      .limit(RUNS_PER_LIST)
      .execute();
    return rows.map(toRun);
  }

  /** The stored frames with a number above `after`. */
  frames(request: RunKey & { readonly after: number }): Promise<readonly Frame[]> {
    return readFrames(this.context.database.tables, request);
  }

  /** Shows other processes that this one is running; must be called well within every 30 s. */
  async renewLeases(): Promise<void> {
    await this.leases.sync();
  }

  /** Ends the runs of dead processes; must be called at the start and regularly. */
  async closeInterrupted(end: EndAbandoned): Promise<readonly EndedRun[]> {
    const { database } = this.context;
    const closed: EndedRun[] = [];
    for (const abandoned of await findAbandoned(database.tables, this.host)) {
      const ended = await database.write((tables) =>
        closeAbandoned(tables, { abandoned, end }, this.context),
      );
      if (ended !== undefined) closed.push(ended);
    }
    return closed;
  }

  /** Deletes the logs of runs that ended before a time; their answers are kept. */
  async pruneFrames({ endedBefore }: { readonly endedBefore: number }): Promise<void> {
    const { database } = this.context;
    // In batches, so that other writers do not wait long.
    while ((await database.write((tables) => pruneSomeFrames(tables, endedBefore))) > 0);
  }
}

export interface NewRun {
  readonly owner: string;
  readonly sessionId: string;
  readonly requestId: string;
  readonly status: 'queued' | 'running';
  readonly message: Pick<MessageBody, 'content' | 'metadata'> & {
    readonly attachments?: readonly Attachment[] | undefined;
  };
  /** Maximum number of running and queued runs of the owner, including this one; default: no limit. */
  readonly maxLive?: number | undefined;
  /** A repeated request with this key returns this run instead of starting another. */
  readonly idempotency?:
    | { readonly key: string; readonly bodyHash: string; readonly expiresAt: number }
    | undefined;
}

export type StartResult =
  | { readonly state: 'started'; readonly run: Run; readonly message: Message }
  | { readonly state: 'unknown-session' }
  | { readonly state: 'too-many' }
  | { readonly state: 'existing'; readonly runId: string }
  | { readonly state: 'conflict' };

/** Stores key, user message and run inside one unit of work. */
async function startRun(
  tables: Kysely<Schema>,
  request: NewRun,
  { hostId, ...context }: StoreContext & { readonly hostId: string },
): Promise<StartResult> {
  const { owner, sessionId, requestId, idempotency } = request;
  const runId = context.newId();
  if (idempotency !== undefined) {
    const claim = await claimKey(tables, { ...idempotency, owner, runId }, context.clock());
    if (claim.state !== 'new') return claim;
  }
  const refuse = async (state: 'unknown-session' | 'too-many'): Promise<StartResult> => {
    if (idempotency !== undefined) await releaseKey(tables, { owner, key: idempotency.key });
    return { state };
  };
  const { maxLive = Number.POSITIVE_INFINITY } = request;
  const { rows: live } = await selectLive(tables, { owner });
  if (live.length >= maxLive) return refuse('too-many');
  const { attachments, ...text } = request.message;
  const parts = toQuestionParts(text.content, attachments);
  const message = await appendMessage(
    tables,
    { ...text, parts, owner, sessionId, requestId, runId, type: 'human', isComplete: true },
    context,
  );
  if (message === undefined) return refuse('unknown-session');
  const row = createRow({ runId, messageId: context.newId(), request, message, hostId });
  await insertRun(tables, row);
  return { state: 'started', run: toRun(row), message };
}

/** The running and queued runs of an owner. */
const selectLive = prepareQuery((tables, { owner }: { owner: string }) =>
  tables
    .selectFrom('runs')
    .select('id')
    .where('owner', '=', owner)
    // Literally as in the index `runs_open_by_owner`: with parameters, neither engine would use it.
    .where(sql<boolean>`status in ('queued', 'running', 'paused')`),
);

const insertRun = prepareQuery((tables, row: RunRow) => tables.insertInto('runs').values(row));

interface RowRequest {
  readonly runId: string;
  readonly messageId: string;
  readonly request: NewRun;
  readonly message: Message;
  readonly hostId: string;
}

function createRow({ runId, messageId, request, message, hostId }: RowRequest): RunRow {
  return {
    owner: request.owner,
    id: runId,
    session_id: request.sessionId,
    turn: message.turn,
    attempt: 1,
    request_id: request.requestId,
    status: request.status,
    host_id: hostId,
    abort_requested: null,
    request: null,
    message_id: messageId,
    error_kind: null,
    error_message: null,
    report: null,
    last_seq: 0,
    input_tokens: 0,
    output_tokens: 0,
    cached_tokens: 0,
    created_at: message.createdAt,
    started_at: request.status === 'running' ? message.createdAt : null,
    updated_at: message.createdAt,
  };
}

/** Decides from its log how an interrupted run ends. */
export type EndAbandoned = (run: Run, frames: readonly Frame[]) => RunEnding;

interface Abandoned {
  readonly owner: string;
  readonly id: string;
}

/** Live runs whose process is dead. */
async function findAbandoned(
  tables: Kysely<Schema>,
  host: HostProcess,
): Promise<readonly Abandoned[]> {
  const live = await tables
    .selectFrom('runs')
    .select(['owner', 'id', 'host_id as hostId'])
    .where('status', 'in', LIVE)
    .where('host_id', '!=', host.id)
    .execute();
  return live.filter(({ hostId }) => hostId !== null && host.isKnownDead(hostId));
}

/** Ends an abandoned run inside a unit of work; undefined if the run has ended. */
async function closeAbandoned(
  tables: Kysely<Schema>,
  { abandoned, end }: { abandoned: Abandoned; end: EndAbandoned },
  context: StoreContext,
): Promise<EndedRun | undefined> {
  const row = await tables
    .selectFrom('runs')
    .selectAll()
    .where('owner', '=', abandoned.owner)
    .where('id', '=', abandoned.id)
    .executeTakeFirst();
  if (row === undefined) return undefined;
  const run = toRun(row);
  const key = { owner: run.owner, runId: run.id };
  const ending = end(run, await readFrames(tables, { ...key, after: 0 }));
  return finishRun(tables, { ...key, ending }, context);
}
