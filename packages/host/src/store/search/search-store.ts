import { setImmediate as nextTick, setTimeout as sleep } from 'node:timers/promises';
import { type Kysely, sql } from 'kysely';
import type { Logger } from 'pino';
import { prepareQuery, type StoreContext } from '../database.js';
import type { Schema } from '../schema/index.js';
import type { SearchQueueRow } from '../schema/search.js';
import { UNTITLED } from '../session-store.js';
import {
  PostgresSearchIndex,
  type SearchEntry,
  type SearchHit,
  type SearchIndex,
  type SearchKey,
  SqliteSearchIndex,
} from './search-index.js';
import { buildSnippet, MAX_TEXT, parseQuery, type Snippet } from './terms.js';

/** A kind of texts that can be searched for. */
export interface SearchSource {
  readonly name: string;
  /** Reads the text of an id; undefined if it does not exist any more. */
  load(
    tables: Kysely<Schema>,
    key: { readonly owner: string; readonly id: string },
  ): Promise<Pick<SearchEntry, 'scope' | 'createdAt' | 'parts'> | undefined>;
  /** Adds all of its texts to the queue, after the index was lost. */
  queueAll(tables: Kysely<Schema>): Promise<void>;
}

/** Adds a text that has changed to the queue, inside the unit of work that changes it. */
export async function queueForSearch(
  tables: Kysely<Schema>,
  { owner, source, id }: Pick<SearchQueueRow, 'owner' | 'source' | 'id'>,
): Promise<void> {
  await tables
    .insertInto('search_queue')
    .values({ owner, source, id, version: 1 })
    .onConflict((c) =>
      c
        .columns(['owner', 'source', 'id'])
        .doUpdateSet((e) => ({ version: e('search_queue.version', '+', 1) })),
    )
    .execute();
}

const findText = prepareQuery((tables, { owner, id }: { owner: string; id: string }) =>
  tables
    .selectFrom('messages')
    .innerJoin('sessions', (join) =>
      join
        .onRef('sessions.owner', '=', 'messages.owner')
        .onRef('sessions.id', '=', 'messages.session_id'),
    )
    .select(['session_id', 'content', 'messages.created_at'])
    .where('messages.owner', '=', owner)
    .where('messages.id', '=', id)
    .where('unlisted', '=', 0),
);

/** Triggers add messages and titles to the queue (migration 0005); those of sessions that no list shows are not found. */
const messageSource: SearchSource = {
  name: 'message',
  load: async (tables, key) => {
    const row = (await findText(tables, key)).rows[0];
    if (!row) return undefined;
    const { session_id: scope, created_at: createdAt, content } = row;
    return { scope, createdAt, parts: content ? [content] : [] };
  },
  queueAll: async () => undefined,
};

const titleSource: SearchSource = {
  name: 'title',
  load: async (tables, { owner, id }) => {
    const row = await tables
      .selectFrom('sessions')
      .select(['title', 'created_at'])
      .where('owner', '=', owner)
      .where('id', '=', id)
      .where('unlisted', '=', 0)
      .executeTakeFirst();
    const parts = row?.title === UNTITLED ? [] : [row?.title ?? ''];
    return row && { scope: id, createdAt: row.created_at, parts };
  },
  queueAll: async () => undefined,
};

/** Everything in a session: adds its messages and its title to the queue. */
export const SESSION = 'session';

async function queueSession(tables: Kysely<Schema>, owner: string, id: string): Promise<void> {
  await queueForSearch(tables, { owner, source: titleSource.name, id });
  await sql`insert into search_queue (owner, source, id, version)
    select owner, ${messageSource.name}, id, 1 from messages
    where owner = ${owner} and session_id = ${id} and content <> ''
    on conflict (owner, source, id) do update set version = search_queue.version + 1`.execute(
    tables,
  );
}

/** Each pass syncs two files to disk, and is a segment of the index that is merged later. */
const ROWS_PER_PASS = 128;
/** Their words take many times the memory of a text. */
const CHARACTERS_PER_PASS = 100_000;
/** Of texts that are searched for their words in one go. */
const CHARACTERS_PER_TICK = 10_000;
const GENERATION_KEY = 'search_generation';

export interface FoundMessage {
  readonly sessionId: string;
  readonly title: string;
  /** Undefined if the title was found. */
  readonly message?: {
    readonly id: string;
    readonly type: 'human' | 'ai';
    readonly createdAt: number;
  };
  readonly snippet: Snippet;
  readonly score: number;
}

export interface FindMessages {
  readonly owner: string;
  readonly text: string;
  readonly limit: number;
  readonly offset: number;
}

/** Finds texts of a user, and keeps the index of them up to date. */
export class SearchStore {
  readonly index: SearchIndex;
  private readonly sources: ReadonlyMap<string, SearchSource>;
  private isChecked = false;

  constructor(
    private readonly context: StoreContext,
    dataDir: string,
    sources: readonly SearchSource[] = [],
  ) {
    const { engine } = context.database;
    this.index =
      engine === 'postgres' ? new PostgresSearchIndex(context) : new SqliteSearchIndex(dataDir);
    this.sources = new Map(
      [messageSource, titleSource, ...sources].map((source) => [source.name, source]),
    );
  }

  /** Messages and titles of sessions, the best first; undefined if the text contains no word. */
  async findMessages({
    owner,
    text,
    limit,
    offset,
  }: FindMessages): Promise<{ found: readonly FoundMessage[]; hasMore: boolean } | undefined> {
    const query = parseQuery(text);
    if (query.length === 0) return undefined;
    if (!this.isChecked) await this.checkGeneration();
    const sources = [messageSource.name, titleSource.name];
    const hits = await this.index.find({ owner, sources, query, limit: limit + 1, offset });
    const texts = await this.readTexts(owner, hits.slice(0, limit));
    const found: FoundMessage[] = [];
    let characters = 0;
    for (const { source, id, score } of hits.slice(0, limit)) {
      const row = texts.get(`${source} ${id}`);
      if (!row) continue;
      const { sessionId, title, text: whole, message } = row;
      found.push({ sessionId, title, snippet: buildSnippet(whole, query), score, ...message });
      characters += whole.length;
      if (characters < CHARACTERS_PER_TICK) continue;
      characters = 0;
      await nextTick();
    }
    return { found, hasMore: hits.length > limit };
  }

  /** Indexes some of what has changed; true if there may be more. */
  async indexPass(): Promise<boolean> {
    const { database } = this.context;
    if (!this.isChecked) {
      if (await this.isIdle()) return false;
      await this.checkGeneration();
    }
    if (database.engine === 'sqlite') return this.indexRows(database.tables);
    return database.write(async (tables) => {
      // One host at a time: the others would do the same work.
      const { rows } = await sql<{ isLocked: boolean }>`
        select pg_try_advisory_xact_lock(hashtext('sibyl search')) as "isLocked"`.execute(tables);
      return rows[0]?.isLocked === true && this.indexRows(tables);
    });
  }

  /** Indexes texts without the queue. */
  async put(entries: readonly SearchEntry[]): Promise<void> {
    const { database } = this.context;
    if (database.engine === 'sqlite') return this.index.put(database.tables, entries);
    return database.write((tables) => this.index.put(tables, entries));
  }

  close(): Promise<void> {
    return this.index.close();
  }

  /** Whether there is nothing to index. The index is opened when it is needed: on SQLite, its worker takes 12 MB. */
  private async isIdle(): Promise<boolean> {
    const { tables } = this.context.database;
    if ((await selectQueue(tables, {})).rows.length > 0) return false;
    if ((await this.readKnownGeneration()) !== undefined) return !this.index.isMissing();
    // It was never built: a database of version 0.1, or a new one.
    return (await tables.selectFrom('sessions').select('id').limit(1).execute()).length === 0;
  }

  /** The generation of the index that contains, or will contain, everything that is not in the queue. */
  private async readKnownGeneration(): Promise<string | undefined> {
    const row = await this.context.database.tables
      .selectFrom('database_info')
      .select('value')
      .where('key', '=', GENERATION_KEY)
      .executeTakeFirst();
    return row?.value;
  }

  /** A new index contains nothing. */
  private async checkGeneration(): Promise<void> {
    const generation = await this.index.readGeneration();
    this.isChecked = true;
    if (generation === undefined || (await this.readKnownGeneration()) === generation) return;
    await this.context.database.write(async (tables) => {
      await sql`insert into search_queue (owner, source, id, version)
        select owner, ${SESSION}, id, 1 from sessions where true
        on conflict (owner, source, id) do nothing`.execute(tables);
      for (const source of this.sources.values()) await source.queueAll(tables);
      await tables
        .insertInto('database_info')
        .values({ key: GENERATION_KEY, value: generation })
        .onConflict((c) => c.column('key').doUpdateSet({ value: generation }))
        .execute();
    });
  }

  private async indexRows(tables: Kysely<Schema>): Promise<boolean> {
    const { rows } = await selectQueue(tables, {});
    if (rows.length === 0) return false;
    const entries: SearchEntry[] = [];
    const done: SearchQueueRow[] = [];
    let characters = 0;
    let isQueueLonger = false;
    for (const row of rows) {
      const { owner, source, id } = row;
      done.push(row);
      if (source === SESSION) {
        await this.indexSession(tables, owner, id);
        isQueueLonger = true;
        continue;
      }
      const loaded = await this.sources.get(source)?.load(tables, row);
      const entry = { ...toEmptyEntry(row), ...loaded };
      entries.push(entry);
      for (const { length } of entry.parts) characters += length;
      if (characters > CHARACTERS_PER_PASS) break;
    }
    await this.index.put(tables, entries);
    const gone: SearchQueueRow[] = [];
    await this.write(tables, async (writing) => {
      for (const row of done)
        if ((await removeFromQueue(writing, row)).numAffectedRows === 0n) gone.push(row);
    });
    // Their user was erased meanwhile, which did not see these entries; others have changed again and are still queued.
    const unwanted = gone.filter(({ source }) => source !== SESSION).map(toEmptyEntry);
    if (unwanted.length > 0) await this.index.put(tables, unwanted);
    return rows.length === ROWS_PER_PASS || done.length < rows.length || isQueueLonger;
  }

  private async indexSession(tables: Kysely<Schema>, owner: string, id: string): Promise<void> {
    await this.index.removeScope(tables, { owner, scope: id });
    await this.write(tables, (writing) => queueSession(writing, owner, id));
  }

  /** PostgreSQL is inside a unit of work already. */
  private async write(
    tables: Kysely<Schema>,
    unit: (tables: Kysely<Schema>) => Promise<void>,
  ): Promise<void> {
    const { database } = this.context;
    await (database.engine === 'postgres' ? unit(tables) : database.write(unit));
  }

  /** What was found, by source and id; deleted texts are missing. */
  private async readTexts(
    owner: string,
    hits: readonly SearchHit[],
  ): Promise<ReadonlyMap<string, FoundText>> {
    const { tables } = this.context.database;
    const ids = (name: string) => hits.filter(({ source }) => source === name).map(({ id }) => id);
    const messages = await selectMessages(tables, owner, ids(messageSource.name));
    const sessions = [...messages.map(({ sessionId }) => sessionId), ...ids(titleSource.name)];
    const titles = new Map(
      (await selectTitles(tables, owner, [...new Set(sessions)])).map((row) => [row.id, row.title]),
    );
    const texts = new Map<string, FoundText>();
    for (const [id, title] of titles)
      texts.set(`title ${id}`, { sessionId: id, title, text: title });
    for (const { sessionId, content: text, ...message } of messages) {
      const title = titles.get(sessionId);
      if (title === undefined) continue;
      texts.set(`message ${message.id}`, { sessionId, title, text, message: { message } });
    }
    return texts;
  }
}

/** Removes what the index contains of a key. */
const toEmptyEntry = ({ owner, source, id }: SearchKey): SearchEntry => ({
  ...{ owner, source, id, scope: '', createdAt: 0, parts: [] },
});

interface FoundText {
  readonly sessionId: string;
  readonly title: string;
  readonly text: string;
  readonly message?: Pick<FoundMessage, 'message'>;
}

async function selectMessages(tables: Kysely<Schema>, owner: string, ids: readonly string[]) {
  if (ids.length === 0) return [];
  return (
    tables
      .selectFrom('messages')
      .select(['id', 'session_id as sessionId', 'type', 'created_at as createdAt'])
      // What follows is not indexed, so nothing was found there.
      .select(sql<string>`substr(content, 1, ${sql.lit(MAX_TEXT)})`.as('content'))
      .where('owner', '=', owner)
      .where('id', 'in', ids)
      .execute()
  );
}

async function selectTitles(tables: Kysely<Schema>, owner: string, ids: readonly string[]) {
  if (ids.length === 0) return [];
  return tables
    .selectFrom('sessions')
    .select(['id', 'title'])
    .where('owner', '=', owner)
    .where('id', 'in', ids)
    .execute();
}

const selectQueue = prepareQuery((tables, _: Record<string, never>) =>
  tables
    .selectFrom('search_queue')
    .select(['owner', 'source', 'id', 'version'])
    .limit(ROWS_PER_PASS),
);

/** Unless it has changed again meanwhile. */
const removeFromQueue = prepareQuery((tables, { owner, source, id, version }: SearchQueueRow) =>
  tables
    .deleteFrom('search_queue')
    .where('owner', '=', owner)
    .where('source', '=', source)
    .where('id', '=', id)
    .where('version', '=', version),
);

/** Between the passes of a backlog. */
const PAUSE_MS = 20;
/** Else changes are collected for this long: every pass syncs a file to disk. */
const POLL_MS = 1_000;
const RETRY_MS = 30_000;

/** Keeps the index up to date in the background, between other work; returns a function that stops it. */
export function startIndexing(
  search: SearchStore,
  logger: Pick<Logger, 'warn'>,
): () => Promise<void> {
  const stop = new AbortController();
  const { signal } = stop;
  const run = async () => {
    while (!signal.aborted) {
      let waitMs = POLL_MS;
      try {
        if (await search.indexPass()) waitMs = PAUSE_MS;
      } catch (err) {
        if (!signal.aborted)
          logger.warn({ reason: String(err) }, 'messages were not indexed; trying again');
        waitMs = RETRY_MS;
      }
      await sleep(waitMs, undefined, { signal, ref: false }).catch(() => undefined);
    }
  };
  const running = run();
  return () => {
    stop.abort();
    return running;
  };
}
