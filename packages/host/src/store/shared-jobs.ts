import { randomUUID } from 'node:crypto';
import { type Kysely, type RawBuilder, sql } from 'kysely';
import type { StoreContext } from './database.js';
import type { Schema } from './schema/index.js';

/** Work that is due at certain times, once for all hosts on a database. */
export class JobClaims {
  constructor(private readonly context: StoreContext) {}

  /** Whether this host does the work that is due at a time: the first that asks. A single host always does it. */
  async take(job: string, due: number): Promise<boolean> {
    const { database } = this.context;
    if (database.engine === 'sqlite') return true;
    return database.write(async (tables) => {
      const { rows } = await sql`insert into database_info (key, value)
        values (${`job ${job}`}, ${String(due)})
        on conflict (key) do update set value = excluded.value
          where database_info.value::bigint < excluded.value::bigint
        returning key`.execute(tables);
      return rows.length > 0;
    });
  }
}

/** An erasure that its user has confirmed. */
export interface ErasureRequest {
  readonly owner: string;
  readonly id: string;
  /** The host that works on it. */
  readonly hostId: string;
}

/** The erasures of users that have not ended: any host can continue them. */
export class ErasureRequests {
  constructor(private readonly context: StoreContext) {}

  /** Stores a request; returns the one that has not ended, if there is one. */
  async add(owner: string, hostId: string): Promise<ErasureRequest> {
    const value = `${randomUUID()} ${hostId}`;
    const kept = sql<string>`substr(database_info.value, 1, ${sql.lit(ID_CHARS)}) || ${` ${hostId}`}`;
    const stored = await this.context.database.write((tables) =>
      tables
        .insertInto('database_info')
        .values({ key: toKey(owner), value })
        .onConflict((c) => c.column('key').doUpdateSet({ value: kept }))
        .returning(['key', 'value'])
        .executeTakeFirstOrThrow(),
    );
    return toRequest(stored);
  }

  async list(): Promise<readonly ErasureRequest[]> {
    const rows = await selectErasures(this.context.database.tables).execute();
    return rows.map(toRequest);
  }

  /** From now on this host works on it; false if it has ended. */
  async takeOver(request: ErasureRequest, hostId: string): Promise<boolean> {
    const { numUpdatedRows } = await this.context.database.write((tables) =>
      tables
        .updateTable('database_info')
        .set({ value: `${request.id} ${hostId}` })
        .where('key', '=', toKey(request.owner))
        .where('value', 'like', `${request.id} %`)
        .executeTakeFirstOrThrow(),
    );
    return numUpdatedRows > 0n;
  }

  /** Forgets a request: it is fulfilled, or its user is to ask again. */
  async end({ owner, id }: ErasureRequest): Promise<void> {
    await this.context.database.write((tables) =>
      tables
        .deleteFrom('database_info')
        .where('key', '=', toKey(owner))
        .where('value', 'like', `${id} %`)
        .execute(),
    );
  }
}

/** Copies the open erasures to another database, whose hosts continue them. */
export async function copyErasures(from: Kysely<Schema>, to: Kysely<Schema>): Promise<void> {
  const rows = await selectErasures(from).execute();
  for (const row of rows) await to.insertInto('database_info').values(row).execute();
}

const selectErasures = (tables: Kysely<Schema>) =>
  tables.selectFrom('database_info').select(['key', 'value']).where('key', 'like', `${PREFIX}%`);

const PREFIX = 'erasure ';
/** Of a UUID. */
const ID_CHARS = 36;

const toKey = (owner: string) => `${PREFIX}${owner}`;

const toRequest = ({ key, value }: Schema['database_info']): ErasureRequest => ({
  owner: key.slice(PREFIX.length),
  id: value.slice(0, ID_CHARS),
  hostId: value.slice(ID_CHARS + 1),
});

/** Whether an erasure has not ended, as a condition of a statement. */
export const isRequested = ({ owner, id }: ErasureRequest): RawBuilder<unknown> =>
  sql`exists (select 1 from database_info as info
    where info.key = ${toKey(owner)} and info.value like ${`${id} %`})`;
