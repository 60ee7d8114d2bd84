import { setImmediate as nextTick } from 'node:timers/promises';
import { compareVectors, type Vector } from '@sibyl/plugin-kit/search';
import { sql } from 'kysely';
import type { StoreContext } from './database.js';
import type { FileKey } from './file-store.js';
import type { FoundPassage } from './file-text-store.js';

/** Longer than the embedding of one batch takes; a host that is seen to end loses its claims at once. */
const LEASE_MS = 5 * 60 * 1000;
/** Owners to choose from for the next file. */
const MAX_OWNERS = 100;
/** Vectors that are compared before other work has a turn. */
const PAGE = 500;
/** Vectors of one user that a search compares, those of the newest files first. */
const MAX_COMPARED = 20_000;

interface PassageKey {
  readonly fileId: string;
  readonly n: number;
}

interface VectorSearch {
  readonly owner: string;
  readonly fileId?: string | undefined;
  readonly model: string;
  readonly vector: Vector;
  readonly limit: number;
}

interface MissingRange {
  readonly model: string;
  /** The number of the last passage that was tried. */
  readonly after: number;
  readonly limit: number;
}

/** The meaning of the passages of files. A file is found by it once all of its passages have a vector. */
export class PassageVectorStore {
  constructor(
    private readonly context: StoreContext,
    private readonly hostId: string,
  ) {}

  /** Makes files wait again whose vectors are of another model. */
  async reset(model: string): Promise<void> {
    await this.context.database.write((tables) =>
      tables
        .updateTable('files')
        .set({ vector_model: null })
        .where('vector_model', '<>', model)
        .execute(),
    );
  }

  /** Takes a file whose passages have no vectors, of any user; undefined if there is none. */
  async claimNext(): Promise<FileKey | undefined> {
    const owners = await this.context.database.tables
      .selectFrom('files')
      .select('owner')
      .distinct()
      .where('text_status', '=', 'ready')
      .where('vector_model', 'is', null)
      .where((e) => e.or([e('lease_until', 'is', null), e('lease_until', '<', this.now())]))
      .limit(MAX_OWNERS)
      .execute();
    // A user does not wait for all files of another.
    const { owner } = owners[Math.floor(Math.random() * owners.length)] ?? {};
    return owner === undefined ? undefined : this.claim(owner);
  }

  /** The next passages of a file without a vector of the model; extends the claim. */
  async listMissing({ owner, fileId }: FileKey, { model, after, limit }: MissingRange) {
    await this.update({ owner, fileId }, { lease_until: this.now() + LEASE_MS });
    return this.context.database.tables
      .selectFrom('file_passages as p')
      .leftJoin('file_vectors as v', (join) =>
        join
          .onRef('v.owner', '=', 'p.owner')
          .onRef('v.file_id', '=', 'p.file_id')
          .onRef('v.n', '=', 'p.n')
          .on('v.model', '=', model),
      )
      .select(['p.n', 'p.text'])
      .where('p.owner', '=', owner)
      .where('p.file_id', '=', fileId)
      .where('p.n', '>', after)
      .where('v.n', 'is', null)
      .orderBy('p.n')
      .limit(limit)
      .execute();
  }

  /** Stores vectors of passages that still exist. */
  async put(
    { owner, fileId }: FileKey,
    model: string,
    vectors: readonly { readonly n: number; readonly vector: Vector }[],
  ): Promise<void> {
    await this.context.database.write(async (tables) => {
      // Locks the row, so that a deletion waits and then finds these vectors.
      const { numUpdatedRows } = await tables
        .updateTable('files')
        .set({ lease_until: this.now() + LEASE_MS })
        .where('owner', '=', owner)
        .where('id', '=', fileId)
        .where('status', '=', 'ready')
        .executeTakeFirstOrThrow();
      if (numUpdatedRows === 0n || vectors.length === 0) return;
      await tables
        .insertInto('file_vectors')
        .values(vectors.map((each) => ({ owner, file_id: fileId, model, ...each })))
        .onConflict((c) =>
          c
            .columns(['owner', 'file_id', 'n'])
            .doUpdateSet((e) => ({ vector: e.ref('excluded.vector'), model })),
        )
        .execute();
    });
  }

  finish(key: FileKey, model: string): Promise<void> {
    return this.update(key, { vector_model: model, lease_until: null });
  }

  /** Gives a claimed file back. */
  release(key: FileKey): Promise<void> {
    return this.update(key, { lease_until: null });
  }

  /** The passages whose meaning is closest, the best first. */
  async search(search: VectorSearch): Promise<FoundPassage[]> {
    let best: Scored[] = [];
    let last: PassageKey | undefined;
    for (let compared = 0; compared < MAX_COMPARED; compared += PAGE) {
      const page = await this.readPage(search, last);
      const scored = page.map(({ fileId, n, vector }) => ({
        fileId,
        n,
        score: compareVectors(vector, search.vector),
      }));
      best = keepBest([...best, ...scored], search.limit);
      last = page.at(-1);
      if (page.length < PAGE) break;
      await nextTick();
    }
    return this.readPassages(search.owner, best);
  }

  /** Ids of files begin with their time, so that the newest come first. */
  private readPage({ owner, fileId, model }: VectorSearch, last: PassageKey | undefined) {
    let query = this.context.database.tables
      .selectFrom('file_vectors as v')
      .innerJoin('files as f', (join) =>
        join.onRef('f.owner', '=', 'v.owner').onRef('f.id', '=', 'v.file_id'),
      )
      .select(['v.file_id as fileId', 'v.n', 'v.vector'])
      .where('v.owner', '=', owner)
      .where('f.status', '=', 'ready')
      .where('f.vector_model', '=', model)
      .where((e) => e.or([e('v.model', 'is', null), e('v.model', '=', model)]));
    if (fileId !== undefined) query = query.where('v.file_id', '=', fileId);
    if (last) query = query.where(sql<boolean>`(v.file_id, v.n) < (${last.fileId}, ${last.n})`);
    return query.orderBy('v.file_id', 'desc').orderBy('v.n', 'desc').limit(PAGE).execute();
  }

  private async readPassages(owner: string, keys: readonly PassageKey[]): Promise<FoundPassage[]> {
    const found: FoundPassage[] = [];
    for (const { fileId, n } of keys) {
      const row = await this.context.database.tables
        .selectFrom('file_passages as p')
        .innerJoin('files as f', (join) =>
          join.onRef('f.owner', '=', 'p.owner').onRef('f.id', '=', 'p.file_id'),
        )
        .select(['p.n', 'p.place', 'p.position', 'p.text', 'p.file_id as fileId', 'f.name as file'])
        .where('p.owner', '=', owner)
        .where('p.file_id', '=', fileId)
        .where('p.n', '=', n)
        .executeTakeFirst();
      if (row) found.push(row);
    }
    return found;
  }

  private claim(owner: string): Promise<FileKey | undefined> {
    return this.context.database.writeFor(owner, async (tables) => {
      const next = await tables
        .selectFrom('files')
        .select('id')
        .where('owner', '=', owner)
        .where('text_status', '=', 'ready')
        .where('vector_model', 'is', null)
        .where((e) => e.or([e('lease_until', 'is', null), e('lease_until', '<', this.now())]))
        .orderBy('id')
        .limit(1)
        .executeTakeFirst();
      if (!next) return undefined;
      await tables
        .updateTable('files')
        .set({ lease_until: this.now() + LEASE_MS, host_id: this.hostId })
        .where('owner', '=', owner)
        .where('id', '=', next.id)
        .execute();
      return { owner, fileId: next.id };
    });
  }

  private async update(
    { owner, fileId }: FileKey,
    change: { readonly vector_model?: string; readonly lease_until: number | null },
  ): Promise<void> {
    await this.context.database.write((tables) =>
      tables
        .updateTable('files')
        .set(change)
        .where('owner', '=', owner)
        .where('id', '=', fileId)
        .where('text_status', '=', 'ready')
        .execute(),
    );
  }

  private now(): number {
    return this.context.clock();
  }
}

interface Scored extends PassageKey {
  readonly score: number;
}

/** The best of what was found before and on this page. */
const keepBest = (scored: readonly Scored[], limit: number): Scored[] =>
  scored.toSorted((a, b) => b.score - a.score).slice(0, limit);
