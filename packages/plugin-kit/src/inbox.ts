import { randomUUID } from 'node:crypto';
import type { Kysely } from 'kysely';
import { z } from 'zod';
import type { Logger, PluginDatabase } from './context.js';

/** A process that does not renew its messages for this long has abandoned them. */
const LEASE_MS = 60_000;
/** How long an answered message is known, in case it is delivered again. */
const MEMORY_MS = 24 * 60 * 60 * 1000;
/** With the pauses between them, four hours. */
const MAX_ATTEMPTS = 8;
const FIRST_PAUSE_MS = 5_000;
/** Messages that are answered at the same time; the others wait in the database. */
const MAX_RUNNING = 100;

const Replies = z.array(z.string());

/** A message to answer, and the messages that contain its partial answer. */
export interface Waiting<Message> {
  readonly message: Message;
  readonly replies: readonly string[];
}

/** A row of an inbox; timestamps are milliseconds. The key is `owner` and `event_id`. */
export interface InboxRow {
  owner: string;
  event_id: string;
  /** One message may be delivered as several events; unique for an owner. */
  message_key: string;
  message: string;
  state: 'waiting' | 'done';
  attempts: number;
  /** JSON of the messages that contain the partial answer. */
  replies: string;
  holder: string;
  lease_until: number;
  created_at: number;
}

interface InboxTables {
  inbox: InboxRow;
}

/** Identifies a message across deliveries. */
export interface MessageIdentity {
  readonly owner: string;
  readonly eventId: string;
  readonly messageKey: string;
}

interface InboxDeps<Message> {
  readonly database: PluginDatabase;
  /** A table of the plugin with the columns of `InboxRow`. */
  readonly table: string;
  readonly clock: () => number;
  readonly parse: (message: unknown) => Message;
  readonly identify: (message: Message) => MessageIdentity;
}

/** Stores every message of a chat until it is answered, so that none is lost or answered twice. */
export class Inbox<Message> {
  private readonly deps: InboxDeps<Message>;
  private readonly database: PluginDatabase<InboxTables>;
  private readonly table: 'inbox';
  private readonly holder = randomUUID();

  constructor(deps: InboxDeps<Message>) {
    this.deps = deps;
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
    const accepted = await inbox
      .insertInto(this.table)
      .values({
        ...this.toKey(message),
        message_key: this.deps.identify(message).messageKey,
        message: JSON.stringify(message),
        state: 'waiting',
        attempts: 1,
        replies: '[]',
        holder: this.holder,
        lease_until: now + LEASE_MS,
        created_at: now,
      })
      .onConflict((c) => c.doNothing())
      .returning('event_id')
      .executeTakeFirst();
    return accepted !== undefined;
  }

  /** Records the messages of the answer, for a process that continues it. */
  saveReplies(message: Message, replies: readonly string[]): Promise<void> {
    return this.update(message, { replies: JSON.stringify(replies) });
  }

  finish(message: Message): Promise<void> {
    return this.update(message, { state: 'done' });
  }

  /** Whether the message is still to be answered. */
  async isWaiting(message: Message): Promise<boolean> {
    const row = await this.database.tables
      .selectFrom(this.table)
      .select('state')
      .where((e) => e.and(this.toKey(message)))
      .executeTakeFirst();
    return row?.state === 'waiting';
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

  /** Schedules another attempt, by any process, up to a limit. */
  async postpone(message: Message, attempts: number): Promise<void> {
    if (attempts >= MAX_ATTEMPTS) return this.finish(message);
    const pause = FIRST_PAUSE_MS * 3 ** attempts;
    await this.update(message, { holder: '', lease_until: this.deps.clock() + pause });
  }

  /** Releases a message that was not tried, so that any process can take it over immediately. */
  release(message: Message): Promise<void> {
    return this.database.write(async (tables) => {
      await tables
        .updateTable(this.table)
        .set((e) => ({ holder: '', lease_until: 0, attempts: e('attempts', '-', 1) }))
        .where((e) => e.and(this.toKey(message)))
        .where('state', '=', 'waiting')
        .execute();
    });
  }

  /** Extends the lease of messages that this process answers. */
  async renew(messages: Iterable<Message>): Promise<void> {
    const keys = [...messages].map((message) => this.toKey(message));
    if (keys.length === 0) return;
    const values = { lease_until: this.deps.clock() + LEASE_MS };
    await this.database.write(async (tables) => {
      await tables
        .updateTable(this.table)
        .set(values)
        .where('holder', '=', this.holder)
        .where('state', '=', 'waiting')
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
          holder: this.holder,
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
              .where('state', '=', 'waiting')
              .where('lease_until', '<', now)
              .orderBy('created_at')
              .limit(limit)
              .$asTuple('owner', 'event_id'),
          ),
        )
        // Checked again, since another process may have been first.
        .where('state', '=', 'waiting')
        .where('lease_until', '<', now)
        .returningAll()
        .execute(),
    );
    return rows.map(({ message, replies, attempts }) => ({
      message: this.deps.parse(JSON.parse(message)),
      replies: Replies.parse(JSON.parse(replies)),
      attempts,
    }));
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

  private toKey(message: Message) {
    const { owner, eventId } = this.deps.identify(message);
    return { owner, event_id: eventId };
  }

  private async update(message: Message, values: Partial<InboxRow>): Promise<void> {
    await this.database.write(async (tables) => {
      await tables
        .updateTable(this.table)
        .set(values)
        .where((e) => e.and(this.toKey(message)))
        .execute();
    });
  }
}

interface InboxWorkerDeps<Message> {
  readonly inbox: Inbox<Message>;
  /** Answers a message; one that fails is tried again. */
  readonly answer: (waiting: Waiting<Message>) => Promise<void>;
  /** Names a message in the log. */
  readonly describe: (message: Message) => object;
  readonly logger: Logger;
}

/** Answers the messages of an inbox, a limited number at the same time. */
export class InboxWorker<Message> {
  private readonly running = new Set<Promise<void>>();
  /** Only their leases are renewed, so that a message that failed together with the database is taken over. */
  private readonly answering = new Set<Message>();
  /** Whether messages wait in the inbox because the limit was reached. */
  private hasMore = false;
  private isStopping = false;

  constructor(private readonly deps: InboxWorkerDeps<Message>) {}

  /** Starts to answer a message of the inbox, or leaves it there while the limit is reached. */
  start(waiting: Waiting<Message>, attempts = 1): void {
    const isFull = this.free <= 0;
    this.hasMore ||= isFull;
    this.track(isFull ? this.leave(waiting) : this.answerOrPostpone(waiting, attempts));
  }

  /** Answers messages that were postponed, or left by a process that died; call it every few seconds. */
  async runRound(): Promise<void> {
    const { inbox } = this.deps;
    await inbox.renew(this.answering);
    await this.takeOver();
    await inbox.deleteOld();
  }

  /** Starts no more answers; resolves once the running ones have ended. */
  async close(): Promise<void> {
    this.isStopping = true;
    while (this.running.size > 0) await Promise.all(this.running);
  }

  /** Starts to answer unclaimed messages of the inbox, up to the limit. */
  private async takeOver(): Promise<void> {
    const free = this.free;
    if (free <= 0) return;
    const taken = await this.deps.inbox.takeOver(free);
    this.hasMore = taken.length === free;
    for (const { attempts, ...waiting } of taken) this.start(waiting, attempts);
  }

  /** How many more messages may be answered now. */
  private get free(): number {
    return this.isStopping ? 0 : MAX_RUNNING - this.running.size;
  }

  private track(work: Promise<void>): void {
    this.running.add(work);
    void work.finally(() => {
      this.running.delete(work);
      if (this.hasMore && this.free > 0) this.refill();
    });
  }

  private refill(): void {
    this.hasMore = false;
    this.takeOver().catch((err) => {
      // The next round tries again.
      this.deps.logger.warn({ err }, 'cannot read waiting messages of the chat');
    });
  }

  /** Another process, or this one later, can take it over immediately. */
  private async leave({ message }: Waiting<Message>): Promise<void> {
    await this.deps.inbox.release(message).catch((err) => this.reportWrite(err, message));
  }

  private async answerOrPostpone(waiting: Waiting<Message>, attempts: number): Promise<void> {
    const { inbox, logger, answer, describe } = this.deps;
    const { message } = waiting;
    this.answering.add(message);
    try {
      await answer(waiting);
      await inbox.finish(message);
    } catch (err) {
      logger.warn({ err, ...describe(message), attempts }, 'a message was not answered');
      // If this fails too, it can be taken over after its lease ends.
      await inbox.postpone(message, attempts).catch((error) => this.reportWrite(error, message));
    } finally {
      this.answering.delete(message);
    }
  }

  private reportWrite(err: unknown, message: Message): void {
    const { logger, describe } = this.deps;
    logger.error({ err, ...describe(message) }, 'cannot write to the inbox');
  }
}
