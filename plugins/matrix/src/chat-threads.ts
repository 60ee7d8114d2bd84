import type { PluginDatabase } from '@sibyl/plugin-kit';
import type { ReplyPlace } from './chat-channel.js';
import type { MatrixMessage } from './chat-events.js';
import type { MatrixTables } from './rooms.js';

interface ThreadKey extends ReplyPlace {
  readonly owner: string;
}

/** Maps threads to sessions, for each user. */
export class ChatThreads {
  constructor(private readonly database: PluginDatabase<MatrixTables>) {}

  async find({ owner, roomId, thread }: ThreadKey): Promise<string | undefined> {
    const row = await this.database.tables
      .selectFrom('matrix_threads')
      .select('session_id')
      .where('owner', '=', owner)
      .where('room_id', '=', roomId)
      .where('thread', '=', thread)
      .executeTakeFirst();
    return row?.session_id;
  }

  /** Returns the session of the thread: of two concurrent messages, both get that of the first. */
  async add(key: ThreadKey, sender: string, sessionId: string): Promise<string> {
    const { owner, roomId, thread } = key;
    await this.database.write((tables) =>
      tables
        .insertInto('matrix_threads')
        .values({ owner, room_id: roomId, thread, sender, session_id: sessionId })
        .onConflict((c) => c.doNothing())
        .execute(),
    );
    return (await this.find(key)) ?? sessionId;
  }

  /** Forgets a session: the next message of its thread opens another. */
  async remove({ owner, roomId, thread }: ThreadKey, sessionId: string): Promise<void> {
    await this.database.write((tables) =>
      tables
        .deleteFrom('matrix_threads')
        .where('owner', '=', owner)
        .where('room_id', '=', roomId)
        .where('thread', '=', thread)
        .where('session_id', '=', sessionId)
        .execute(),
    );
  }

  /** Whether the sender talks with the oracle in this thread. */
  async isKnown({ roomId, thread, sender }: MatrixMessage): Promise<boolean> {
    const row = await this.database.tables
      .selectFrom('matrix_threads')
      .select('thread')
      .where('room_id', '=', roomId)
      .where('thread', '=', thread)
      .where('sender', '=', sender)
      .executeTakeFirst();
    return row !== undefined;
  }

  /** The thread that a session of the user belongs to. */
  async findPlace(owner: string, sessionId: string): Promise<ReplyPlace | undefined> {
    const row = await this.database.tables
      .selectFrom('matrix_threads')
      .select(['room_id', 'thread'])
      .where('owner', '=', owner)
      .where('session_id', '=', sessionId)
      .executeTakeFirst();
    return row && { roomId: row.room_id, thread: row.thread };
  }
}
