import {
  type Embeddings,
  type Logger,
  type PluginDatabase,
  type Repetition,
  repeat,
} from '@sibyl/plugin-kit';
import { compareVectors, type Vector } from '@sibyl/plugin-kit/search';
import type { About, FactRow, MemoryTables } from './tables.js';

/** Facts in one call of the model. */
const BATCH = 32;
/** How often to look for facts that have no vector yet. */
const EVERY_MS = 30_000;

interface FactVectorsDeps {
  readonly database: PluginDatabase<MemoryTables>;
  readonly embeddings: Embeddings;
  readonly logger: Logger;
}

/** Finds facts by their meaning; gives new and changed ones a vector in the background. */
export class FactVectors {
  private readonly work: Repetition;
  private isReset = false;

  constructor(private readonly deps: FactVectorsDeps) {
    this.work = repeat(() => this.embedMissing(), { everyMs: EVERY_MS, logger: deps.logger });
  }

  /** Called when there are facts without a vector. */
  wake(): void {
    this.work.wake();
  }

  close(): Promise<void> {
    return this.work.stop();
  }

  /** The ids of all facts about a user that have a vector, the closest in meaning first; empty if the model does not answer. */
  async rank({ owner, subUser }: About, query: string): Promise<readonly string[]> {
    const { database, embeddings, logger } = this.deps;
    try {
      const [wanted] = await embeddings.embed([query]);
      if (!wanted) return [];
      const vectors = database.tables
        .selectFrom('memory_vectors as v')
        .innerJoin('memory_facts as f', (join) =>
          join.onRef('f.owner', '=', 'v.owner').onRef('f.id', '=', 'v.id'),
        )
        .select(['v.id', 'v.vector'])
        .where('v.owner', '=', owner)
        .where('f.vector_model', '=', embeddings.model);
      const rows = await (subUser === undefined
        ? vectors
        : vectors.where('f.sub_user', '=', subUser)
      ).execute();
      return rows
        .map(({ id, vector }) => ({ id, score: compareVectors(vector, wanted) }))
        .filter(({ score }) => score > 0)
        .sort((a, b) => b.score - a.score)
        .map(({ id }) => id);
    } catch (err) {
      logger.warn({ reason: String(err) }, 'facts are searched for words only');
      return [];
    }
  }

  private async embedMissing(): Promise<void> {
    const { database, embeddings } = this.deps;
    if (!this.isReset) await this.reset();
    for (;;) {
      const facts = await database.tables
        .selectFrom('memory_facts')
        .select(['owner', 'id', 'text'])
        .where('vector_model', 'is', null)
        .limit(BATCH)
        .execute();
      if (facts.length === 0) return;
      const vectors = await embeddings.embed(facts.map(({ text }) => text));
      for (const [i, fact] of facts.entries()) await this.store(fact, vectors[i]);
    }
  }

  /** Vectors of another model are replaced. */
  private async reset(): Promise<void> {
    const { database, embeddings } = this.deps;
    await database.write((tables) =>
      tables
        .updateTable('memory_facts')
        .set({ vector_model: null })
        .where('vector_model', '<>', embeddings.model)
        .execute(),
    );
    this.isReset = true;
  }

  /** Unless the fact was forgotten or changed meanwhile. One without a vector is found by its words only. */
  private async store(
    { owner, id, text }: Pick<FactRow, 'owner' | 'id' | 'text'>,
    vector: Vector | undefined,
  ): Promise<void> {
    const { database, embeddings } = this.deps;
    await database.write(async (tables) => {
      const { numUpdatedRows } = await tables
        .updateTable('memory_facts')
        .set({ vector_model: embeddings.model })
        .where('owner', '=', owner)
        .where('id', '=', id)
        .where('text', '=', text)
        .executeTakeFirstOrThrow();
      if (numUpdatedRows === 0n) return;
      // That of an earlier text.
      await tables
        .deleteFrom('memory_vectors')
        .where('owner', '=', owner)
        .where('id', '=', id)
        .execute();
      if (vector) await tables.insertInto('memory_vectors').values({ owner, id, vector }).execute();
    });
  }
}
