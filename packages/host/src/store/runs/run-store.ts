import type { StoreContext } from '../database/store-context.js';
import type { SessionKey } from '../sessions/session-store.js';
import { closeAbandoned, type EndAbandoned, findAbandoned } from './close-abandoned.js';
import { type EndedRun, finishRun, type RunEnding } from './finish-run.js';
import { appendFrames, type Frame, pruneSomeFrames, type RunKey, readFrames } from './frames.js';
import type { HostProcess } from './host-process.js';
import { fromClock, type LeaseClock } from './lease-clock.js';
import { LIVE, type Run, toRun } from './run.js';
import { type NewRun, type StartResult, startRun } from './start-run.js';

const LEASE_MS = 30_000;
/** More turns than anybody waits for. */
const RUNS_PER_LIST = 100;

/** The turns under way and past, with their logs (contract B4). */
export class RunStore {
  readonly #context: StoreContext;
  readonly #host: HostProcess;
  readonly #leases: LeaseClock;

  constructor(
    context: StoreContext,
    host: HostProcess,
    leases: LeaseClock = fromClock(context.clock),
  ) {
    this.#context = context;
    this.#host = host;
    this.#leases = leases;
  }

  /** Stores the user's message and the run that answers it, both or neither. */
  async start(request: NewRun): Promise<StartResult> {
    await this.#context.disk?.assertRoom();
    return this.#context.database.writeFor(request.owner, (tables) => {
      const lease = { hostId: this.#host.id, until: this.#leaseEnd() };
      return startRun(tables, request, { ...this.#context, lease, isOver: this.#isOver });
    });
  }

  /** A queued run has its turn now; false if the owner has no such run waiting. */
  markRunning({ owner, runId }: RunKey): Promise<boolean> {
    const values = { status: 'running' as const, updated_at: this.#context.clock() };
    return this.#context.database.write(async (tables) => {
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
    const { database, clock } = this.#context;
    return database.write((tables) => appendFrames(tables, request, clock()));
  }

  /** Stores the outcome and the answer, both or neither; undefined if there was nothing to end. */
  finish(request: RunKey & { readonly ending: RunEnding }): Promise<EndedRun | undefined> {
    return this.#context.database.write((tables) => finishRun(tables, request, this.#context));
  }

  async find({ owner, runId }: RunKey): Promise<Run | undefined> {
    const row = await this.#context.database.tables
      .selectFrom('runs')
      .selectAll()
      .where('id', '=', runId)
      .where('owner', '=', owner)
      .executeTakeFirst();
    return row && toRun(row);
  }

  /** The run at work in a session, else the first that waits, else the last that ended. */
  async current(key: SessionKey): Promise<Run | undefined> {
    const runs = this.#context.database.tables
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

  /** The runs of a session from one turn on, in their order. */
  async list({
    owner,
    sessionId,
    fromTurn,
  }: SessionKey & { readonly fromTurn: number }): Promise<readonly Run[]> {
    const rows = await this.#context.database.tables
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
    return readFrames(this.#context.database.tables, request);
  }

  /** Tells other processes that this one lives; to be called well within every 30 s. */
  async renewLeases(): Promise<void> {
    await this.#leases.sync();
    const until = this.#leaseEnd();
    await this.#context.database.write((tables) =>
      tables
        .updateTable('runs')
        .set({ lease_until: until })
        .where('host_id', '=', this.#host.id)
        .where('status', 'in', LIVE)
        .execute(),
    );
  }

  /** Ends the runs that dead processes left behind; to be called at start and now and then. */
  async closeInterrupted(end: EndAbandoned): Promise<readonly EndedRun[]> {
    const { database } = this.#context;
    await this.#leases.sync();
    const closed: EndedRun[] = [];
    for (const abandoned of await findAbandoned(database.tables, this.#host, this.#isOver)) {
      const ended = await database.write((tables) =>
        closeAbandoned(tables, { abandoned, end }, this.#context),
      );
      if (ended !== undefined) closed.push(ended);
    }
    return closed;
  }

  /** Drops the logs of runs that ended before `time`; their answers stay. */
  async pruneFrames({ endedBefore }: { readonly endedBefore: number }): Promise<void> {
    const { database } = this.#context;
    // In portions, so that a large backlog does not hold up other writers.
    while ((await database.write((tables) => pruneSomeFrames(tables, endedBefore))) > 0);
  }

  readonly #isOver = (leaseUntil: number) => this.#leases.isOver(leaseUntil, LEASE_MS);

  #leaseEnd(): number {
    return Math.round(this.#leases.now()) + LEASE_MS;
  }
}
