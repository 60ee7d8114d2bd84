import { type ImportJob, OracleError } from '@sibyl/protocol';
import { type Insertable, type Kysely, sql } from 'kysely';
import type { SessionKey } from '../../bus/event-bus.js';
import type { StoreContext } from '../database.js';
import type { Schema } from '../schema/index.js';
import type { MessageRow } from '../schema/messages.js';
import type { SessionRow } from '../schema/sessions.js';
import type { OwnedTable, OwnerRows, StoredRow, StoredValue } from './owner-rows.js';

/** Jobs that are kept for one user. */
const JOBS_PER_USER = 20;

/** Stored bytes of one turn: what reads messages reads whole turns. */
const TURN_BYTES = 16 * 1024 * 1024;
/** Of a message without its texts. */
const ROW_BYTES = 1024;

/** A row of an archive that becomes a message. */
export type MessageToStore = StoredRow & {
  readonly session_id: string;
  readonly turn: number;
  readonly content: string;
  readonly parts: string | null;
};

/** `id` is that of its first message. */
type BranchPlace = Pick<MessageRow, 'owner' | 'id' | 'session_id' | 'branch'>;
type MessagePlace = BranchPlace & Pick<MessageRow, 'turn' | 'seq' | 'is_complete'>;

/** What the progress of an import is stored as. */
export type ImportProgress = Omit<ImportJob, 'id' | 'createdAt' | 'updatedAt'>;

interface JobKey {
  readonly owner: string;
  readonly id: string;
}

/** Stores imported rows without changing existing ones, and the progress of imports. */
export class ImportStore {
  constructor(
    private readonly context: StoreContext,
    private readonly rows: OwnerRows,
    private readonly job?: JobKey,
  ) {}

  /** The same store for one import: it stores nothing once the job is deleted, as when its user is erased. */
  forJob(job: JobKey): ImportStore {
    return new ImportStore(this.context, this.rows, job);
  }

  /** Throws if the job of this store was deleted. */
  async assertJob(): Promise<void> {
    await this.context.database.write((tables) => this.holdJob(tables));
  }

  /** Throws if the disk of the database is almost full. */
  async assertRoom(): Promise<void> {
    (await this.context.disk?.reserve(0))?.release();
  }

  /** The time that jobs are stored with. */
  now(): number {
    return this.context.clock();
  }

  async createJob(owner: string, progress: ImportProgress): Promise<ImportJob> {
    const { database, clock, newId } = this.context;
    const now = clock();
    const row = { owner, id: newId(), progress: JSON.stringify(progress) };
    await database.write(async (tables) => {
      await tables
        .insertInto('import_jobs')
        .values({ ...row, created_at: now, updated_at: now })
        .execute();
      const kept = tables
        .selectFrom('import_jobs')
        .select('id')
        .where('owner', '=', owner)
        .orderBy('id', 'desc')
        .limit(JOBS_PER_USER);
      await tables
        .deleteFrom('import_jobs')
        .where('owner', '=', owner)
        .where('id', 'not in', kept)
        .execute();
    });
    return toJob({ ...row, created_at: now, updated_at: now });
  }

  /** False if the job was deleted. */
  async updateJob(owner: string, id: string, progress: ImportProgress): Promise<boolean> {
    const { database, clock } = this.context;
    const { numUpdatedRows } = await database.write((tables) =>
      tables
        .updateTable('import_jobs')
        .set({ progress: JSON.stringify(progress), updated_at: clock() })
        .where('owner', '=', owner)
        .where('id', '=', id)
        .executeTakeFirstOrThrow(),
    );
    return numUpdatedRows > 0n;
  }

  async findJob(owner: string, id: string): Promise<ImportJob | undefined> {
    const row = await this.context.database.tables
      .selectFrom('import_jobs')
      .selectAll()
      .where('owner', '=', owner)
      .where('id', '=', id)
      .executeTakeFirst();
    return row && toJob(row);
  }

  async findSession(owner: string, id: string): Promise<{ createdAt: number } | undefined> {
    const row = await this.context.database.tables
      .selectFrom('sessions')
      .select('created_at')
      .where('owner', '=', owner)
      .where('id', '=', id)
      .executeTakeFirst();
    return row && { createdAt: row.created_at };
  }

  /** Whether another message is in the place of this one, or the beginning of this one, which was imported while it waited. */
  async isTaken(place: MessagePlace): Promise<boolean> {
    const row = await this.context.database.tables
      .selectFrom('messages')
      .select(['id', 'is_complete'])
      .where('owner', '=', place.owner)
      .where('session_id', '=', place.session_id)
      .where('branch', '=', place.branch)
      .where('turn', '=', place.turn)
      .where('seq', '=', place.seq)
      .executeTakeFirst();
    return row !== undefined && (row.id !== place.id || row.is_complete < place.is_complete);
  }

  /** Whether another branch has the number of this one. */
  async isBranchTaken({ owner, id, session_id, branch }: BranchPlace): Promise<boolean> {
    const row = await this.context.database.tables
      .selectFrom('branches')
      .select('first_id')
      .where('owner', '=', owner)
      .where('session_id', '=', session_id)
      .where('branch', '=', branch)
      .executeTakeFirst();
    return row !== undefined && row.first_id !== id;
  }

  /** Inserts a session that does not exist; refused if its user has `limit` already, also with concurrent requests. */
  async insertSession(
    owner: string,
    session: StoredRow & Pick<SessionRow, 'id' | 'last_seq' | 'last_turn'>,
    limit: number,
  ): Promise<'stored' | 'present' | 'refused'> {
    const [row] = await this.fit(owner, 'sessions', [session]);
    if (!row) return 'refused';
    return this.context.database.writeFor(owner, async (tables) => {
      const own = tables.selectFrom('sessions').where('owner', '=', owner);
      if (await own.select('id').where('id', '=', session.id).executeTakeFirst()) {
        const { last_seq, last_turn } = session;
        const known = updateSession(tables, owner, session.id);
        // From now on, turns continue after the messages of the archive, which are stored later.
        await known.set({ last_seq }).where('last_seq', '<', last_seq).execute();
        await known.set({ last_turn }).where('last_turn', '<', last_turn).execute();
        return 'present';
      }
      const { total } = await own
        .select((e) => e.fn.countAll().as('total'))
        .executeTakeFirstOrThrow();
      if (Number(total) >= limit) return 'refused';
      await insertOne(tables, 'sessions', row);
      await this.holdJob(tables);
      return 'stored';
    });
  }

  /** Inserts rows that fit a table; an existing row with the same key stays as it is. Returns how many are new. */
  async insert(owner: string, name: string, rows: readonly StoredRow[]): Promise<number> {
    const fitting = await this.fit(owner, name, rows);
    if (fitting.length === 0) return 0;
    return this.context.database.write(async (tables) => {
      let added = 0;
      // One by one: rows may have different columns, and a large one exceeds the parameters of a statement.
      for (const row of fitting) added += await insertOne(tables, name, row);
      await this.holdJob(tables);
      return added;
    });
  }

  /** Last in a unit of work: from here on, what deletes the job waits, and then finds the rows of this unit. */
  private async holdJob(tables: Kysely<Schema>): Promise<void> {
    if (!this.job) return;
    const { numUpdatedRows } = await tables
      .updateTable('import_jobs')
      .set({ updated_at: this.context.clock() })
      .where('owner', '=', this.job.owner)
      .where('id', '=', this.job.id)
      .executeTakeFirstOrThrow();
    if (numUpdatedRows === 0n) throw new OracleError('import_not_found');
  }

  private async fit(owner: string, name: string, rows: readonly StoredRow[]) {
    const table = (await this.rows.tables()).find((known) => known.name === name);
    return table ? rows.flatMap((row) => fitRow(table, owner, row)) : [];
  }

  /** Those messages that fit into their turns, together with what is stored of these. */
  async filterFitting(
    owner: string,
    messages: readonly MessageToStore[],
  ): Promise<readonly MessageToStore[]> {
    const sizes = await this.measureTurns(owner, messages);
    const fitting: MessageToStore[] = [];
    for (const message of messages) {
      const { content, parts } = message;
      const key = formatTurn(message);
      const known = sizes.get(key) ?? 0;
      const size = known + ROW_BYTES + Buffer.byteLength(content) + Buffer.byteLength(parts ?? '');
      if (size > TURN_BYTES) continue;
      fitting.push(message);
      sizes.set(key, size);
    }
    return fitting;
  }

  /** Stored bytes of turns, on all branches. */
  private async measureTurns(
    owner: string,
    messages: readonly MessageToStore[],
  ): Promise<Map<string, number>> {
    const sizes = new Map<string, number>();
    for (const [sessionId, own] of Map.groupBy(messages, ({ session_id: id }) => id)) {
      const turns = [...new Set(own.map(({ turn }) => turn))];
      const { rows } = await measureTurns(this.context.database.tables, {
        owner,
        sessionId,
        turns,
      });
      for (const { turn, bytes } of rows)
        sizes.set(formatTurn({ session_id: sessionId, turn }), Number(bytes));
    }
    return sizes;
  }

  /** Continues the numbers of imported sessions after their last message and branch, and shows a branch that exists. */
  async completeSession(owner: string, sessionId: string): Promise<void> {
    await this.context.database.write(async (tables) => {
      await completeBranches(tables, owner, sessionId);
      const last = (column: 'seq' | 'turn') =>
        tables
          .selectFrom('messages')
          .select((e) => e.fn.coalesce(e.fn.max(column), sql.lit(0)).as('last'))
          .where('owner', '=', owner)
          .where('session_id', '=', sessionId);
      const session = updateSession(tables, owner, sessionId);
      await session
        .set({ last_seq: last('seq'), last_turn: last('turn') })
        .where((e) => e.or([e('last_seq', '<', last('seq')), e('last_turn', '<', last('turn'))]))
        .execute();
      await session
        .set((e) => ({
          active_message_id: e
            .selectFrom('messages')
            .select('messages.id')
            .whereRef('messages.owner', '=', 'sessions.owner')
            .whereRef('messages.session_id', '=', 'sessions.id')
            .whereRef('messages.branch', '=', 'sessions.active_branch')
            .orderBy('turn', 'desc')
            .orderBy('seq', 'desc')
            .limit(1),
        }))
        .where('active_message_id', 'is', null)
        .execute();
    });
  }
}

const STORED_BYTES = sql`${sql.lit(ROW_BYTES)} + octet_length(content) + coalesce(octet_length(parts), 0)`;

interface TurnsToMeasure extends SessionKey {
  readonly turns: readonly number[];
}

/**
 * Finds the branches one after the other, and then the turns on each: in the index, branches come before turns. The range
 * limits how much is read of it; a lookup of each turn would be slower in a session of very many branches.
 */
const measureTurns = (tables: Kysely<Schema>, { owner, sessionId, turns }: TurnsToMeasure) =>
  sql<{ turn: number; bytes: number }>`with recursive known(branch) as (
      select min(branch) from messages where owner = ${owner} and session_id = ${sessionId}
      union all
      select (select min(m.branch) from messages m where m.owner = ${owner}
        and m.session_id = ${sessionId} and m.branch > known.branch)
      from known where known.branch is not null)
    select messages.turn, sum(${STORED_BYTES}) as bytes from known cross join messages
    where owner = ${owner} and session_id = ${sessionId} and messages.branch = known.branch
      and turn >= ${Math.min(...turns)} and turn <= ${Math.max(...turns)}
      and turn + 0 in (${sql.join(turns)})
    group by messages.turn`.execute(tables);

const formatTurn = ({ session_id: sessionId, turn }: Pick<MessageRow, 'session_id' | 'turn'>) =>
  `${sessionId} ${turn}`;

const updateSession = (tables: Kysely<Schema>, owner: string, id: string) =>
  tables.updateTable('sessions').where('owner', '=', owner).where('id', '=', id);

async function completeBranches(
  tables: Kysely<Schema>,
  owner: string,
  sessionId: string,
): Promise<void> {
  const key = { owner, session_id: sessionId };
  const branches = tables.selectFrom('branches').where((e) => e.and(key));
  const session = updateSession(tables, owner, sessionId);
  const last = branches.select((e) => e.fn.coalesce(e.fn.max('branch'), sql.lit(0)).as('last'));
  await session.set({ last_branch: last }).where('last_branch', '<', last).execute();
  await session
    .set({ active_branch: 0, active_message_id: null })
    .where('active_branch', '<>', 0)
    .where('active_branch', 'not in', branches.select('branch'))
    .execute();
}

function toJob({
  id,
  progress,
  created_at,
  updated_at,
}: Insertable<Schema['import_jobs']>): ImportJob {
  return {
    ...(JSON.parse(progress) as ImportProgress),
    id,
    createdAt: new Date(created_at).toISOString(),
    updatedAt: new Date(updated_at).toISOString(),
  };
}

async function insertOne(tables: Kysely<Schema>, name: string, row: StoredRow): Promise<number> {
  const columns = Object.keys(row);
  const { numAffectedRows } = await sql`insert into ${sql.table(name)}
    (${sql.join(columns.map((column) => sql.ref(column)))})
    values (${sql.join(columns.map((column) => row[column]))})
    on conflict do nothing`.execute(tables);
  return Number(numAffectedRows ?? 0);
}

/** The columns that the table has, if their types fit; empty otherwise. */
function fitRow(table: OwnedTable, owner: string, row: StoredRow): StoredRow[] {
  const known = table.columns.filter(({ name }) => Object.hasOwn(row, name));
  if (!known.every(({ name, kind }) => fits(kind, row[name] ?? null))) return [];
  const values = known.map(({ name }) => [name, row[name] ?? null] as const);
  return [{ ...Object.fromEntries(values), [table.ownerColumn]: owner }];
}

function fits(kind: string, value: StoredValue): boolean {
  if (value === null) return true;
  switch (kind) {
    case 'text':
      return typeof value === 'string';
    case 'number':
      return typeof value === 'number' && Number.isFinite(value);
    case 'bytes':
      return value instanceof Uint8Array;
    default:
      return false;
  }
}
