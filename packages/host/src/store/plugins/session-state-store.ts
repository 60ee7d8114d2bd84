import type { SessionState } from '@sibyl/plugin-kit';
import { OracleError } from '@sibyl/protocol';
import { prepared } from '../database/prepared.js';
import type { StoreContext } from '../database/store-context.js';

/** As much as a message may bring, such as the tools of a page. */
const MAX_LENGTH = 1024 * 1024;

interface StatePlace {
  readonly owner: string;
  readonly sessionId: string;
  readonly plugin: string;
}

const findState = prepared(
  (tables, { owner, sessionId, plugin, key }: StatePlace & { readonly key: string }) =>
    tables
      .selectFrom('session_state')
      .select('value')
      .where('session_id', '=', sessionId)
      .where('owner', '=', owner)
      .where('plugin', '=', plugin)
      .where('key', '=', key),
);

/** What plugins keep for as long as a session lives; it goes with the session. */
export class SessionStateStore {
  readonly #context: StoreContext;

  constructor(context: StoreContext) {
    this.#context = context;
  }

  /** One plugin's part of one session. */
  of(place: StatePlace): SessionState {
    return {
      get: (key) => this.#get(place, key),
      set: (key, value) =>
        value === undefined ? this.#remove(place, key) : this.#put(place, key, textOf(key, value)),
    };
  }

  async #get(place: StatePlace, key: string): Promise<unknown> {
    const { rows } = await findState(this.#context.database.tables, { ...place, key });
    return rows[0] && JSON.parse(rows[0].value);
  }

  #put({ owner, sessionId, plugin }: StatePlace, key: string, value: string): Promise<void> {
    return this.#context.database.write(async (tables) => {
      const session = await tables
        .selectFrom('sessions')
        .select('id')
        .where('owner', '=', owner)
        .where('id', '=', sessionId)
        .executeTakeFirst();
      if (!session) throw new OracleError('session_not_found');
      await tables
        .insertInto('session_state')
        .values({ session_id: sessionId, owner, plugin, key, value })
        .onConflict((c) => c.columns(['session_id', 'plugin', 'key']).doUpdateSet({ value }))
        .execute();
    });
  }

  async #remove({ owner, sessionId, plugin }: StatePlace, key: string): Promise<void> {
    await this.#context.database.write((tables) =>
      tables
        .deleteFrom('session_state')
        .where('session_id', '=', sessionId)
        .where('owner', '=', owner)
        .where('plugin', '=', plugin)
        .where('key', '=', key)
        .execute(),
    );
  }
}

function textOf(key: string, value: unknown): string {
  const text = JSON.stringify(value);
  if (text === undefined) throw new Error(`The state ${key} is nothing JSON can hold`);
  if (text.length <= MAX_LENGTH) return text;
  throw new Error(`The state ${key} is longer than ${MAX_LENGTH} characters: keep it in a blob`);
}
