import { type Rule, RulesClaims } from '@sibyl/protocol';
import { insertActivity } from './activity-store.js';
import { prepareQuery, type StoreContext } from './database.js';
import type { Vault } from './encryption.js';
import { claimOnce } from './revocation-store.js';

/** The rules of a user, and the token that set them. */
export interface StoredRules {
  readonly rules: readonly Rule[];
  readonly cid: string;
  /** Unix seconds; null for a token that never expires. */
  readonly expiresAt: number | null;
  /** Milliseconds. */
  readonly storedAt: number;
}

/** `previous`: the CID of the rules until now; empty if there were none. */
export type PutResult =
  | { readonly state: 'stored'; readonly previous: string; readonly stored: StoredRules }
  /** Other rules have replaced the token. */
  | { readonly state: 'replayed' };

/** Used tokens without an expiry are remembered until the year 9999. */
const NEVER = 253_402_300_799;
const KEEP_SECONDS = 60;

const findRules = prepareQuery((tables, { owner }: { readonly owner: string }) =>
  tables.selectFrom('rules').selectAll().where('owner', '=', owner),
);

/** The rules that users have signed: the last ones of each. */
export class RulesStore {
  constructor(
    private readonly context: StoreContext,
    private readonly vault: Vault,
  ) {}

  async find(owner: string): Promise<StoredRules | undefined> {
    const { rows } = await findRules(this.context.database.tables, { owner });
    const [row] = rows;
    if (!row) return undefined;
    const { cid, expires_at: expiresAt, stored_at: storedAt } = row;
    return {
      rules: RulesClaims.shape.rules.parse(JSON.parse(row.rules)),
      cid,
      expiresAt,
      storedAt,
    };
  }

  /** Stores rules; a token counts once, so that rules that the user has replaced cannot return. */
  put({
    owner,
    token,
    ...put
  }: Omit<StoredRules, 'storedAt'> & {
    readonly owner: string;
    readonly token: string;
  }): Promise<PutResult> {
    const sealed = this.vault.seal(token, ['rules', owner]);
    const { cid, rules, expiresAt } = put;
    const storedAt = this.context.clock();
    return this.context.database.writeFor(owner, async (tables) => {
      const before = (await findRules(tables, { owner })).rows[0];
      const stored = {
        rules,
        cid,
        expiresAt,
        storedAt: before?.cid === cid ? before.stored_at : storedAt,
      };
      if (before?.cid === cid) return { state: 'stored', previous: cid, stored };
      const claim = { cid, owner, expires_at: (expiresAt ?? NEVER) + KEEP_SECONDS };
      if (!(await claimOnce(tables, claim))) return { state: 'replayed' };
      const row = {
        cid,
        rules: JSON.stringify(rules),
        token: sealed,
        expires_at: expiresAt,
        stored_at: storedAt,
      };
      await tables
        .insertInto('rules')
        .values({ owner, ...row })
        .onConflict((c) => c.column('owner').doUpdateSet(row))
        .execute();
      await insertActivity(tables, [this.toChange(owner, 'stored')]);
      return { state: 'stored', previous: before?.cid ?? '', stored };
    });
  }

  /** Returns the CID of the rules that were deleted; undefined if there were none. */
  delete(owner: string): Promise<string | undefined> {
    return this.context.database.writeFor(owner, async (tables) => {
      const deleted = await tables
        .deleteFrom('rules')
        .where('owner', '=', owner)
        .returning('cid')
        .executeTakeFirst();
      if (deleted) await insertActivity(tables, [this.toChange(owner, 'deleted')]);
      return deleted?.cid;
    });
  }

  /** The CIDs of the rules of these users, at most a few hundred. */
  async cids(owners: readonly string[]): Promise<ReadonlyMap<string, string>> {
    if (owners.length === 0) return new Map();
    const rows = await this.context.database.tables
      .selectFrom('rules')
      .select(['owner', 'cid'])
      .where('owner', 'in', owners)
      .execute();
    return new Map(rows.map(({ owner, cid }) => [owner, cid]));
  }

  private toChange(owner: string, outcome: 'stored' | 'deleted') {
    const { clock, newId } = this.context;
    return { owner, id: newId(), kind: 'rules_changed', outcome, createdAt: clock() } as const;
  }
}
