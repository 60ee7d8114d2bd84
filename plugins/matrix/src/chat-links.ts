import { createHash, randomInt } from 'node:crypto';
import {
  type DelegatedTurns,
  defineRoute,
  OracleError,
  type PluginDatabase,
  type Route,
  type RunPermission,
} from '@sibyl/plugin-kit';
import { CreateMatrixLink, MatrixLink, MatrixLinkDeleted, MatrixLinkList } from '@sibyl/protocol';
import type { MatrixTables } from './rooms.js';

/** How long a code is valid. */
const CODE_MS = 15 * 60_000;
/** Accounts of one user, linked or not yet. */
const MAX_LINKS = 20;
/** Without characters that look alike. */
const ALPHABET = 'ABCDEFGHJKLMNPQRSTUVWXYZ23456789';

/** A Matrix account that belongs to a user. */
export interface Link {
  readonly owner: string;
  readonly userId: string;
  readonly cid: string;
}

type LinkKey = Pick<Link, 'owner' | 'userId'>;

interface ChatLinksDeps {
  readonly database: PluginDatabase<MatrixTables>;
  readonly delegatedTurns: Pick<DelegatedTurns, 'authorize' | 'release'>;
  /** The DID of the oracle. */
  readonly oracle: string;
  readonly readAccount: () => Promise<string>;
}

/**
 * Links Matrix accounts to DIDs. A user proves both: their key signs a delegation that names the account, and the account
 * sends the code that the user received for it.
 */
export class ChatLinks {
  constructor(private readonly deps: ChatLinksDeps) {}

  /** Stores the delegation and a code; an account that is linked to this user already stays so. */
  async begin(key: LinkKey, token: string): Promise<MatrixLink> {
    const { delegatedTurns, readAccount } = this.deps;
    const { owner } = key;
    const resource = this.toResource(key.userId);
    const oracleUserId = await readAccount().catch((cause) => {
      if (cause instanceof OracleError) throw cause;
      throw new OracleError('plugin_failed', { message: UNREACHABLE, cause });
    });
    // Before the delegation is stored for it; `store` decides.
    assertRoom(await readLinks(this.deps.database.tables, owner), key.userId);
    const { cid, expiration } = await delegatedTurns.authorize({ owner, token, resource });
    const code = createCode();
    const expiresAt = this.deps.database.now() + CODE_MS;
    const before = await this.store({ ...key, cid }, code, expiresAt);
    if (before && before.cid !== cid) await delegatedTurns.release({ owner, cid: before.cid });
    const shown = { userId: key.userId, oracleUserId, resource, ...(expiration && { expiration }) };
    if (before?.isLinked) return { ...shown, status: 'linked' };
    const codeExpiresAt = new Date(expiresAt).toISOString();
    return { ...shown, status: 'pending', code: `link ${code}`, codeExpiresAt };
  }

  /** The account sent a code; returns the user that it is linked to now. */
  confirm(userId: string, code: string): Promise<string | undefined> {
    return this.deps.database.write(async (tables) => {
      const linked = await tables
        .updateTable('matrix_links')
        .set({ linked_at: this.deps.database.now(), code_hash: null, code_expires_at: 0 })
        .where('user_id', '=', userId)
        .where('code_hash', '=', hashCode(code))
        .where('code_expires_at', '>', this.deps.database.now())
        .returning('owner')
        .executeTakeFirst();
      if (!linked) return undefined;
      // An account is linked to one user.
      await tables
        .deleteFrom('matrix_links')
        .where('user_id', '=', userId)
        .where('owner', '<>', linked.owner)
        .execute();
      return linked.owner;
    });
  }

  /** The user that an account is linked to. */
  async find(userId: string): Promise<Link | undefined> {
    const row = await this.deps.database.tables
      .selectFrom('matrix_links')
      .select(['owner', 'cid'])
      .where('user_id', '=', userId)
      .where('linked_at', 'is not', null)
      .executeTakeFirst();
    return row && { userId, ...row };
  }

  async list(owner: string): Promise<MatrixLink[]> {
    const rows = await this.deps.database.tables
      .selectFrom('matrix_links')
      .select(['user_id', 'linked_at'])
      .where('owner', '=', owner)
      .orderBy('user_id')
      .execute();
    return rows.map(({ user_id: userId, linked_at }) => ({
      userId,
      status: linked_at === null ? 'pending' : 'linked',
      resource: this.toResource(userId),
    }));
  }

  /** Removes a link and its delegation; false if there is none. */
  async remove({ owner, userId }: LinkKey): Promise<boolean> {
    const { database, delegatedTurns } = this.deps;
    const removed = await database.write((tables) =>
      tables
        .deleteFrom('matrix_links')
        .where('owner', '=', owner)
        .where('user_id', '=', userId)
        .returning('cid')
        .executeTakeFirst(),
    );
    if (removed) await delegatedTurns.release({ owner, cid: removed.cid });
    return removed !== undefined;
  }

  toPermission({ owner, userId, cid }: Link): RunPermission {
    return { owner, cid, resource: this.toResource(userId) };
  }

  private toResource(userId: string): string {
    return `ixo:oracle:${this.deps.oracle}:matrix/${encodeURIComponent(userId)}`;
  }

  /** Returns what was stored before. */
  private store({ owner, userId, cid }: Link, code: string, expiresAt: number) {
    return this.deps.database.writeFor(owner, async (tables) => {
      const before = assertRoom(await readLinks(tables, owner), userId);
      const pending = { code_hash: hashCode(code), code_expires_at: expiresAt };
      const changes = { cid, ...(before?.linked_at == null && pending) };
      await tables
        .insertInto('matrix_links')
        .values({ owner, user_id: userId, cid, ...pending, linked_at: null })
        .onConflict((c) => c.columns(['owner', 'user_id']).doUpdateSet(changes))
        .execute();
      return before && { cid: before.cid, isLinked: before.linked_at !== null };
    });
  }
}

type Links = PluginDatabase<MatrixTables>['tables'];

const readLinks = (tables: Links, owner: string) =>
  tables
    .selectFrom('matrix_links')
    .select(['user_id', 'cid', 'linked_at'])
    .where('owner', '=', owner)
    .execute();

/** Returns the link of an account; throws if there is none and no room for one. */
function assertRoom(links: Awaited<ReturnType<typeof readLinks>>, userId: string) {
  const found = links.find((link) => link.user_id === userId);
  if (found || links.length < MAX_LINKS) return found;
  throw new OracleError('validation_failed', {
    message: [`userId: you have ${MAX_LINKS} links already; remove one first`],
  });
}

const UNREACHABLE = 'The homeserver of the oracle cannot be reached; try again';

const createCode = () =>
  Array.from({ length: 8 }, () => ALPHABET[randomInt(ALPHABET.length)])
    .join('')
    .replace(/^(.{4})/, '$1-');

/** It is valid for minutes, and from one account only. */
const hashCode = (code: string) =>
  createHash('sha256')
    .update(code.toUpperCase().replace(/[^A-Z0-9]/g, ''))
    .digest('base64');

/** The routes with which users link their accounts. */
export const listLinkRoutes = (links: ChatLinks): readonly Route[] => [
  defineRoute({
    method: 'GET',
    path: '/matrix/links',
    summary: "The caller's Matrix accounts",
    reply: MatrixLinkList,
    handler: async ({ caller: { did } }) => ({ links: await links.list(did) }),
  }),
  defineRoute({
    method: 'POST',
    path: '/matrix/links',
    summary: 'Link a Matrix account: it has to send the code to the oracle',
    needsOwnKey: true,
    status: 201,
    body: CreateMatrixLink,
    reply: MatrixLink,
    errors: ['invalid_delegation', 'foreign_delegation', 'forbidden', 'plugin_failed'],
    handler: ({ caller: { did: owner }, body: { userId, delegation } }) =>
      links.begin({ owner, userId }, delegation),
  }),
  defineRoute({
    method: 'DELETE',
    path: '/matrix/links/:userId',
    summary: 'Remove the link of a Matrix account, and its delegation',
    needsOwnKey: true,
    reply: MatrixLinkDeleted,
    errors: ['link_not_found'],
    handler: async ({ caller: { did: owner }, params: { userId } }) => {
      if (!(await links.remove({ owner, userId }))) throw new OracleError('link_not_found');
      return { message: 'The link is removed' };
    },
  }),
];
