import { type Embeddings, mergeRankings } from '@sibyl/plugin-kit';
import type { Logger } from 'pino';
import type { FileTextStore, FoundPassage } from '../store/file-text-store.js';
import type { PassageVectorStore } from '../store/passage-vectors.js';

/** Passages of each ranking that are merged. */
const RANKED = 24;

interface PassageSearchDeps {
  readonly texts: FileTextStore;
  readonly vectors: PassageVectorStore;
  readonly embeddings: Embeddings | undefined;
  readonly logger: Logger;
}

interface PassageQuery {
  readonly owner: string;
  readonly fileId?: string | undefined;
  readonly query: string;
  readonly limit: number;
}

/** Finds passages of files by their words and, with an embedding model, by their meaning. */
export class PassageSearch {
  constructor(private readonly deps: PassageSearchDeps) {}

  async find(search: PassageQuery): Promise<FoundPassage[]> {
    const { texts, embeddings } = this.deps;
    if (!embeddings) return texts.search(search);
    const [byWords, byMeaning] = await Promise.all([
      texts.search({ ...search, limit: RANKED }),
      this.findByMeaning(search, embeddings),
    ]);
    const merged = mergeRankings([byWords, byMeaning], ({ fileId, n }) => `${fileId} ${n}`);
    return merged.slice(0, search.limit);
  }

  private async findByMeaning(
    { owner, fileId, query }: PassageQuery,
    embeddings: Embeddings,
  ): Promise<FoundPassage[]> {
    const { vectors, logger } = this.deps;
    try {
      const [vector] = await embeddings.embed([query]);
      if (!vector) return [];
      const { model } = embeddings;
      return await vectors.search({ owner, fileId, model, vector, limit: RANKED });
    } catch (err) {
      logger.warn({ reason: String(err) }, 'files are searched for words only');
      return [];
    }
  }
}
