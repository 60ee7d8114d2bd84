import type { DelegatedTurns, PluginDatabase, RunPermission } from '@sibyl/plugin-kit';
import type { PluginTurn, PluginTurns } from '@sibyl/plugin-kit/chat';
import type { ReplyPart } from '@sibyl/protocol';
import type { ReplyPlace } from './chat-channel.js';
import { type MatrixMessage, toOwner, toUser } from './chat-events.js';
import type { ChatLinks, Link } from './chat-links.js';
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

type ChatTurn = Pick<PluginTurn, 'sessionId' | 'message' | 'metadata'> & {
  readonly idempotencyKey: string;
};

/** A person in a room, as whom turns run. */
export interface ChatUser {
  /** The DID. */
  readonly owner: string;
  openSession(): Promise<string>;
  start(turn: ChatTurn): Promise<AsyncIterable<ReplyPart>>;
  abort(sessionId: string): Promise<boolean>;
}

interface ChatUsersDeps {
  readonly turns: PluginTurns;
  readonly delegatedTurns: DelegatedTurns;
  readonly links: ChatLinks;
}

export const CLIENT = 'matrix';

/** Knows as whom the messages of a Matrix account are answered. */
export class ChatUsers {
  constructor(private readonly deps: ChatUsersDeps) {}

  /** `ended`: why the link of the account has ended. */
  async find(userId: string): Promise<{ readonly user: ChatUser; readonly ended?: string }> {
    const { links, delegatedTurns } = this.deps;
    const link = await links.find(userId);
    if (!link) return { user: this.vouchFor(userId) };
    const permission = links.toPermission(link);
    const reason = await delegatedTurns.check(permission);
    if (reason === undefined) return { user: this.actFor(permission) };
    await links.remove(link);
    return { user: this.vouchFor(userId), ended: describeEnd(link, reason) };
  }

  /** An account that is not linked: the homeserver says who it is. */
  private vouchFor(userId: string): ChatUser {
    const { turns } = this.deps;
    const user = toUser(userId);
    return {
      owner: toOwner(userId),
      openSession: async () => (await turns.openSession(user)).sessionId,
      start: (turn) => turns.start({ ...turn, user, client: CLIENT }),
      abort: (sessionId) => turns.abort({ user, sessionId }),
    };
  }

  /** A linked account: the user's own key says so, for as long as its delegation is valid. */
  private actFor(permission: RunPermission): ChatUser {
    const { turns, delegatedTurns } = this.deps;
    const { owner } = permission;
    return {
      owner,
      openSession: async () =>
        (await delegatedTurns.openSession({ owner, title: 'Matrix' })).sessionId,
      start: async (turn) => {
        const { runId } = await delegatedTurns.start({ ...turn, ...permission, client: CLIENT });
        return turns.join({ owner, runId });
      },
      abort: (sessionId) => delegatedTurns.abort({ owner, sessionId }),
    };
  }
}

const describeEnd = ({ owner, userId }: Link, reason: string) =>
  `${userId} is no longer linked to ${owner}: ${reason}. I answer you as a separate user; link it again with: sibyl matrix link ${userId}`;
