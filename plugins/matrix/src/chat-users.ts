import type { DelegatedTurns, PluginTurn, PluginTurns, RunPermission } from '@sibyl/plugin-kit';
import type { ReplyPart } from '@sibyl/protocol';
import { toOwner, toUser } from './chat-events.js';
import type { ChatLinks, Link } from './chat-links.js';

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

  /** `ended`: why the account is no longer linked. */
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
