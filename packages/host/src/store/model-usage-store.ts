import type { StoreContext } from './database.js';
import { prepareQuery } from './prepared-query.js';

const KEPT_DAYS = 31;
const DAY_MS = 24 * 60 * 60 * 1000;

/** The tokens that all hosts on this database have spent on models, per day in UTC. */
export class ModelUsageStore {
  private readonly context: StoreContext;

  constructor(context: StoreContext) {
    this.context = context;
  }

  /** Adds tokens to a day and returns the day's total. */
  add(day: string, tokens: number): Promise<number> {
    return this.context.database.write(async (tables) => {
      const { rows } = await addTokens(tables, { day, tokens });
      return rows[0]?.tokens ?? tokens;
    });
  }

  async total(day: string): Promise<number> {
    const { rows } = await selectTokens(this.context.database.tables, { day });
    return rows[0]?.tokens ?? 0;
  }

  /** Deletes days that are more than a month ago. */
  async prune(): Promise<void> {
    const { database, clock } = this.context;
    const first = toUtcDay(clock() - KEPT_DAYS * DAY_MS);
    await database.write((tables) =>
      tables.deleteFrom('model_usage').where('day', '<', first).execute(),
    );
  }
}

/** The day in UTC of a time in milliseconds, such as 2026-01-31. */
export const toUtcDay = (time: number): string => new Date(time).toISOString().slice(0, 10);

const addTokens = prepareQuery((tables, { day, tokens }: { day: string; tokens: number }) =>
  tables
    .insertInto('model_usage')
    .values({ day, tokens })
    .onConflict((c) =>
      c.column('day').doUpdateSet((e) => ({
        tokens: e('model_usage.tokens', '+', e.ref('excluded.tokens')),
      })),
    )
    .returning('tokens'),
);

const selectTokens = prepareQuery((tables, { day }: { day: string }) =>
  tables.selectFrom('model_usage').select('tokens').where('day', '=', day),
);
