import { createHash } from 'node:crypto';
import { setImmediate as nextTick } from 'node:timers/promises';
import { isUnspaced, readQueryTerms, readTerms } from '@sibyl/plugin-kit/search';
import { sql } from 'kysely';
import type { StoreContext } from './database.js';
import { type FileKey, type StoredFile, toFile } from './file-store.js';
import type { FileRow } from './schema/files.js';

/** A piece of a file's text, short enough for a search result. */
export interface Passage {
  /** Counts the passages of a file, from 0. */
  readonly n: number;
  /** The number of the page, sheet, paragraph or line it begins with. */
  readonly place: number;
  /** For people, such as `page 700`. */
  readonly position: string;
  readonly text: string;
}

/** A passage and the file it is from. */
export interface FoundPassage extends Passage {
  readonly fileId: string;
  readonly file: string;
}

export interface TextOutcome {
  readonly unit: NonNullable<FileRow['text_unit']>;
  readonly count: number;
  readonly isComplete: boolean;
}

/** A file whose host does not extend its claim for this long can be claimed by another one, at once if the host is seen to end. */
export const LEASE_MS = 60_000;
/** A file is not read again once claims of it have ended this often without a result, other than with their host. */
const MAX_ATTEMPTS = 3;
/** Owners to choose from for the next file. */
const MAX_OWNERS = 100;
/** Few, because the index of each is updated on the main thread. */
const DELETED_PASSAGES = 40;

/** A file that is being read, and how often it was claimed. A host that lost its claim can change nothing. */
export interface ClaimKey extends FileKey {
  readonly attempt?: number | undefined;
}

/** The text of files, in passages with a full-text index. */
export class FileTextStore {
  constructor(
    private readonly context: StoreContext,
    private readonly hostId: string,
  ) {}

  /** Some owners who have files to read, the one with the oldest file first. */
  async listWaitingOwners(except: readonly string[] = []): Promise<string[]> {
    const rows = await this.context.database.tables
      .selectFrom('files')
      .select('owner')
      .where('text_status', '=', 'pending')
      .where((e) => e.or([e('lease_until', 'is', null), e('lease_until', '<', this.now())]))
      .$if(except.length > 0, (query) => query.where('owner', 'not in', except))
      .groupBy('owner')
      // Ids begin with the time of the upload.
      .orderBy((e) => e.fn.min('id'))
      .limit(MAX_OWNERS)
      .execute();
    return rows.map(({ owner }) => owner);
  }

  /** Takes the oldest unread file of an owner; undefined if there is none. */
  async claimNext(owner: string): Promise<(StoredFile & { readonly attempt: number }) | undefined> {
    const row = await this.context.database.writeFor(owner, async (tables) => {
      const next = await tables
        .selectFrom('files')
        .select('id')
        .where('owner', '=', owner)
        .where('text_status', '=', 'pending')
        .where((e) => e.or([e('lease_until', 'is', null), e('lease_until', '<', this.now())]))
        .orderBy('id')
        .limit(1)
        .executeTakeFirst();
      return (
        next &&
        tables
          .updateTable('files')
          .set((e) => ({
            lease_until: this.now() + LEASE_MS,
            attempts: e('attempts', '+', 1),
            host_id: this.hostId,
          }))
          .where('owner', '=', owner)
          .where('id', '=', next.id)
          .returningAll()
          .executeTakeFirst()
      );
    });
    if (!row) return undefined;
    if (row.attempts <= MAX_ATTEMPTS) return { ...toFile(row), attempt: row.attempts };
    const key = { owner, fileId: row.id, attempt: row.attempts };
    await this.deleteAll(key);
    await this.fail(key, 'reading it ended unexpectedly several times');
    return this.claimNext(owner);
  }

  /** Extends a claim; false if it was lost. */
  extend(key: ClaimKey): Promise<boolean> {
    return this.update(key, () => ({ lease_until: this.now() + LEASE_MS }));
  }

  /** Gives a claimed file back; it can be claimed again after a pause, as if it had not been. */
  async release(key: ClaimKey, pauseMs = 0): Promise<void> {
    const lease_until = pauseMs > 0 ? this.now() + pauseMs : null;
    await this.update(key, (attempts) => ({ lease_until, attempts: attempts - 1 }));
  }

  /** False if the file was deleted meanwhile, or its claim was lost. */
  add(key: ClaimKey, passages: readonly Passage[]): Promise<boolean> {
    const { owner, fileId, attempt } = key;
    const rows = passages.map((passage) => ({
      owner,
      file_id: fileId,
      ...passage,
      scope: [toOwnerWord(owner), toFileWord(key), ...readHidden(passage.text)].join(' '),
    }));
    const bytes = passages.reduce((sum, { text }) => sum + Buffer.byteLength(text), 0);
    return this.context.database.write(async (tables) => {
      // Locks the row, so that a deletion waits and then finds these passages.
      const { numUpdatedRows } = await tables
        .updateTable('files')
        .set({
          lease_until: this.now() + LEASE_MS,
          text_bytes: sql<number>`coalesce(text_bytes, 0) + ${bytes}`,
        })
        .where('owner', '=', owner)
        .where('id', '=', fileId)
        .where('text_status', '=', 'pending')
        .$if(attempt !== undefined, (query) =>
          query.where('attempts', '=', attempt ?? 0).where('host_id', '=', this.hostId),
        )
        .executeTakeFirstOrThrow();
      if (numUpdatedRows === 0n) return false;
      await tables.insertInto('file_passages').values(rows).execute();
      return true;
    });
  }

  async finish(key: ClaimKey, { unit, count, isComplete }: TextOutcome): Promise<void> {
    await this.update(key, () => ({
      text_status: 'ready',
      text_unit: unit,
      text_count: count,
      text_complete: isComplete ? 1 : 0,
      lease_until: null,
    }));
  }

  async fail(key: ClaimKey, error: string): Promise<void> {
    await this.update(key, () => ({ text_status: 'failed', text_error: error, lease_until: null }));
  }

  /** Deletes the text of a file, a few passages at a time. */
  async deleteAll({ owner, fileId }: FileKey): Promise<void> {
    await this.context.database.write((tables) =>
      tables
        .deleteFrom('file_vectors')
        .where('owner', '=', owner)
        .where('file_id', '=', fileId)
        .execute(),
    );
    for (;;) {
      const deleted = await this.context.database.write(async (tables) => {
        const last = await tables
          .selectFrom('file_passages')
          .select('n')
          .where('owner', '=', owner)
          .where('file_id', '=', fileId)
          .orderBy('n', 'desc')
          .limit(1)
          .executeTakeFirst();
        if (!last) return 0n;
        const { numDeletedRows } = await tables
          .deleteFrom('file_passages')
          .where('owner', '=', owner)
          .where('file_id', '=', fileId)
          .where('n', '>', last.n - DELETED_PASSAGES)
          .executeTakeFirstOrThrow();
        return numDeletedRows;
      });
      if (deleted === 0n) break;
    }
    await this.context.database.write((tables) =>
      tables
        .updateTable('files')
        .set({ text_bytes: null })
        .where('owner', '=', owner)
        .where('id', '=', fileId)
        .where('text_bytes', 'is not', null)
        .execute(),
    );
  }

  /** Bytes of the text of all files of an owner. */
  async measure(owner: string): Promise<number> {
    const { total } = await this.context.database.tables
      .selectFrom('files')
      .select((e) => e.fn.sum<number | null>('text_bytes').as('total'))
      .where('owner', '=', owner)
      .executeTakeFirstOrThrow();
    return Number(total ?? 0);
  }

  /** Where the passage begins that contains a place, if passages contain several places each. */
  async findStart({ owner, fileId }: FileKey, place: number): Promise<number> {
    const { start } = await this.context.database.tables
      .selectFrom('file_passages')
      .select((e) => e.fn.max<number | null>('place').as('start'))
      .where('owner', '=', owner)
      .where('file_id', '=', fileId)
      .where('place', '<=', place)
      .executeTakeFirstOrThrow();
    return start ?? place;
  }

  /** The passages from a place on, in order, without the first `skip` of them. */
  async read(
    { owner, fileId }: FileKey,
    {
      from,
      skip = 0,
      limit,
    }: { readonly from: number; readonly skip?: number; readonly limit: number },
  ): Promise<Passage[]> {
    const rows = await this.context.database.tables
      .selectFrom('file_passages')
      .select(['n', 'place', 'position', 'text'])
      .where('owner', '=', owner)
      .where('file_id', '=', fileId)
      .where('place', '>=', from)
      .orderBy('place')
      .orderBy('n')
      .limit(limit)
      .offset(skip)
      .execute();
    return rows;
  }

  /** The passages of the owner that fit the query best; of one file, if it is given. */
  async search(search: {
    readonly owner: string;
    readonly fileId?: string | undefined;
    readonly query: string;
    readonly limit: number;
  }): Promise<FoundPassage[]> {
    const words = splitWords(search.query);
    if (words.length === 0) return [];
    const { owner, fileId } = search;
    const scope =
      fileId === undefined
        ? [toOwnerWord(owner)]
        : [toOwnerWord(owner), toFileWord({ owner, fileId })];
    const found = new Map<string, FoundPassage>();
    // First those with all words; then those with each word, of which a common one finds only some.
    const queries = words.length > 1 ? [words, ...words.map((word) => [word])] : [words];
    for (const wanted of queries)
      for (const passage of await this.findPassages({ owner, scope, words: wanted }))
        found.set(`${passage.fileId} ${passage.n}`, passage);
    return (await rank([...found.values()], words)).slice(0, search.limit);
  }

  private async findPassages(search: WordSearch): Promise<FoundPassage[]> {
    const { engine, tables } = this.context.database;
    const matches = engine === 'postgres' ? matchInPostgres(search) : matchInSqlite(search);
    const { rows } = await sql<FoundPassage>`select p.n, p.place, p.position, p.text,
        p.file_id as "fileId", f.name as "file"
      from file_passages p join files f on f.owner = p.owner and f.id = p.file_id
      where p.owner = ${search.owner} and f.status = 'ready' and ${matches}
      limit ${CANDIDATES}`.execute(tables);
    return rows;
  }

  /** Changes a file that is being read; false if it is not, or its claim was lost. */
  private update(
    { owner, fileId, attempt }: ClaimKey,
    change: (attempts: number) => Partial<FileRow>,
  ): Promise<boolean> {
    return this.context.database.write(async (tables) => {
      const row = await tables
        .selectFrom('files')
        .select('attempts')
        .where('owner', '=', owner)
        .where('id', '=', fileId)
        .executeTakeFirst();
      const { numUpdatedRows } = await tables
        .updateTable('files')
        .set(change(row?.attempts ?? 0))
        .where('owner', '=', owner)
        .where('id', '=', fileId)
        .where('text_status', '=', 'pending')
        .where('attempts', '=', attempt ?? row?.attempts ?? 0)
        .$if(attempt !== undefined, (query) => query.where('host_id', '=', this.hostId))
        .executeTakeFirstOrThrow();
      return numUpdatedRows > 0n;
    });
  }

  private now(): number {
    return this.context.clock();
  }
}

/** Passages that one word of a query may contribute; ranking reads all of them. */
const CANDIDATES = 100;
const MAX_WORDS = 8;
const MAX_QUERY_LENGTH = 1000;

interface WordSearch {
  readonly owner: string;
  readonly scope: readonly string[];
  readonly words: readonly string[];
}

/** The owner is part of the query: the index would otherwise walk the passages of all users that contain a word. */
function matchInSqlite({ scope, words }: WordSearch) {
  const query = [
    ...scope.map((word) => `scope:"${word}"`),
    ...words.map((word) => {
      if (!isUnspaced(word)) return `(text:"${word}" OR {text scope}:"${fold(word)}")`;
      return isCharacter(word) ? `scope:"${word}"*` : `scope:"${word}"`;
    }),
  ].join(' AND ');
  return sql<boolean>`p.seq in (select rowid from file_words where file_words match ${query} limit ${CANDIDATES})`;
}

function matchInPostgres({ scope, words }: WordSearch) {
  const query = [
    ...scope.map((word) => `${word}:A`),
    ...words.map((word) => {
      if (!isUnspaced(word)) return `(${word}:D | ${fold(word)}:AD)`;
      return isCharacter(word) ? `${word}:*A` : `${word}:A`;
    }),
  ].join(' & ');
  return sql<boolean>`p.words @@ to_tsquery('simple', ${query})`;
}

/**
 * Both engines compare accents, and take what is written without spaces for one word. So the scope contains words
 * without their accents, every two neighboring characters of what has no spaces, and words directly beside it.
 */
function readHidden(text: string): ReadonlySet<string> {
  if (/^\p{ASCII}*$/u.test(text)) return new Set();
  const plain = new Set(text.toLowerCase().match(WORD));
  const words = [...readTerms(text)].map((term) => term.text);
  return new Set(words.filter((word) => (isUnspaced(word) ? isPair(word) : !plain.has(word))));
}

/** A word of a query without its accents. */
const fold = (word: string): string => readTerms(word).next().value?.text ?? word;

/** Marks alone are not words. */
const isPair = (word: string) => isUnspaced(word) && /[\p{L}\p{N}]/u.test(word);

const isCharacter = (word: string) => [...word].length === 1;

/** Anyone can compute these words, so the query also compares the columns. */
const toOwnerWord = (owner: string) => `o${hash(owner)}`;
const toFileWord = ({ owner, fileId }: FileKey) => `f${hash(`${owner} ${fileId}`)}`;
const hash = (text: string) => createHash('sha256').update(text).digest('hex').slice(0, 24);

/** Words that say nothing about what is searched; of other languages, ranking recognizes them by their frequency. */
const STOP_WORDS = new Set(
  'a about an and are as at be by did do does for from has have how i in is it me my of on or page say says that the their there this to was were what when where which who why will with you'.split(
    ' ',
  ),
);

const WORD = /[\p{L}\p{N}][\p{L}\p{N}\p{M}]*/gu;

/** Letters, digits and marks only, so that nothing in a query can be read as search syntax. */
function splitWords(query: string): string[] {
  const words = query.slice(0, MAX_QUERY_LENGTH).toLowerCase().match(WORD) ?? [];
  const split = words.flatMap((word) =>
    isUnspaced(word) ? readQueryTerms(word).map(({ text }) => text) : word,
  );
  const unique = [
    ...new Set(split.filter((word) => (isUnspaced(word) ? isPair(word) : word.length <= 64))),
  ];
  const meaningful = unique.filter((word) => !STOP_WORDS.has(word));
  return (meaningful.length > 0 ? meaningful : unique)
    .toSorted((a, b) => b.length - a.length)
    .slice(0, MAX_WORDS);
}

/** Ranks by BM25 within the candidates. */
async function rank(
  candidates: readonly FoundPassage[],
  query: readonly string[],
): Promise<FoundPassage[]> {
  const words = [...new Set(query.map((word) => (isUnspaced(word) ? word : fold(word))))];
  const bags: Bag[] = [];
  for (const [i, { text }] of candidates.entries()) {
    bags.push(countWords(text));
    // Those of languages without spaces take a millisecond each.
    if (i % PASSAGES_PER_TICK === PASSAGES_PER_TICK - 1) await nextTick();
  }
  const average = bags.reduce((sum, { length }) => sum + length, 0) / (bags.length || 1);
  const weights = words.map((word) => {
    const having = bags.filter(({ counts }) => counts.has(word)).length;
    return Math.log(1 + (bags.length - having + 0.5) / (having + 0.5));
  });
  const score = ({ counts, length }: Bag) =>
    words.reduce((sum, word, i) => {
      const count = counts.get(word) ?? 0;
      const norm = count + 1.2 * (0.25 + (0.75 * length) / average);
      return sum + ((weights[i] ?? 0) * count * 2.2) / norm;
    }, 0);
  return candidates
    .map((passage, i) => ({ passage, score: score(bags[i] as Bag) }))
    .sort((a, b) => b.score - a.score)
    .map(({ passage }) => passage);
}

const PASSAGES_PER_TICK = 10;

interface Bag {
  readonly counts: ReadonlyMap<string, number>;
  readonly length: number;
}

function countWords(text: string): Bag {
  const words = [...readTerms(text)];
  const counts = new Map<string, number>();
  for (const word of words) counts.set(word.text, (counts.get(word.text) ?? 0) + 1);
  return { counts, length: words.length };
}
