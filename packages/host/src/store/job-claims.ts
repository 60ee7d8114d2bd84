import { sql } from 'kysely';
import type { StoreContext } from './database.js';

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
