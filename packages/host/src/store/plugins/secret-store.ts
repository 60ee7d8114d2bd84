import type { Secrets } from '@sibyl/plugin-kit';
import type { StoreContext } from '../database/store-context.js';
import type { Vault } from '../encryption.js';
import type { PluginPlace } from './plugin-place.js';

const MAX_LENGTH = 16 * 1024;

/** The secrets of users with plugins, sealed at rest. */
export class SecretStore {
  readonly #context: StoreContext;
  readonly #vault: Vault;

  constructor(context: StoreContext, vault: Vault) {
    this.#context = context;
    this.#vault = vault;
  }

  /** One user's secrets with one plugin. */
  of(place: PluginPlace): Secrets {
    return {
      get: (name) => this.#get(place, name),
      set: (name, value) =>
        value === undefined ? this.#remove(place, name) : this.#put(place, name, value),
    };
  }

  async #get({ owner, plugin }: PluginPlace, name: string): Promise<string | undefined> {
    const row = await this.#context.database.tables
      .selectFrom('secrets')
      .select('ciphertext')
      .where('owner', '=', owner)
      .where('plugin', '=', plugin)
      .where('name', '=', name)
      .executeTakeFirst();
    if (!row) return undefined;
    const opened = this.#vault.open(row.ciphertext, boundTo(owner, plugin, name));
    if ('ok' in opened) return opened.ok;
    throw new Error(`The secret ${name} cannot be read. ${opened.error}`);
  }

  async #put({ owner, plugin }: PluginPlace, name: string, value: string): Promise<void> {
    if (value.length > MAX_LENGTH)
      throw new Error(`The secret ${name} is longer than ${MAX_LENGTH} characters`);
    const ciphertext = this.#vault.seal(value, boundTo(owner, plugin, name));
    await this.#context.database.write((tables) =>
      tables
        .insertInto('secrets')
        .values({ owner, plugin, name, ciphertext })
        .onConflict((c) => c.columns(['owner', 'plugin', 'name']).doUpdateSet({ ciphertext }))
        .execute(),
    );
  }

  async #remove({ owner, plugin }: PluginPlace, name: string): Promise<void> {
    await this.#context.database.write((tables) =>
      tables
        .deleteFrom('secrets')
        .where('owner', '=', owner)
        .where('plugin', '=', plugin)
        .where('name', '=', name)
        .execute(),
    );
  }
}

/** A row moved to another user, plugin or name does not open. */
const boundTo = (owner: string, plugin: string, name: string) => ['secret', owner, plugin, name];
