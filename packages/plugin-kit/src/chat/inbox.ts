import type { Kysely } from 'kysely';
import { z } from 'zod';
import type { HostMessages, PluginDatabase } from '../context.js';
import { bigint, type ColumnsRow, text } from '../tables/columns.js';
import type { RunReference } from '../turns.js';

/** A host that does not renew its messages for this long has abandoned them, also if it is not known to be dead. */
const LEASE_MS = 60_000;
/** How long an answered message is known, in case it is delivered again. */
const MEMORY_MS = 24 * 60 * 60 * 1000;
/** With the pauses between them, four hours. */
export const MAX_ATTEMPTS = 8;
const FIRST_PAUSE_MS = 5_000;
/** How often paused turns are looked at whose continuation was not noticed, and how many in a round. */
const CHECK_PAUSED_MS = 60_000;
const MAX_CHECKED = 200;

const Replies = z.array(z.string());

/** A message to answer, and the messages that contain its partial answer. */
export interface Waiting<Message> {
  readonly message: Message;
  readonly replies: readonly string[];
}

/** The columns of an inbox; timestamps are milliseconds. The key is `owner` and `event_id`. */
export const inboxColumns = {
  owner: text(),
  event_id: text(),
  /** One message may be delivered as several events; unique for an owner. */
  message_key: text(),
  message: text(),
  /** `paused`: it waits for a paused turn; `continued`: it is answered, now that the turn has continued or ended. */
  state: text<'waiting' | 'paused' | 'continued' | 'done'>(),
  attempts: bigint(),
  /** JSON of the messages that contain the partial answer. */
  replies: text(),
  holder: text(),
  lease_until: bigint(),
  created_at: bigint(),
};

type InboxRow = ColumnsRow<typeof inboxColumns>;

type InboxTables = { inbox: InboxRow };

/** Identifies a message across deliveries. */
export interface MessageIdentity {
  readonly owner: string;
  readonly eventId: string;
  readonly messageKey: string;
  /** The paused turn that it waits for: it is answered once the turn continues or ends, on any host. */
  readonly paused?: PausedTurn | undefined;
}

/** A turn that waits for its user. */
export interface PausedTurn extends RunReference {
  readonly sessionId: string;
}

/** The states of messages that processes answer. */
const OPEN = ['waiting', 'continued'] as const;

interface InboxDeps<Message> {
  readonly database: PluginDatabase;
  /** A table of the plugin with `inboxColumns`. */
  readonly table: string;
  readonly clock: () => number;
  readonly hosts: Pick<HostMessages, 'hostId' | 'findDead'>;
  readonly parse: (message: unknown) => Message;
  readonly identify: (message: Message) => MessageIdentity;
}

/** Stores every message of a chat until it is answered, so that none is lost or answered twice. */
export class Inbox<Message> {
  private readonly database: PluginDatabase<InboxTables>;
  private readonly table: 'inbox';

  constructor(private readonly deps: InboxDeps<Message>) {
    this.database = deps.database;
    // The queries are the same for every table; its name is that of the plugin.
    this.table = deps.table as 'inbox';
  }

  /** Stores a message for this process to answer; false if it is stored already. */
  accept(message: Message): Promise<boolean> {
    return this.database.write((tables) => this.insert(tables, message));
  }

  /** Like `accept`, in a transaction of the plugin. */
  // biome-ignore lint/suspicious/noExplicitAny: each plugin names its own tables.
  async insert(tables: Kysely<any>, message: Message): Promise<boolean> {
    const now = this.deps.clock();
    const inbox: Kysely<InboxTables> = tables;
    const { messageKey, paused } = this.deps.identify(message);
    const held = { state: 'waiting', attempts: 1, holder: this.deps.hosts.hostId } as const;
    const unheld = { state: 'paused', attempts: 0, holder: '' } as const;
    const accepted = await inbox
      .insertInto(this.table)
      .values({
        ...this.toKey(message),
        message_key: messageKey,
        message: JSON.stringify(message),
        replies: '[]',
        lease_until: now + (paused ? CHECK_PAUSED_MS : LEASE_MS),
        created_at: now,
        ...(paused ? unheld : held),
      })
      .onConflict((c) => c.doNothing())
      .returning('event_id')
      .executeTakeFirst();
    return accepted !== undefined;
  }

  /** Records the messages of the answer, for a process that continues it. */
  saveReplies(message: Message, replies: readonly string[]): Promise<void> {
    return this.update(this.toKey(message), { replies: JSON.stringify(replies) });
  }

  finish(message: Message): Promise<void> {
    return this.update(this.toKey(message), { state: 'done' });
  }

  /** Whether the message is still to be answered. */
  async isWaiting(message: Message): Promise<boolean> {
    const row = await this.database.tables
      .selectFrom(this.table)
      .select('state')
      .where((e) => e.and(this.toKey(message)))
      .executeTakeFirst();
    return OPEN.some((state) => state === row?.state);
  }

  /** The paused turn that a message waits for. */
  findPausedTurn(message: Message): PausedTurn | undefined {
    return this.deps.identify(message).paused;
  }

  /** Takes messages that wait for paused turns: some of all, those that have not been looked at for a while, or those named. */
  takePaused(
    which: 'all' | 'due' | readonly Message[],
  ): Promise<readonly { readonly message: Message; readonly paused: PausedTurn }[]> {
    const now = this.deps.clock();
    const latest = which === 'due' ? now : Number.MAX_SAFE_INTEGER;
    const named = typeof which === 'string' ? [] : which.map((message) => this.toKey(message));
    return this.database.write(async (tables) => {
      const rows = await tables
        .updateTable(this.table)
        .set({ lease_until: now + CHECK_PAUSED_MS })
        .where((e) =>
          e(
            e.refTuple('owner', 'event_id'),
            'in',
            e
              .selectFrom(this.table)
              .select(['owner', 'event_id'])
              .where('state', '=', 'paused')
              .where('lease_until', '<', latest)
              .$if(named.length > 0, (some) =>
                some.where((each) => each.or(named.map((key) => each.and(key)))),
              )
              .orderBy('lease_until')
              .limit(MAX_CHECKED)
              .$asTuple('owner', 'event_id'),
          ),
        )
        .where('state', '=', 'paused')
        .returning('message')
        .execute();
      return rows.flatMap((row) => {
        const message = this.deps.parse(JSON.parse(row.message));
        const { paused } = this.deps.identify(message);
        return paused ? [{ message, paused }] : [];
      });
    });
  }

  /** Claims messages that have waited for paused turns, for this process to answer. */
  async claimPaused(messages: readonly Message[]): Promise<readonly Waiting<Message>[]> {
    const keys = messages.map((message) => this.toKey(message));
    if (keys.length === 0) return [];
    const lease_until = this.deps.clock() + LEASE_MS;
    const rows = await this.database.write((tables) =>
      tables
        .updateTable(this.table)
        .set({ state: 'continued', attempts: 1, holder: this.deps.hosts.hostId, lease_until })
        .where('state', '=', 'paused')
        .where((e) => e.or(keys.map((key) => e.and(key))))
        .returningAll()
        .execute(),
    );
    return rows.map((row) => this.toWaiting(row));
  }

  /** A message that waits, by the id of its event; its key is not known to those who only know the event. */
  async findWaiting(eventId: string): Promise<Message | undefined> {
    const row = await this.database.tables
      .selectFrom(this.table)
      .select('message')
      .where('event_id', '=', eventId)
      .where('state', '=', 'waiting')
      .executeTakeFirst();
    return row && this.deps.parse(JSON.parse(row.message));
  }

  /** Schedules another attempt, by any process, up to a limit; not if another process answers the message by now. */
  async postpone(message: Message, attempts: number): Promise<void> {
    const pause = FIRST_PAUSE_MS * 3 ** attempts;
    const again = { holder: '', lease_until: this.deps.clock() + pause };
    const key = { ...this.toKey(message), holder: this.deps.hosts.hostId };
    await this.update(key, attempts < MAX_ATTEMPTS ? again : { state: 'done' });
  }

  /** Releases a message that was not tried, so that any process can take it over immediately. */
  release(message: Message): Promise<void> {
    return this.database.write(async (tables) => {
      await tables
        .updateTable(this.table)
        .set((e) => ({ holder: '', lease_until: 0, attempts: e('attempts', '-', 1) }))
        .where((e) => e.and({ ...this.toKey(message), holder: this.deps.hosts.hostId }))
        .where('state', 'in', OPEN)
        .execute();
    });
  }

  /** Extends the lease of messages that this process answers. */
  async renew(messages: Iterable<Message>): Promise<void> {
    const keys = [...messages].map((message) => this.toKey(message));
    if (keys.length === 0) return;
    await this.database.write(async (tables) => {
      await tables
        .updateTable(this.table)
        .set({ lease_until: this.deps.clock() + LEASE_MS })
        .where('holder', '=', this.deps.hosts.hostId)
        .where('state', 'in', OPEN)
        .where((e) => e.or(keys.map((key) => e.and(key))))
        .execute();
    });
  }

  /** Takes over postponed and abandoned messages, oldest first. */
  async takeOver(
    limit: number,
  ): Promise<readonly (Waiting<Message> & { readonly attempts: number })[]> {
    const now = this.deps.clock();
    const rows = await this.database.write((tables) =>
      tables
        .updateTable(this.table)
        .set((e) => ({
          holder: this.deps.hosts.hostId,
          lease_until: now + LEASE_MS,
          attempts: e('attempts', '+', 1),
        }))
        .where((e) =>
          e(
            e.refTuple('owner', 'event_id'),
            'in',
            e
              .selectFrom(this.table)
              .select(['owner', 'event_id'])
              .where('state', 'in', OPEN)
              .where('lease_until', '<', now)
              .orderBy('created_at')
              .limit(limit)
              .$asTuple('owner', 'event_id'),
          ),
        )
        // Checked again, since another process may have been first.
        .where('state', 'in', OPEN)
        .where('lease_until', '<', now)
        .returningAll()
        .execute(),
    );
    return rows.map((row) => ({ ...this.toWaiting(row), attempts: row.attempts }));
  }

  /** Deletes messages that are not delivered again. */
  async deleteOld(): Promise<void> {
    const before = this.deps.clock() - MEMORY_MS;
    await this.database.write(async (tables) => {
      await tables
        .deleteFrom(this.table)
        .where('state', '=', 'done')
        .where('created_at', '<', before)
        .execute();
    });
  }

  /** What dead hosts were answering can be taken over at once. */
  async releaseDead(): Promise<void> {
    const held = await this.database.tables
      .selectFrom(this.table)
      .select('holder')
      .distinct()
      .where('state', 'in', OPEN)
      .where('holder', 'not in', ['', this.deps.hosts.hostId])
      .execute();
    const dead = await this.deps.hosts.findDead(held.map(({ holder }) => holder));
    if (dead.length === 0) return;
    await this.database.write((tables) =>
      tables
        .updateTable(this.table)
        .set({ holder: '', lease_until: 0 })
        .where('state', 'in', OPEN)
        .where('holder', 'in', dead)
        .execute(),
    );
  }

  private toWaiting({ message, replies }: InboxRow): Waiting<Message> {
    return {
      message: this.deps.parse(JSON.parse(message)),
      replies: Replies.parse(JSON.parse(replies)),
    };
  }

  private toKey(message: Message) {
    const { owner, eventId } = this.deps.identify(message);
    return { owner, event_id: eventId };
  }

  private async update(key: Partial<InboxRow>, values: Partial<InboxRow>): Promise<void> {
    await this.database.write(async (tables) => {
      await tables
        .updateTable(this.table)
        .set(values)
        .where((e) => e.and(key))
        .execute();
    });
  }
}
