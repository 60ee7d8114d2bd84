import type { PluginDatabase } from '@sibyl/plugin-kit';
import type { PluginTurns } from '@sibyl/plugin-kit/chat';
import type { SlackMessage } from './delivery.js';
import { getOwner, type SlackTables, type Tables } from './inbox.js';
import type { ReplyPlace } from './live-reply.js';

/** The thread of a direct conversation outside of threads. */
const DIRECT = '';
/** The thread of slash commands in a channel. */
export const COMMANDS = 'commands';

interface ThreadsDeps {
  readonly database: PluginDatabase<SlackTables>;
  readonly turns: Pick<PluginTurns, 'openSession'>;
}

type Place = Pick<SlackMessage, 'team' | 'user' | 'channel' | 'thread'>;

/** Maps threads to sessions, per user. */
export class Threads {
  private readonly deps: ThreadsDeps;

  constructor(deps: ThreadsDeps) {
    this.deps = deps;
  }

  /** Returns the user's session in the message's thread, or opens one. */
  async openSession(message: Place): Promise<string> {
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

  /** The user's session in a thread, if there is one. */
  findSession(place: Place): Promise<string | undefined> {
    return find(this.deps.database.tables, place);
  }

  /** Forgets a session: the next message of its thread opens another. */
  async remove(message: Place, sessionId: string): Promise<void> {
    await this.deps.database.write(async (tables) => {
      await tables
        .deleteFrom('slack_threads')
        .where((e) => e.and(toPlace(message)))
        .where('session_id', '=', sessionId)
        .execute();
    });
  }

  /** The conversation that a session of the user belongs to; none for slash commands, whose answers only the user sees. */
  async findPlace(owner: string, sessionId: string): Promise<ReplyPlace | undefined> {
    const row = await this.deps.database.tables
      .selectFrom('slack_threads')
      .select(['channel', 'thread'])
      .where('owner', '=', owner)
      .where('session_id', '=', sessionId)
      .executeTakeFirst();
    if (!row || row.thread === COMMANDS) return undefined;
    return { channel: row.channel, thread: row.thread || undefined };
  }
}

/** The host identifies the user as `did:slack:<team>:<user>`. */
export const getUserId = ({ team, user }: Pick<SlackMessage, 'team' | 'user'>) => `${team}:${user}`;

function toPlace(message: Place) {
  const { channel, thread = DIRECT } = message;
  return { owner: getOwner(message), channel, thread };
}

async function find(tables: Tables, message: Place): Promise<string | undefined> {
  const row = await tables
    .selectFrom('slack_threads')
    .select('session_id')
    .where((e) => e.and(toPlace(message)))
    .executeTakeFirst();
  return row?.session_id;
}
