import type { PluginDatabase, PluginTurns } from '@sibyl/plugin-kit';
import type { SlackMessage } from './delivery.js';
import { getOwner, type SlackTables, type Tables } from './inbox.js';

/** The thread of a direct conversation outside of threads. */
const DIRECT = '';

interface ThreadsDeps {
  readonly database: PluginDatabase<SlackTables>;
  readonly turns: PluginTurns;
}

/** Maps threads to sessions, per user. */
export class Threads {
  private readonly deps: ThreadsDeps;

  constructor(deps: ThreadsDeps) {
    this.deps = deps;
  }

  /** Returns the user's session in the message's thread, or opens one. */
  async openSession(message: SlackMessage): Promise<string> {
    const { database, turns } = this.deps;
    const known = await find(database.tables, message);
    if (known !== undefined) return known;
    const { sessionId } = await turns.openSession(getUserId(message));
    return database.write(async (tables) => {
      await tables
        .insertInto('slack_threads')
        .values({ ...toPlace(message), session_id: sessionId })
        .onConflict((c) => c.doNothing())
        .execute();
      // Of two concurrent messages, both get the session of the first.
      return (await find(tables, message)) ?? sessionId;
    });
  }

  /** Removes a session that no longer exists. */
  async remove(message: SlackMessage, sessionId: string): Promise<void> {
    await this.deps.database.write(async (tables) => {
      await tables
        .deleteFrom('slack_threads')
        .where((e) => e.and(toPlace(message)))
        .where('session_id', '=', sessionId)
        .execute();
    });
  }
}

/** The host identifies the user as `did:slack:<team>:<user>`. */
export const getUserId = ({ team, user }: SlackMessage) => `${team}:${user}`;

function toPlace(message: SlackMessage) {
  const { channel, thread = DIRECT } = message;
  return { owner: getOwner(message), channel, thread };
}

async function find(tables: Tables, message: SlackMessage): Promise<string | undefined> {
  const row = await tables
    .selectFrom('slack_threads')
    .select('session_id')
    .where((e) => e.and(toPlace(message)))
    .executeTakeFirst();
  return row?.session_id;
}
