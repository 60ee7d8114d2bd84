import type { Blobs } from '@sibyl/plugin-kit';
import { OracleError } from '@sibyl/protocol';
import type { Kysely } from 'kysely';
import type { Schema } from '../database/schema.js';
import type { StoreContext } from '../database/store-context.js';
import type { PluginPlace } from './plugin-place.js';

const MB = 1024 * 1024;
const MAX_BYTES = 25 * MB;
/** Of one user with one plugin, all blobs together. */
const MAX_TOTAL_BYTES = 200 * MB;

type Blob = Parameters<Blobs['put']>[0];

/** The files of users with plugins. */
export class BlobStore {
  readonly #context: StoreContext;

  constructor(context: StoreContext) {
    this.#context = context;
  }

  /** One user's files with one plugin. */
  of(place: PluginPlace): Blobs {
    return {
      put: (blob) => this.#put(place, blob),
      get: (id) => this.#get(place, id),
      delete: (id) => this.#delete(place, id),
    };
  }

  async #put(place: PluginPlace, { mediaType, data }: Blob): Promise<string> {
    const { database, newId, clock } = this.#context;
    const size = data.byteLength;
    if (size > MAX_BYTES) throw tooLarge(`A file may have at most ${MAX_BYTES / MB} MB`);
    const id = newId();
    const row = { id, ...place, media_type: mediaType, size, data, created_at: clock() };
    await database.write(async (tables) => {
      if ((await totalOf(tables, place)) + size > MAX_TOTAL_BYTES)
        throw tooLarge(`${MAX_TOTAL_BYTES / MB} MB of files are kept already; delete some first`);
      await tables.insertInto('blobs').values(row).execute();
    });
    return id;
  }

  async #get({ owner, plugin }: PluginPlace, id: string): Promise<Blob | undefined> {
    const row = await this.#context.database.tables
      .selectFrom('blobs')
      .select(['media_type', 'data'])
      .where('id', '=', id)
      .where('owner', '=', owner)
      .where('plugin', '=', plugin)
      .executeTakeFirst();
    return row && { mediaType: row.media_type, data: new Uint8Array(row.data) };
  }

  async #delete({ owner, plugin }: PluginPlace, id: string): Promise<void> {
    await this.#context.database.write((tables) =>
      tables
        .deleteFrom('blobs')
        .where('id', '=', id)
        .where('owner', '=', owner)
        .where('plugin', '=', plugin)
        .execute(),
    );
  }
}

async function totalOf(tables: Kysely<Schema>, { owner, plugin }: PluginPlace): Promise<number> {
  const { total } = await tables
    .selectFrom('blobs')
    .select((e) => e.fn.sum('size').as('total'))
    .where('owner', '=', owner)
    .where('plugin', '=', plugin)
    .executeTakeFirstOrThrow();
  return Number(total ?? 0);
}

const tooLarge = (message: string) => new OracleError('body_too_large', { message });
