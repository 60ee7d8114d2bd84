import { createHash, randomBytes } from 'node:crypto';
import { type PluginDatabase, sharedKey } from '../context.js';
import { text } from '../tables/columns.js';
import { defineTable, type Row } from '../tables/table.js';

/** A chat in which results can be posted, such as those of schedules. */
export interface ResultChat {
  /** Whether a user of the chat has opened this address. */
  isOpen(address: string): Promise<boolean>;
  /** Posts Markdown; `id` is the same for each attempt. Throws why it cannot. */
  post(result: {
    readonly address: string;
    readonly id: string;
    readonly markdown: string;
  }): Promise<void>;
}

/** What the plugins of chats share; addresses begin with the name of the chat and `_`. */
export const RESULT_CHATS = {
  slack: sharedKey<ResultChat>('slackResults'),
  matrix: sharedKey<ResultChat>('matrixResults'),
} as const;

/** A place in a chat that one of its users has opened for results. */
interface ResultPlace {
  readonly owner: string;
  /** A channel or room. */
  readonly place: string;
}

interface ResultAddressesDeps {
  readonly database: PluginDatabase;
  /** A table of the plugin that `defineResultTable` returns. */
  readonly table: string;
  readonly chat: keyof typeof RESULT_CHATS;
}

/** The table of the addresses of a plugin. */
export const defineResultTable = <const Name extends string>(name: Name) =>
  defineTable(
    name,
    { owner: text(), place: text(), address_hash: text() },
    {
      key: ['owner', 'place'],
      indexes: { [`${name}_by_address`]: { on: ['address_hash'], isUnique: true } },
    },
  );

interface ResultTables {
  results: Row<ReturnType<typeof defineResultTable>>;
}

/** Secret addresses for results: all who know one may have results posted there, until it is replaced or closed. */
export class ResultAddresses {
  private readonly database: PluginDatabase<ResultTables>;
  private readonly table: 'results';

  constructor(private readonly deps: ResultAddressesDeps) {
    this.database = deps.database;
    this.table = deps.table as 'results';
  }

  /** Returns a new address; the user's earlier one of this place is closed. */
  async open({ owner, place }: ResultPlace): Promise<string> {
    const address = `${this.deps.chat}_${randomBytes(18).toString('base64url')}`;
    const address_hash = hash(address);
    await this.database.write((tables) =>
      tables
        .insertInto(this.table)
        .values({ owner, place, address_hash })
        .onConflict((c) => c.columns(['owner', 'place']).doUpdateSet({ address_hash }))
        .execute(),
    );
    return address;
  }

  /** Returns whether there was one. */
  async close({ owner, place }: ResultPlace): Promise<boolean> {
    const closed = await this.database.write((tables) =>
      tables
        .deleteFrom(this.table)
        .where('owner', '=', owner)
        .where('place', '=', place)
        .returning('place')
        .executeTakeFirst(),
    );
    return closed !== undefined;
  }

  /** The place of an address. */
  async find(address: string): Promise<string | undefined> {
    const row = await this.database.tables
      .selectFrom(this.table)
      .select('place')
      .where('address_hash', '=', hash(address))
      .executeTakeFirst();
    return row?.place;
  }

  /** What the plugin shares. */
  toChat(post: (place: string, result: { id: string; markdown: string }) => Promise<void>) {
    const chat: ResultChat = {
      isOpen: async (address) => (await this.find(address)) !== undefined,
      post: async ({ address, ...result }) => {
        const place = await this.find(address);
        if (place === undefined) throw new Error('The address was closed or replaced in the chat');
        await post(place, result);
      },
    };
    return RESULT_CHATS[this.deps.chat].share(chat);
  }
}

const hash = (address: string) => createHash('sha256').update(address).digest('base64');
