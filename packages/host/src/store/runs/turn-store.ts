import type { RunStatus } from '@sibyl/protocol';
import type { StoreContext } from '../database.js';
import { type Run, toRun } from './run.js';

/** A turn of a user: its first run, and the latest one. */
export interface StoredTurn {
  readonly first: Run;
  readonly latest: Run;
}

interface TurnQuery {
  readonly owner: string;
  /** Default: all sessions. */
  readonly sessionId?: string | undefined;
  readonly statuses?: readonly RunStatus[] | undefined;
  readonly updatedAfter?: number | undefined;
}

interface TurnPageQuery extends TurnQuery {
  readonly limit: number;
  /** The latest run of a turn: those before it. */
  readonly before?: string | undefined;
}

/** The turns of users, in the order in which their latest runs began. */
export class TurnStore {
  constructor(private readonly context: StoreContext) {}

  /** Newest first, and how many there are. */
  async list({ limit, before, ...query }: TurnPageQuery): Promise<{
    readonly turns: readonly StoredTurn[];
    readonly total: number;
  }> {
    const page = this.select(query)
      .selectAll()
      .$if(before !== undefined, (q) => q.where('id', '<', before ?? ''))
      .orderBy('id', 'desc')
      .limit(limit);
    const latest = (await page.execute()).map(toRun);
    const { total } = await this.select(query)
      .select((e) => e.fn.countAll<number>().as('total'))
      .executeTakeFirstOrThrow();
    const firsts = await Promise.all(latest.map((run) => this.findFirst(run)));
    const turns = latest.map((run, i) => ({ latest: run, first: firsts[i] ?? run }));
    return { turns, total: Number(total) };
  }

  private select({ owner, sessionId, statuses, updatedAfter }: TurnQuery) {
    return (
      this.context.database.tables
        .selectFrom('runs')
        .where('owner', '=', owner)
        .where('status', '<>', 'continued')
        .$if(sessionId !== undefined, (q) => q.where('session_id', '=', sessionId ?? ''))
        // Never an empty list, which is not valid SQL.
        .$if(statuses !== undefined, (q) =>
          q.where('status', 'in', ['continued', ...(statuses ?? [])]),
        )
        .$if(updatedAfter !== undefined, (q) => q.where('updated_at', '>=', updatedAfter ?? 0))
    );
  }

  private async findFirst(run: Run): Promise<Run | undefined> {
    if (run.attempt === 1) return run;
    const row = await this.context.database.tables
      .selectFrom('runs')
      .selectAll()
      .where('owner', '=', run.owner)
      .where('session_id', '=', run.sessionId)
      .where('turn', '=', run.turn)
      .orderBy('attempt')
      .limit(1)
      .executeTakeFirst();
    return row && toRun(row);
  }
}
