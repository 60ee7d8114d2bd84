import type { PluginDatabase, PluginTurns } from '@sibyl/plugin-kit';
import type { SlackMessage } from './delivery.js';
import type { SlackTables, Tables } from './inbox.js';

/** A direct conversation outside of threads is a thread of its own. */
const DIRECT = '';

interface ThreadsParts {
  readonly database: PluginDatabase<SlackTables>;
  readonly turns: PluginTurns;
}

/** Which session belongs to which thread; each user has their own. */
export class Threads {
  readonly #parts: ThreadsParts;

  constructor(parts: ThreadsParts) {
    this.#parts = parts;
  }

  /** The user's session in the message's thread; opens one if there is none. */
  async sessionOf(message: SlackMessage): Promise<string> {
    const { database, turns } = this.#parts;
    const known = await find(database.tables, message);
    if (known !== undefined) return known;
    const { sessionId } = await turns.openSession(userOf(message));
    return database.write(async (tables) => {
      await tables
        .insertInto('slack_threads')
        .values({ ...placeOf(message), session_id: sessionId })
        .onConflict((c) => c.doNothing())
        .execute();
      // Of two that came at once, both get the first one's.
      return (await find(tables, message)) ?? sessionId;
    });
  }

  /** For a session that is gone. */
  async forget(message: SlackMessage, sessionId: string): Promise<void> {
    await this.#parts.database.write(async (tables) => {
      await tables
        .deleteFrom('slack_threads')
        .where((e) => e.and(placeOf(message)))
        .where('session_id', '=', sessionId)
        .execute();
    });
  }
}

/** The user as the host knows them: `did:slack:<team>:<user>`. */
export const userOf = ({ team, user }: SlackMessage) => `${team}:${user}`;

const placeOf = ({ team, channel, user, thread = DIRECT }: SlackMessage) => ({
  team,
  channel,
  thread,
  user_id: user,
});

async function find(tables: Tables, message: SlackMessage): Promise<string | undefined> {
  const row = await tables
    .selectFrom('slack_threads')
    .select('session_id')
    .where((e) => e.and(placeOf(message)))
    .executeTakeFirst();
  return row?.session_id;
}
