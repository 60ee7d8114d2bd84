import { prepareQuery, type StoreContext } from './database.js';
import { claimOnce } from './revocation-store.js';

/** A user who redeemed an invitation. */
export interface InvitedCaller {
  readonly did: string;
  /** CID of the invitation. */
  readonly cid: string;
  /** Milliseconds. */
  readonly createdAt: number;
}

/** How long a used invitation is kept after its expiry, in seconds. */
const KEEP_SECONDS = 60;

const findCaller = prepareQuery((tables, { did }: Pick<InvitedCaller, 'did'>) =>
  tables.selectFrom('callers').select('did').where('did', '=', did),
);

/** Users who may call because they redeemed an invitation. */
export class CallerStore {
  private readonly context: StoreContext;

  constructor(context: StoreContext) {
    this.context = context;
  }

  async has(did: string): Promise<boolean> {
    const { rows } = await findCaller(this.context.database.tables, { did });
    return rows.length > 0;
  }

  /** Returns those of the given DIDs, at most a few hundred, that are stored. */
  async filterStored(dids: readonly string[]): Promise<readonly string[]> {
    if (dids.length === 0) return [];
    const { tables } = this.context.database;
    const rows = await tables
      .selectFrom('callers')
      .select('did')
      .where('did', 'in', dids)
      .execute();
    return rows.map(({ did }) => did);
  }

  /**
   * Marks an invitation as used and stores its caller, both or neither. If the caller is already stored, the
   * invitation stays unused.
   */
  redeem(
    did: string,
    invitation: { readonly cid: string; readonly expiration: number },
  ): Promise<'redeemed' | 'already-stored' | 'used'> {
    const { database, clock } = this.context;
    const { cid, expiration } = invitation;
    return database.write(async (tables) => {
      const used = await tables
        .selectFrom('single_use')
        .select('cid')
        .where('cid', '=', cid)
        .executeTakeFirst();
      if (used) return 'used';
      const stored = await tables
        .insertInto('callers')
        .values({ did, cid, created_at: clock() })
        .onConflict((c) => c.column('did').doNothing())
        .returning('did')
        .executeTakeFirst();
      if (!stored) return 'already-stored';
      const claim = { cid, owner: did, expires_at: expiration + KEEP_SECONDS };
      if (await claimOnce(tables, claim)) return 'redeemed';
      // Another caller used it after the check above.
      await tables.deleteFrom('callers').where('did', '=', did).execute();
      return 'used';
    });
  }

  /** All of them, newest first. */
  async list(): Promise<readonly InvitedCaller[]> {
    const rows = await this.context.database.tables
      .selectFrom('callers')
      .selectAll()
      .orderBy('created_at', 'desc')
      .orderBy('did')
      .execute();
    return rows.map(({ did, cid, created_at }) => ({ did, cid, createdAt: created_at }));
  }

  /** Returns whether the caller was stored. */
  remove(did: string): Promise<boolean> {
    return this.context.database.write(async (tables) => {
      const { numDeletedRows } = await tables
        .deleteFrom('callers')
        .where('did', '=', did)
        .executeTakeFirstOrThrow();
      return numDeletedRows > 0n;
    });
  }
}
