import { hash } from 'node:crypto';
import { setImmediate as nextTick } from 'node:timers/promises';
import { type Kysely, sql } from 'kysely';
import type { StoreContext } from '../database.js';
import type { Schema } from '../schema/index.js';
import { type Phrase, readTerms, type SearchQuery } from './terms.js';

/** Identifies what is searched for: a text of a user, by its kind and id. */
export interface SearchKey {
  readonly owner: string;
  /** Such as `message` or `title`. */
  readonly source: string;
  readonly id: string;
}

/** All that the index contains of a key; a long text has several parts, a deleted one has none. */
export interface SearchEntry extends SearchKey {
  /** What it is removed with, such as its session. */
  readonly scope: string;
  readonly createdAt: number;
  readonly parts: readonly string[];
}

export interface SearchRequest {
  readonly owner: string;
  readonly sources: readonly string[];
  /** Only texts of this scope. */
  readonly scope?: string | undefined;
  readonly query: SearchQuery;
  readonly limit: number;
  readonly offset?: number | undefined;
}

export interface SearchHit {
  readonly source: string;
  readonly id: string;
  /** Counts the parts of the text from 0. */
  readonly part: number;
  /** Higher is better; only comparable within one search. */
  readonly score: number;
}

/**
 * A full-text index of the texts of all users. It contains words, not texts, and may contain texts that were just
 * deleted: a reader of a hit takes its text from where it is stored, with its owner.
 */
export interface SearchIndex {
  /** Whether it is not among the tables of the database, which are erased with their user. */
  readonly isSeparate: boolean;
  /** Replaces what the index contains of each key; `tables` is the unit of work, if the index is in the same database. */
  put(tables: Kysely<Schema>, entries: readonly SearchEntry[]): Promise<void>;
  removeScope(
    tables: Kysely<Schema>,
    key: { readonly owner: string; readonly scope: string },
  ): Promise<void>;
  /** Removes all texts of a user. */
  removeOwner(owner: string): Promise<void>;
  /** Texts with all words, the best first; then those with longer words than the last one, the newest first. */
  find(request: SearchRequest): Promise<readonly SearchHit[]>;
  /** Changes when the index was lost and everything has to be indexed again; undefined if it cannot be lost alone. */
  readGeneration(): Promise<string | undefined>;
  /** Whether the index has not been built yet, or was lost; false if it cannot be lost alone. */
  isMissing(): boolean;
  close(): Promise<void>;
}

/** Only the newest of a user's texts with the words are ranked. */
export const MAX_CANDIDATES = 1_000;

/** Titles are short and chosen. */
export const SOURCE_WEIGHTS: Readonly<Record<string, number>> = { title: 2 };

/** The query without longer words than its last one. */
export const toWholeWords = (query: SearchQuery): SearchQuery =>
  query.map((phrase) => ({ ...phrase, isPrefix: false }));

/** A word for an owner: too long to find another owner with the same one. */
export const toOwnerTerm = (owner: string): string => hash('sha256', owner).slice(0, 24);

/** How many characters are split into words before other work has a turn. */
const CHARACTERS_PER_TICK = 50_000;

/** Converts the parts of entries one after the other, without blocking the event loop for long. */
export async function* convertParts<T>(
  entries: readonly SearchEntry[],
  convert: (text: string, entry: SearchEntry) => T,
): AsyncGenerator<{ readonly entry: SearchEntry; readonly part: number; readonly value: T }> {
  let characters = 0;
  for (const entry of entries)
    for (const [part, text] of entry.parts.entries()) {
      yield { entry, part, value: convert(text, entry) };
      characters += text.length;
      if (characters < CHARACTERS_PER_TICK) continue;
      characters = 0;
      await nextTick();
    }
}

/** The newest documents of a user, and how many of them a common word is in. */
const NEWEST = 2_000;
const COMMON = 200;

const CHARACTERS_PER_STATEMENT = 256 * 1024;

/** In one statement, because each takes a round trip. */
async function insertDocuments(tables: Kysely<Schema>, rows: readonly object[]): Promise<void> {
  await sql`insert into search_documents (owner, source, id, part, scope, created_at, terms)
    select owner, source, id, part, scope, created_at, terms::tsvector
    from json_to_recordset(${JSON.stringify(rows)}::json) as added
      (owner text, source text, id text, part bigint, scope text, created_at bigint, terms text)
    on conflict (owner, source, id, part) do update set terms = excluded.terms`.execute(tables);
}

/** The limits of a `tsvector`. */
const MAX_POSITION = 16_383;
const MAX_POSITIONS = 255;

/**
 * The index on PostgreSQL. Each word is behind a term of its owner, so that a search reads only what its user wrote, also one
 * for the beginning of a word.
 */
export class PostgresSearchIndex implements SearchIndex {
  readonly isSeparate = false;

  constructor(private readonly context: StoreContext) {}

  async put(tables: Kysely<Schema>, entries: readonly SearchEntry[]): Promise<void> {
    const pick = (key: 'owner' | 'source' | 'id') => entries.map((entry) => entry[key]);
    await sql`delete from search_documents where (owner, source, id) in (
      select * from unnest(${pick('owner')}::text[], ${pick('source')}::text[], ${pick('id')}::text[]))`.execute(
      tables,
    );
    let batch: object[] = [];
    let characters = 0;
    for await (const { entry, part, value } of convertParts(entries, toVector)) {
      const { owner, source, id, scope, createdAt } = entry;
      batch.push({ owner, source, id, part, scope, created_at: createdAt, terms: value });
      characters += value.length;
      if (characters < CHARACTERS_PER_STATEMENT) continue;
      await insertDocuments(tables, batch);
      batch = [];
      characters = 0;
    }
    if (batch.length > 0) await insertDocuments(tables, batch);
  }

  async removeScope(
    tables: Kysely<Schema>,
    { owner, scope }: { readonly owner: string; readonly scope: string },
  ): Promise<void> {
    await tables
      .deleteFrom('search_documents')
      .where('owner', '=', owner)
      .where('scope', '=', scope)
      .execute();
  }

  async removeOwner(owner: string): Promise<void> {
    await this.context.database.write((tables) =>
      tables.deleteFrom('search_documents').where('owner', '=', owner).execute(),
    );
  }

  async find({ owner, sources, scope, query, limit, offset = 0 }: SearchRequest) {
    const prefix = toPrefix(owner);
    const words = sql`${toTsQuery(query, prefix)}::tsquery`;
    const wholeWords = sql`${toTsQuery(toWholeWords(query), prefix)}::tsquery`;
    const own = sql`owner = ${owner} and source = any(${[...sources]}::text[])
      ${scope === undefined ? sql`` : sql`and scope = ${scope}`}`;
    const weight = sql.join(
      Object.entries(SOURCE_WEIGHTS).map(
        ([source, factor]) => sql`when source = ${source} then ${factor}::float8`,
      ),
      sql` `,
    );
    const columns = sql`source, id, part, created_at, terms`;
    // The documents of a user are all over the table: of a common word, only the newest are read.
    const { rows } = await sql<SearchHit>`
      with newest as materialized (
        select ${columns} from search_documents where ${own}
        order by created_at desc limit ${NEWEST}
      ), common as materialized (
        select ${columns} from newest where terms @@ ${words}
      ), found as (
        select ${columns} from common where (select count(*) from common) >= ${COMMON}
        union all
        (select ${columns} from search_documents
          where (select count(*) from common) < ${COMMON} and terms @@ ${words} and ${own}
          order by created_at desc limit ${MAX_CANDIDATES})
      ), weighed as (
        select *, case ${weight} else 1 end as weight, (terms @@ ${wholeWords})::int as is_whole
        from found
      )
      select source, id, part, ts_rank(terms, ${words}, 1) * weight * is_whole as score
      from weighed order by score desc, weight desc, created_at desc, id
      limit ${limit} offset ${offset}`.execute(this.context.database.tables);
    return rows;
  }

  async readGeneration(): Promise<undefined> {}

  isMissing(): boolean {
    return false;
  }

  async close(): Promise<void> {}
}

function toVector(text: string, { owner }: SearchEntry): string {
  const prefix = toPrefix(owner);
  const positions = new Map<string, number[]>();
  let position = 0;
  for (const { text: term } of readTerms(text)) {
    position = Math.min(position + 1, MAX_POSITION);
    const known = positions.get(term) ?? [];
    if (known.length < MAX_POSITIONS && known.at(-1) !== position) known.push(position);
    positions.set(term, known);
  }
  return [...positions].map(([term, at]) => `'${prefix}${term}':${at.join(',')}`).join(' ');
}

/** Short, because each word has it; the query compares the owner as well. */
const toPrefix = (owner: string): string => toOwnerTerm(owner).slice(0, 8);

/** Words consist of letters and digits, so they need no escaping. */
function toTsQuery(query: SearchQuery, prefix: string): string {
  const toPhrase = ({ terms, isPrefix }: Phrase) =>
    terms.map((term, i) => `'${prefix}${term}'${isPrefix && i === terms.length - 1 ? ':*' : ''}`);
  return query.map((phrase) => `(${toPhrase(phrase).join(' <-> ')})`).join(' & ');
}
