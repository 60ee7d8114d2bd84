import { setTimeout as sleep } from 'node:timers/promises';
import type { Embeddings } from '@sibyl/plugin-kit';
import { mergeRankings } from '@sibyl/plugin-kit/search';
import type { Logger } from 'pino';
import type { FileKey } from '../store/file-store.js';
import type { FileTextStore, FoundPassage } from '../store/file-text-store.js';
import type { PassageVectorStore } from '../store/passage-vectors.js';

/** Passages in one call of the model. */
const BATCH = 32;
/** How often to look for files that other hosts have read or left. */
const POLL_MS = 15_000;
/** After a fault of the model or the store. */
const RETRY_MS = 30_000;

/** Gives the passages of files their vectors, in the background, one file at a time. */
export class PassageEmbedder {
  private readonly closing = new AbortController();
  private readonly working: Promise<void>;
  private wakeUp = () => {};

  constructor(
    private readonly deps: {
      readonly vectors: PassageVectorStore;
      readonly embeddings: Embeddings;
      readonly logger: Logger;
    },
  ) {
    this.working = this.work();
  }

  /** Called when a file has passages without vectors. */
  wake(): void {
    this.wakeUp();
  }

  async close(): Promise<void> {
    this.closing.abort();
    this.wakeUp();
    await this.working;
  }

  private async work(): Promise<void> {
    const { vectors, embeddings, logger } = this.deps;
    let isReset = false;
    while (!this.closing.signal.aborted) {
      let pause = POLL_MS;
      try {
        if (!isReset) await vectors.reset(embeddings.model);
        isReset = true;
        const key = await vectors.claimNext();
        if (key) await this.embedFile(key);
        if (key) continue;
      } catch (err) {
        pause = RETRY_MS;
        if (!this.closing.signal.aborted)
          logger.warn({ reason: String(err) }, 'files were not embedded; trying again');
      }
      await this.rest(pause);
    }
  }

  private async rest(ms: number): Promise<void> {
    const awake = new AbortController();
    this.wakeUp = () => awake.abort();
    const signal = AbortSignal.any([awake.signal, this.closing.signal]);
    await sleep(ms, undefined, { signal, ref: false }).catch(() => undefined);
  }

  private async embedFile(key: FileKey): Promise<void> {
    const { vectors, embeddings } = this.deps;
    const { model } = embeddings;
    try {
      for (let after = -1; ; ) {
        const passages = await vectors.listMissing(key, { model, after, limit: BATCH });
        if (passages.length === 0) return await vectors.finish(key, model);
        if (this.closing.signal.aborted) return await vectors.release(key);
        const embedded = await embeddings.embed(passages.map(({ text }) => text));
        await vectors.put(
          key,
          model,
          passages.flatMap(({ n }, i) => (embedded[i] ? [{ n, vector: embedded[i] }] : [])),
        );
        after = passages.at(-1)?.n ?? after;
      }
    } catch (error) {
      await vectors.release(key);
      throw error;
    }
  }
}

/** Passages of each ranking that are merged. */
const RANKED = 24;

interface PassageQuery {
  readonly owner: string;
  readonly fileId?: string | undefined;
  readonly query: string;
  readonly limit: number;
}

/** Finds passages of files by their words and, with an embedding model, by their meaning. */
export class PassageSearch {
  constructor(
    private readonly deps: {
      readonly texts: FileTextStore;
      readonly vectors: PassageVectorStore;
      readonly embeddings: Embeddings | undefined;
      readonly logger: Logger;
    },
  ) {}

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
