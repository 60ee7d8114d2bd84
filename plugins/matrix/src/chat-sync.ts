import { setTimeout as delay } from 'node:timers/promises';
import {
  type HostMessages,
  type Logger,
  type PluginDatabase,
  type SafeFetch,
  SafeFetchError,
} from '@sibyl/plugin-kit';
import type { Inbox, InboxWorker } from '@sibyl/plugin-kit/chat';
import type { z } from 'zod';
import type { MatrixChannel } from './chat-channel.js';
import {
  dropBeforeJoin,
  EVENT_TYPES,
  findRedacted,
  isOwnJoin,
  listInvites,
  MatrixMessage,
  MessagesReply,
  type RoomEvent,
  type RoomMessage,
  readMessage,
  SyncReply,
  type Timeline,
  toFilter,
} from './chat-events.js';
import type { ChatThreads } from './chat-threads.js';
import { encodeSegment, type Homeserver, MatrixError, requestMatrix } from './homeserver.js';
import type { MatrixTables } from './rooms.js';

/** A host that does not sync for this long has died, or is stuck; another one continues. */
const LEASE_MS = 90_000;
/** How often other hosts look whether the one that syncs is still there. */
const CLAIM_MS = 5_000;
/** How long the homeserver waits for news. */
const POLL_MS = 30_000;
const SYNC_LIMITS = { maxBytes: 32 * 1024 ** 2, timeoutMs: POLL_MS + 15_000 };
/** Events of a room in one sync; earlier ones are read page by page. */
const TIMELINE_LENGTH = 50;
const PAGE_LENGTH = 100;
/** Of a room, after an outage; messages before that are not answered. */
const MAX_PAGES = 20;
const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 60_000;

interface ChatSyncDeps {
  readonly homeserver: Homeserver;
  readonly fetch: SafeFetch;
  /** For requests that wait for news. */
  readonly longPoll: SafeFetch;
  readonly database: PluginDatabase<MatrixTables>;
  readonly hosts: Pick<HostMessages, 'hostId' | 'findDead'>;
  /** The DID of the oracle. */
  readonly oracle: string;
  readonly inbox: Inbox<MatrixMessage>;
  readonly worker: Pick<InboxWorker<MatrixMessage>, 'start'>;
  readonly channel: MatrixChannel;
  readonly threads: ChatThreads;
  readonly isAllowed: (userId: string) => Promise<boolean>;
  readonly readAccount: () => Promise<string>;
  readonly onRedacted: (redacted: Redacted) => Promise<void>;
  readonly signal: AbortSignal;
  readonly logger: Logger;
}

/**
 * Receives what happens in the rooms of the oracle. One host at a time does, for all hosts of the database; the position
 * in the stream is stored together with the messages, so that none is lost or received twice.
 */
export class ChatSync {
  private failures = 0;
  private timelineLength = TIMELINE_LENGTH;

  constructor(private readonly deps: ChatSyncDeps) {}

  /** Runs until the signal aborts. */
  async run(): Promise<void> {
    const { signal } = this.deps;
    while (!signal.aborted) {
      const pauseMs = await this.runRound().catch((error) => this.handleFailure(error));
      await delay(pauseMs, undefined, { signal }).catch(() => undefined);
    }
    await this.release(this.deps.hosts.hostId).catch(() => undefined);
  }

  /** Returns how long to wait before the next round. */
  private async runRound(): Promise<number> {
    const account = await this.deps.readAccount();
    const place = await this.claim(account);
    if (!place) return (await this.releaseDead(account)) ? 0 : CLAIM_MS;
    await this.sync(account, place.since);
    this.failures = 0;
    return 0;
  }

  private handleFailure(error: unknown): number {
    const { signal, logger } = this.deps;
    if (signal.aborted) return 0;
    // One event of each room fits.
    if (isTooLarge(error)) this.timelineLength = 1;
    this.failures += 1;
    const limit = error instanceof MatrixError ? error.retryAfterMs : undefined;
    const pauseMs = limit ?? FIRST_PAUSE_MS * 2 ** Math.min(6, this.failures - 1);
    logger.warn({ err: error, pauseMs }, 'cannot read messages from Matrix; trying again');
    return Math.min(LONGEST_PAUSE_MS, pauseMs);
  }

  private async sync(account: string, since: string | null): Promise<void> {
    const { signal, homeserver, longPoll } = this.deps;
    const query = new URLSearchParams({
      filter: JSON.stringify(toFilter(this.timelineLength)),
      ...(since !== null && { since, timeout: String(POLL_MS) }),
    });
    const reply = await requestMatrix(
      homeserver,
      { path: `/sync?${query}`, reply: SyncReply, signal, limits: SYNC_LIMITS },
      longPoll,
    );
    this.timelineLength = TIMELINE_LENGTH;
    const invites = listInvites(reply, account, since ?? '');
    // What was said before the first sync was not said to this oracle.
    const read =
      since === null ? { messages: [], redacted: [] } : await this.readRooms(reply, account, since);
    const received = [...invites, ...read.messages];
    const accepted = await this.accept({ account, since, next: reply.next_batch }, received);
    for (const message of accepted) this.deps.worker.start({ message, replies: [] });
    for (const redacted of read.redacted) await this.deps.onRedacted(redacted);
  }

  private async readRooms(reply: SyncReply, account: string, since: string) {
    const messages: MatrixMessage[] = [];
    const redacted: Redacted[] = [];
    for (const [roomId, { timeline }] of Object.entries(reply.rooms?.join ?? {})) {
      const events = timeline ? await this.readRoom({ roomId, timeline, account, since }) : [];
      const deleted = events.flatMap((event) => findRedacted(event) ?? []);
      redacted.push(...deleted.map((eventId) => ({ roomId, eventId })));
      for (const event of events) {
        const message = readMessage(event, { roomId, account });
        if (message && (await this.isForOracle(message)))
          messages.push(MatrixMessage.parse(message));
      }
    }
    return { messages, redacted };
  }

  /** What happened in a room since the last sync, and since the oracle joined. */
  private async readRoom({ roomId, timeline, account, since }: RoomNews): Promise<RoomEvent[]> {
    const { events, limited, prev_batch: from } = timeline;
    const isComplete = !limited || !from || events.some((event) => isOwnJoin(event, account));
    const missed = isComplete ? [] : await this.readMissed({ roomId, from, since, account });
    const all = dropBeforeJoin([...missed, ...events], account);
    if (all.some(({ type }) => type === 'm.room.member')) this.deps.channel.forgetMembers(roomId);
    return all;
  }

  /** In rooms with several people, the oracle answers those who mention it, and continues the threads that they began. */
  private async isForOracle(message: RoomMessage): Promise<boolean> {
    const { channel, threads, isAllowed } = this.deps;
    if (!(await isAllowed(message.sender))) return false;
    if (message.kind === 'encrypted') return !(await this.isAnnounced(message));
    if (message.isMention) return true;
    if (message.isInThread && (await threads.isKnown(message))) return true;
    return channel.isDirect(message.roomId);
  }

  /** Whether the oracle has said lately that the room is encrypted. */
  private async isAnnounced({ roomId }: RoomMessage): Promise<boolean> {
    const notice = await this.deps.database.tables
      .selectFrom('matrix_inbox')
      .select('owner')
      .where('event_id', '=', `encrypted ${roomId}`)
      .executeTakeFirst();
    return notice !== undefined;
  }

  /** What was said in a room while no host was there, oldest first. */
  private async readMissed({ roomId, from, since, account }: Gap): Promise<RoomEvent[]> {
    const { homeserver, fetch, signal } = this.deps;
    const events: RoomEvent[] = [];
    const filter = JSON.stringify({ types: EVENT_TYPES });
    const fixed = { dir: 'b', to: since, limit: String(PAGE_LENGTH), filter };
    let next: string | undefined = from;
    for (let page = 0; page < MAX_PAGES && next !== undefined; page += 1) {
      const query: URLSearchParams = new URLSearchParams({ ...fixed, from: next });
      const path: string = `/rooms/${encodeSegment(roomId)}/messages?${query}`;
      const { chunk, end }: z.infer<typeof MessagesReply> = await requestMatrix(
        homeserver,
        { path, reply: MessagesReply, signal, limits: SYNC_LIMITS },
        fetch,
      );
      events.push(...chunk);
      if (chunk.some((event) => isOwnJoin(event, account))) break;
      next = end;
    }
    return events.reverse();
  }

  /** Where to continue, if this host is the one that syncs now. */
  private claim(account: string): Promise<{ readonly since: string | null } | undefined> {
    const { database, oracle: owner, hosts } = this.deps;
    const now = database.now();
    return database.write(async (tables) => {
      await tables
        .insertInto('matrix_sync')
        .values({ owner, account, since: null, holder: '', lease_until: 0 })
        .onConflict((c) => c.doNothing())
        .execute();
      return tables
        .updateTable('matrix_sync')
        .set({ holder: hosts.hostId, lease_until: now + LEASE_MS })
        .where('owner', '=', owner)
        .where('account', '=', account)
        .where((e) => e.or([e('holder', '=', hosts.hostId), e('lease_until', '<', now)]))
        .returning('since')
        .executeTakeFirst();
    });
  }

  /** Stores messages and the position after them; returns those that were not stored before. */
  private accept(
    { account, since, next }: Progress,
    messages: readonly MatrixMessage[],
  ): Promise<readonly MatrixMessage[]> {
    const { database, inbox, oracle: owner, hosts } = this.deps;
    return database.write(async (tables) => {
      const moved = await tables
        .updateTable('matrix_sync')
        .set({ since: next, lease_until: database.now() + LEASE_MS })
        .where('owner', '=', owner)
        .where('account', '=', account)
        .where('holder', '=', hosts.hostId)
        .where('since', since === null ? 'is' : '=', since)
        .returning('account')
        .executeTakeFirst();
      // Another host has taken over, and reads the same messages.
      if (!moved) return [];
      const accepted: MatrixMessage[] = [];
      for (const message of messages)
        if (await inbox.insert(tables, message)) accepted.push(message);
      return accepted;
    });
  }

  /** Lets another host continue at once. */
  private async release(holder: string): Promise<void> {
    await this.deps.database.write(async (tables) => {
      await tables
        .updateTable('matrix_sync')
        .set({ lease_until: 0 })
        .where('owner', '=', this.deps.oracle)
        .where('holder', '=', holder)
        .execute();
    });
  }

  /** Whether the host that synced has died, and this one can continue at once. */
  private async releaseDead(account: string): Promise<boolean> {
    const { database, hosts, oracle } = this.deps;
    const held = await database.tables
      .selectFrom('matrix_sync')
      .select('holder')
      .where('owner', '=', oracle)
      .where('account', '=', account)
      .execute();
    const dead = await hosts.findDead(held.map(({ holder }) => holder));
    for (const holder of dead) await this.release(holder);
    return dead.length > 0;
  }
}

/** An event that was deleted in a room. */
interface Redacted {
  readonly roomId: string;
  readonly eventId: string;
}

interface Progress {
  readonly account: string;
  readonly since: string | null;
  readonly next: string;
}

interface RoomNews extends Omit<Gap, 'from'> {
  readonly timeline: Timeline;
}

interface Gap {
  readonly roomId: string;
  readonly from: string;
  readonly since: string;
  readonly account: string;
}

const isTooLarge = (error: unknown): boolean =>
  error instanceof Error &&
  error.cause instanceof SafeFetchError &&
  error.cause.code === 'too_large';
