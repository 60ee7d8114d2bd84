import type { Middleware, PluginDatabase, TurnUser } from '@sibyl/plugin-kit';
import { isUnspaced, mergeRankings, readQueryTerms } from '@sibyl/plugin-kit/search';
import type { Fact, FactPage } from '@sibyl/protocol';
import { type Kysely, type Selectable, sql } from 'kysely';
import type { FactVectors } from './fact-vectors.js';
import { type About, FACTS_PER_PERSON, type FactRow, type MemoryTables, TERMS } from './tables.js';

const WORDS_PER_QUERY = 32;
/** Every fact has some likeness with a query; only the closest may matter. */
const CLOSEST = 10;
/** Characters of a query that are searched: a message may contain megabytes of files. */
const QUERY_LENGTH = 4000;

/** Finds facts by their words, and by their meaning if `vectors` are given; every query is limited to one owner. */
export class FactSearch {
  constructor(
    private readonly database: PluginDatabase<MemoryTables>,
    private readonly vectors?: FactVectors | undefined,
  ) {}

  /** Facts that share words or meaning with the query, the best first. */
  async find({ owner, subUser, query, limit }: FactQuery): Promise<Fact[]> {
    const words = splitWords(query.slice(0, QUERY_LENGTH));
    const { engine, tables } = this.database;
    const search = engine === 'postgres' ? findInPostgres : findInSqlite;
    const [rows, ranked = []] = await Promise.all([
      words.length > 0 ? search(tables, { owner, subUser, words, limit }) : [],
      this.vectors?.rank({ owner, subUser }, query.slice(0, QUERY_LENGTH)),
    ]);
    const byWords = rows.map(toFact);
    if (ranked.length === 0) return byWords;
    const byMeaning = await this.read(owner, ranked.slice(0, Math.min(limit, CLOSEST)));
    return mergeRankings([byWords, byMeaning], ({ id }) => id).slice(0, limit);
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
  async page({
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
}

/** The agent knows only what was said by the person that it talks with. */
export const aboutUser = ({ did: owner, subUser = '' }: TurnUser) => ({ owner, subUser });

const SHOWN = 8;

/** Adds facts that match the message to the prompt, so that the agent need not search first. */
export const injectFacts = (facts: FactSearch): Middleware => ({
  name: 'known-facts',
  // The agent can still look facts up with its tools.
  onFailure: 'skip',
  reach: 'sub-user',
  wrapModel: async (request, next, { user, permits }) => {
    const { messages } = request;
    const at = messages.findLastIndex(({ role }) => role === 'user');
    const asked = messages[at];
    if (request.agent !== 'main' || asked?.role !== 'user' || !permits('recall'))
      return next(request);
    const { content } = asked;
    const query =
      typeof content === 'string'
        ? content
        : content.flatMap((part) => (part.type === 'text' ? part.text : [])).join('\n');
    const found = await facts.find({ ...aboutUser(user), query, limit: SHOWN });
    if (found.length === 0) return next(request);
    const lines = found.map(({ text }) => `- ${JSON.stringify(text)}`);
    const heading = '[What you remember about the user that may matter for this message:';
    // Not in the system prompt: a change there would make providers read the whole conversation again.
    const note = [asked.note, heading, ...lines].filter(Boolean).join('\n');
    return next({ ...request, messages: messages.with(at, { ...asked, note: `${note}]` }) });
  },
});

interface FactQuery extends About {
  readonly query: string;
  readonly limit: number;
}

type Tables = Kysely<MemoryTables>;

export function selectFacts(tables: Tables, { owner, subUser }: About) {
  const facts = tables.selectFrom('memory_facts').selectAll().where('owner', '=', owner);
  return subUser === undefined ? facts : facts.where('sub_user', '=', subUser);
}

export type FoundRow = Pick<
  Selectable<FactRow>,
  'id' | 'sub_user' | 'text' | 'created_at' | 'updated_at' | 'session_id'
>;

interface Search extends About {
  readonly words: readonly string[];
  readonly limit: number;
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
  if (rows.length === 0) return [];
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

export function toFact({ id, sub_user, text, created_at, updated_at, session_id }: FoundRow): Fact {
  return {
    id,
    text,
    createdAt: new Date(Number(created_at)).toISOString(),
    ...(updated_at !== null && { updatedAt: new Date(Number(updated_at)).toISOString() }),
    ...(session_id !== null && { sessionId: session_id }),
    ...(sub_user !== '' && { subUser: sub_user }),
  };
}
