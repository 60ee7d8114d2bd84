import { randomUUID } from 'node:crypto';
import { type ImportedCounts, OracleError, type PluginDatabase } from '@sibyl/plugin-kit';
import { isUnspaced, mergeRankings, readQueryTerms } from '@sibyl/plugin-kit/search';
import { type Fact, type FactPage, SubUser, wholeNumber } from '@sibyl/protocol';
import { type Kysely, type Selectable, sql } from 'kysely';
import { z } from 'zod';
import type { FactVectors } from './fact-vectors.js';
import {
  type About,
  type FactRow,
  type MemoryTables,
  normalizeText,
  TERMS,
  toWords,
} from './tables.js';

export const FACT_LENGTH = 1000;

/** Query of `GET /memory`. */
export const ListFacts = z.strictObject({
  q: z
    .string()
    .trim()
    .min(1)
    .max(500)
    .optional()
    .describe('Words to search for; best matches first'),
  limit: wholeNumber({ min: 1, max: 100 }).default(50),
  offset: wholeNumber({ min: 0 }).default(0),
});
export type ListFacts = z.infer<typeof ListFacts>;

/** Body of `POST /memory` and `PATCH /memory/:id`. */
export const FactText = z
  .strictObject({ text: z.string().trim().min(3).max(FACT_LENGTH) })
  .meta({ id: 'FactText' });
export type FactText = z.infer<typeof FactText>;

/** Reply of `DELETE /memory/:id`. */
export const FactForgotten = z.object({ message: z.string() }).meta({ id: 'FactForgotten' });
export type FactForgotten = z.infer<typeof FactForgotten>;

/** Facts about one person, and all that one user may have. */
const FACTS_PER_PERSON = 1000;
const FACTS_PER_OWNER = 10_000;
const WORDS_PER_QUERY = 32;
/** Every fact has some likeness with a query; only the closest may matter. */
const CLOSEST = 10;
/** Characters of a query that are searched: a message may contain megabytes of files. */
const QUERY_LENGTH = 4000;

/** Stores facts and finds them by their words, and by their meaning if `vectors` are given; every query is limited to one owner. */
export class FactStore {
  constructor(
    private readonly database: PluginDatabase<MemoryTables>,
    private readonly vectors?: FactVectors | undefined,
  ) {}

  async close(): Promise<void> {
    await this.vectors?.close();
  }

  /** Stores a fact, or returns the one with the same text. */
  add(fact: NewFact): Promise<Fact> {
    const { owner, subUser = '', text, sessionId } = fact;
    return this.write(owner, async (tables) => {
      const known = await findByText(tables, { owner, subUser }, text);
      if (known) return toFact(known);
      await assertRoom(tables, { owner, subUser });
      const learned = { session_id: sessionId ?? null, sub_user: subUser };
      return toFact(await insertFact(tables, { owner, text, ...learned }));
    });
  }

  /** Replaces the text of a fact; undefined if this owner has no such fact. */
  change({ owner, id, text }: FactText & FactKey): Promise<Fact | undefined> {
    return this.write(owner, async (tables) => {
      const changed = await selectFacts(tables, { owner }).where('id', '=', id).executeTakeFirst();
      if (!changed) return undefined;
      const same = await findByText(tables, { owner, subUser: changed.sub_user }, text);
      if (same && same.id !== id)
        throw new OracleError('bad_request', { message: 'There is another fact with this text' });
      const row = await tables
        .updateTable('memory_facts')
        .set({
          text,
          normalized_text: normalizeText(text),
          words: toWords(text),
          updated_at: Date.now(),
          vector_model: null,
        })
        .where('owner', '=', owner)
        .where('id', '=', id)
        .returningAll()
        .executeTakeFirst();
      return row && toFact(row);
    });
  }

  /** Stores facts of an export that are not there yet, as far as there is room. */
  importAll(owner: string, facts: readonly unknown[]): Promise<ImportedCounts> {
    return this.write(owner, async (tables) => {
      let room = FACTS_PER_OWNER - (await countFacts(tables, { owner }));
      const known = new Map<string, number>();
      let [stored, refused] = [0, 0];
      for (const fact of facts) {
        const { data } = ExportedFact.safeParse(fact);
        if (data && (await isKnown(tables, owner, data))) continue;
        const subUser = data?.sub_user ?? '';
        const count = known.get(subUser) ?? (await countFacts(tables, { owner, subUser }));
        const fits = data !== undefined && count < FACTS_PER_PERSON && room > 0;
        if (fits) await insertFact(tables, { ...data, owner });
        known.set(subUser, count + Number(fits));
        room -= Number(fits);
        stored += Number(fits);
        refused += Number(!fits);
      }
      return { stored, refused };
    });
  }

  /** Newest first. */
  async list(page: About & { readonly limit: number; readonly offset: number }): Promise<Fact[]> {
    const rows = await selectFacts(this.database.tables, page)
      .orderBy('created_at', 'desc')
      .orderBy('id', 'desc')
      .limit(page.limit)
      .offset(page.offset)
      .execute();
    return rows.map(toFact);
  }

  count(about: About): Promise<number> {
    return countFacts(this.database.tables, about);
  }

  /** Facts that share words or meaning with the query, the best first. */
  async find({ owner, subUser, query, limit }: FactQuery): Promise<Fact[]> {
    const [byWords, ranked = []] = await Promise.all([
      this.findByWords({ owner, subUser, query, limit }),
      this.vectors?.rank({ owner, subUser }, query.slice(0, QUERY_LENGTH)),
    ]);
    if (ranked.length === 0) return byWords;
    const byMeaning = await this.read(owner, ranked.slice(0, Math.min(limit, CLOSEST)));
    return mergeRankings([byWords, byMeaning], ({ id }) => id).slice(0, limit);
  }

  private async findByWords({ query, limit, ...about }: FactQuery): Promise<Fact[]> {
    const words = splitWords(query.slice(0, QUERY_LENGTH));
    if (words.length === 0) return [];
    const { engine, tables } = this.database;
    const search = engine === 'postgres' ? findInPostgres : findInSqlite;
    return (await search(tables, { ...about, words, limit })).map(toFact);
  }

  /** Facts by their ids, in this order. */
  private async read(owner: string, ids: readonly string[]): Promise<Fact[]> {
    const rows = await selectFacts(this.database.tables, { owner })
      .where('id', 'in', ids)
      .execute();
    const facts = new Map(rows.map((row) => [row.id, toFact(row)]));
    return ids.flatMap((id) => facts.get(id) ?? []);
  }

  /** A page of what `find` returns, and how many there are. */
  async search({
    limit,
    offset,
    ...search
  }: About & {
    readonly query: string;
    readonly limit: number;
    readonly offset: number;
  }): Promise<FactPage> {
    const found = await this.find({ ...search, limit: FACTS_PER_PERSON });
    return { facts: found.slice(offset, offset + limit), total: found.length };
  }

  /** Whether there was such a fact. */
  remove({ owner, subUser, id }: FactKey): Promise<boolean> {
    return this.database.write(async (tables) => {
      const facts = tables.deleteFrom('memory_facts').where('owner', '=', owner);
      const { numDeletedRows } = await (subUser === undefined
        ? facts
        : facts.where('sub_user', '=', subUser)
      )
        .where('id', '=', id)
        .executeTakeFirst();
      if (numDeletedRows === 0n) return false;
      await tables
        .deleteFrom('memory_vectors')
        .where('owner', '=', owner)
        .where('id', '=', id)
        .execute();
      return true;
    });
  }

  /** Writes texts, whose vectors are computed afterwards. */
  private async write<T>(owner: string, unit: (tables: Tables) => Promise<T>): Promise<T> {
    const result = await this.database.writeFor(owner, unit);
    this.vectors?.wake();
    return result;
  }
}

interface FactQuery extends About {
  readonly query: string;
  readonly limit: number;
}

interface FactKey extends About {
  readonly id: string;
}

interface NewFact extends About {
  readonly text: string;
  readonly sessionId?: string | undefined;
}

const Time = z.int().min(0).max(253_402_300_799_999);

/** A row of an export, which anyone may have written. */
const ExportedFact = z.object({
  id: z.string().regex(/^[A-Za-z0-9-]{1,64}$/),
  text: z.string().trim().min(3).max(FACT_LENGTH),
  created_at: Time,
  updated_at: Time.nullable().catch(null),
  session_id: z.string().max(128).nullable().catch(null),
  sub_user: z.union([z.literal(''), SubUser]).default(''),
});

type Tables = Kysely<MemoryTables>;

function findByText(tables: Tables, about: About, text: string) {
  return selectFacts(tables, about)
    .where('normalized_text', '=', normalizeText(text))
    .executeTakeFirst();
}

async function isKnown(
  tables: Tables,
  owner: string,
  { id, text, sub_user: subUser }: Pick<FactToInsert, 'text' | 'sub_user'> & Pick<FactKey, 'id'>,
): Promise<boolean> {
  const same = await selectFacts(tables, { owner }).where('id', '=', id).executeTakeFirst();
  return same !== undefined || (await findByText(tables, { owner, subUser }, text)) !== undefined;
}

type FactToInsert = Pick<Selectable<FactRow>, 'owner' | 'sub_user' | 'text' | 'session_id'> &
  Partial<Pick<FactRow, 'id' | 'created_at' | 'updated_at'>>;

async function insertFact(tables: Tables, fact: FactToInsert): Promise<FoundRow> {
  const row = {
    id: randomUUID(),
    created_at: Date.now(),
    updated_at: null,
    vector_model: null,
    ...fact,
    normalized_text: normalizeText(fact.text),
    words: toWords(fact.text),
  };
  await tables.insertInto('memory_facts').values(row).execute();
  return row;
}

type FoundRow = Pick<
  Selectable<FactRow>,
  'id' | 'sub_user' | 'text' | 'created_at' | 'updated_at' | 'session_id'
>;

interface Search extends About {
  readonly words: readonly string[];
  readonly limit: number;
}

function selectFacts(tables: Tables, { owner, subUser }: About) {
  const facts = tables.selectFrom('memory_facts').selectAll().where('owner', '=', owner);
  return subUser === undefined ? facts : facts.where('sub_user', '=', subUser);
}

async function countFacts(tables: Tables, about: About): Promise<number> {
  const { total } = await selectFacts(tables, about)
    .clearSelect()
    .select((row) => row.fn.countAll().as('total'))
    .executeTakeFirstOrThrow();
  return Number(total);
}

async function assertRoom(tables: Tables, { owner, subUser }: About): Promise<void> {
  const hasRoom =
    (await countFacts(tables, { owner, subUser })) < FACTS_PER_PERSON &&
    (await countFacts(tables, { owner })) < FACTS_PER_OWNER;
  if (hasRoom) return;
  throw new OracleError('bad_request', {
    message: `There are ${FACTS_PER_PERSON} facts already, or ${FACTS_PER_OWNER} about all; forget some first`,
  });
}

/** Letters, digits and marks only, so that nothing in a query can be read as search syntax. */
function splitWords(query: string): string[] {
  const words = [...new Set(readQueryTerms(query).map(({ text }) => text))];
  const long = words.filter((word) => word.length > 2 || isUnspaced(word));
  return (long.length > 0 ? long : words).slice(0, WORDS_PER_QUERY);
}

async function findInPostgres(
  tables: Tables,
  { owner, subUser, words, limit }: Search,
): Promise<FoundRow[]> {
  const isAbout = subUser === undefined ? sql`true` : sql`sub_user = ${subUser}`;
  const anyWord = words.map((word) => `'${word}':*`).join(' | ');
  const query = sql`${anyWord}::tsquery`;
  const { rows } = await sql<FoundRow>`select * from memory_facts
    where owner = ${owner} and ${isAbout} and ${TERMS} @@ ${query}
    order by ts_rank(${TERMS}, ${query}) desc, created_at desc limit ${limit}`.execute(tables);
  return rows;
}

/** Reads the facts of the owner, which are few: an index would read all words with a beginning, those of other users included. */
async function findInSqlite(
  tables: Tables,
  { words, limit, ...about }: Search,
): Promise<FoundRow[]> {
  const rows = await selectFacts(tables, about).orderBy('created_at', 'desc').execute();
  return rankByWords(rows, words).slice(0, limit);
}

/** The facts that contain any of the words, or the beginning of one, the best first, as BM25 ranks them. */
function rankByWords(
  rows: readonly (FoundRow & Pick<FactRow, 'words'>)[],
  words: readonly string[],
): FoundRow[] {
  const tree = buildTree(words);
  const found = rows
    .map((row) => ({ row, counts: countWords(row.words, tree, words.length) }))
    .filter(({ counts }) => counts.some((count) => count > 0));
  const weights = words.map((_, i) => {
    const facts = found.filter(({ counts }) => counts[i]).length;
    return Math.log(1 + (rows.length - facts + 0.5) / (facts + 0.5));
  });
  const average = rows.reduce((sum, { text }) => sum + text.length, 0) / rows.length;
  const score = ({ text }: FoundRow, counts: Uint32Array) => {
    const length = 1.2 * (0.25 + (0.75 * text.length) / average);
    return weights.reduce((sum, weight, i) => {
      const count = counts[i] ?? 0;
      return sum + (weight * count) / (count + length);
    }, 0);
  };
  return found
    .map(({ row, counts }) => ({ row, score: score(row, counts) }))
    .sort((one, other) => other.score - one.score)
    .map(({ row }) => row);
}

/** Words by their characters. */
interface WordTree {
  readonly next: Map<number, WordTree>;
  /** Of the word that ends here. */
  index?: number;
}

function buildTree(words: readonly string[]): WordTree {
  const root: WordTree = { next: new Map() };
  for (const [index, word] of words.entries()) {
    let node = root;
    for (let i = 0; i < word.length; i += 1) {
      const next = node.next.get(word.charCodeAt(i)) ?? { next: new Map() };
      node.next.set(word.charCodeAt(i), next);
      node = next;
    }
    node.index = index;
  }
  return root;
}

/** How often each word begins a word of the text. Each character is read once, however many words there are. */
function countWords(text: string, tree: WordTree, words: number): Uint32Array {
  const counts = new Uint32Array(words);
  let at = 0;
  do {
    let node = tree.next.get(text.charCodeAt(at));
    for (; node; node = node.next.get(text.charCodeAt(at))) {
      at += 1;
      if (node.index !== undefined) counts[node.index] = (counts[node.index] ?? 0) + 1;
    }
    at = text.indexOf(' ', at) + 1;
  } while (at > 0);
  return counts;
}

function toFact({ id, sub_user, text, created_at, updated_at, session_id }: FoundRow): Fact {
  return {
    id,
    text,
    createdAt: new Date(Number(created_at)).toISOString(),
    ...(updated_at !== null && { updatedAt: new Date(Number(updated_at)).toISOString() }),
    ...(session_id !== null && { sessionId: session_id }),
    ...(sub_user !== '' && { subUser: sub_user }),
  };
}
