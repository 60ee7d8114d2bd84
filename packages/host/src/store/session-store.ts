import type { DatabaseEngine } from '@sibyl/plugin-kit';
import type { SelectedRow, Values } from '@sibyl/plugin-kit/tables';
import { OracleError } from '@sibyl/protocol';
import type { Kysely } from 'kysely';
import type { SessionKey } from '../bus/event-bus.js';
import { activate } from './branches.js';
import { prepareQuery, type StoreContext } from './database.js';
import { findClaim, KEY_LIFE_MS, type KeyClaim, replaceClaim } from './idempotency-store.js';
import { findOrCreateRoom } from './room-store.js';
import type { Schema } from './schema/index.js';
import { sessions } from './schema/sessions.js';
import { findThread, insertThread, type ThreadKey } from './thread-store.js';
import { keepUsage } from './usage-store.js';

export interface NewSession {
  readonly owner: string;
  readonly oracleDid: string;
  readonly oracleName?: string | undefined;
  readonly oracleEntityDid?: string | undefined;
  readonly title?: string | undefined;
  readonly isUnlisted?: boolean | undefined;
  /** The id that a client gave it; a session that already has this id is returned instead. */
  readonly thread?: Omit<ThreadKey, 'owner'> | undefined;
  /** The session of an earlier request with the same key and body is returned instead. */
  readonly idempotency?: Pick<KeyClaim, 'key' | 'bodyHash'> | undefined;
  /** Default: the user's own room with this oracle. */
  readonly roomId?: string | undefined;
}

export interface SessionListRequest {
  readonly owner: string;
  readonly limit: number;
  readonly offset: number;
}

export interface SessionList {
  readonly sessions: readonly Session[];
  readonly total: number;
}

const sessionFacts = sessions.without('last_seq', 'last_turn', 'previous_message_id', 'unlisted');
const COLUMNS = sessionFacts.columnNames;

const findSession = prepareQuery((tables, { owner, sessionId }: SessionKey) =>
  tables
    .selectFrom('sessions')
    .select(COLUMNS)
    .where('owner', '=', owner)
    .where('id', '=', sessionId),
);

const countSessions = prepareQuery((tables, { owner }: Pick<SessionKey, 'owner'>) =>
  tables
    .selectFrom('sessions')
    .select((e) => e.fn.countAll<number>().as('total'))
    .where('owner', '=', owner),
);

const countListed = prepareQuery((tables, { owner }: Pick<SessionKey, 'owner'>) =>
  tables
    .selectFrom('sessions')
    .select((e) => e.fn.countAll<number>().as('total'))
    .where('owner', '=', owner)
    .where('unlisted', '=', 0),
);

const listSessions = prepareQuery((tables, { owner, limit, offset }: SessionListRequest) =>
  tables
    .selectFrom('sessions')
    .select(COLUMNS)
    .where('owner', '=', owner)
    .where('unlisted', '=', 0)
    .orderBy('last_updated_at', 'desc')
    .orderBy('id', 'desc')
    .limit(limit)
    .offset(offset),
);

/** The sessions of each user. */
export class SessionStore {
  private readonly context: StoreContext;

  constructor(context: StoreContext) {
    this.context = context;
  }

  create(request: NewSession): Promise<Session> {
    return this.context.database.write((tables) => this.insert(tables, request));
  }

  /** Undefined if the owner already has `limit` sessions, also with concurrent requests. */
  createWithin(limit: number, request: NewSession): Promise<Session | undefined> {
    const { owner, thread } = request;
    return this.context.database.writeFor(owner, async (tables) => {
      const known =
        (await this.findFirst(tables, request)) ??
        (thread && (await findThread(tables, { owner, ...thread })));
      const session = known && (await findSession(tables, { owner, sessionId: known })).rows[0];
      if (session) return toSession(session);
      const { rows } = await countSessions(tables, { owner });
      const hasRoom = (rows[0]?.total ?? 0) < limit || (await deleteOldestUnlisted(tables, owner));
      return hasRoom ? this.insert(tables, request) : undefined;
    });
  }

  /** Newest update first; `total` counts all listed sessions of the owner. */
  list({ owner, limit, offset }: SessionListRequest): Promise<SessionList> {
    return this.context.database.read(async (tables) => {
      const counted = await countListed(tables, { owner });
      const { rows } = await listSessions(tables, { owner, limit, offset });
      return { sessions: rows.map(toSession), total: counted.rows[0]?.total ?? 0 };
    });
  }

  async find(key: SessionKey): Promise<Session | undefined> {
    const { rows } = await findSession(this.context.database.tables, key);
    return rows[0] && toSession(rows[0]);
  }

  /** As `find`, but throws `session_not_found`. */
  async get(key: SessionKey): Promise<Session> {
    const session = await this.find(key);
    if (!session) throw new OracleError('session_not_found');
    return session;
  }

  /** Whether it appears in no list; false if the owner has no such session. */
  async isUnlisted({ owner, sessionId }: SessionKey): Promise<boolean> {
    const row = await this.context.database.tables
      .selectFrom('sessions')
      .select('unlisted')
      .where('owner', '=', owner)
      .where('id', '=', sessionId)
      .executeTakeFirst();
    return row?.unlisted === 1;
  }

  /** Moves the session to the top of the list; false if the owner has no such session. */
  rename({ owner, sessionId, title }: SessionKey & { readonly title: string }): Promise<boolean> {
    const values = { title, last_updated_at: this.context.clock() };
    return this.context.database.writeFor(owner, async (tables) => {
      const { numUpdatedRows } = await tables
        .updateTable('sessions')
        .set(values)
        .where('owner', '=', owner)
        .where('id', '=', sessionId)
        .executeTakeFirstOrThrow();
      return numUpdatedRows > 0n;
    });
  }

  /** Switches to the path through a message; false if the owner has no such session or message. */
  activate({
    owner,
    sessionId,
    messageId,
  }: SessionKey & { readonly messageId: string }): Promise<boolean> {
    return this.context.database.writeFor(owner, (tables) =>
      activate(tables, { owner, sessionId }, messageId),
    );
  }

  /** Sets the title of an untitled session; does not change its position in the list. False if it has a title. */
  nameOnce({ owner, sessionId, title }: SessionKey & { title: string }): Promise<boolean> {
    return this.context.database.write(async (tables) => {
      const { numUpdatedRows } = await tables
        .updateTable('sessions')
        .set({ title })
        .where('owner', '=', owner)
        .where('id', '=', sessionId)
        .where('title', '=', UNTITLED)
        .executeTakeFirstOrThrow();
      return numUpdatedRows > 0n;
    });
  }

  /** Also deletes messages, runs and their frames; false if the owner has no such session. */
  delete(key: SessionKey): Promise<boolean> {
    return this.context.database.write((tables) => deleteSession(tables, key));
  }

  /** Deletes a session in which no turn has begun; returns whether it did. */
  deleteEmpty({ owner, sessionId }: SessionKey): Promise<boolean> {
    return this.context.database.write(async (tables) => {
      // An update, because it locks the row on PostgreSQL: no turn begins between this check and the deletion.
      const empty = await tables
        .updateTable('sessions')
        .set({ last_turn: 0 })
        .where('owner', '=', owner)
        .where('id', '=', sessionId)
        .where('last_turn', '=', 0)
        .returning('id')
        .executeTakeFirst();
      return empty !== undefined && deleteSession(tables, { owner, sessionId });
    });
  }

  /** Deletes unlisted sessions that have not been used for long; returns how many. */
  async pruneUnlisted(): Promise<number> {
    const { clock, database } = this.context;
    const before = clock() - UNLISTED_MS;
    let total = 0;
    for (;;) {
      const unused = await selectUnused(database.tables, before).execute();
      for (const { owner, id } of unused) {
        const key = { owner, sessionId: id };
        if (await database.write((tables) => deleteUnused(tables, key, before))) total += 1;
      }
      if (unused.length < UNLISTED_PER_PAGE) return total;
    }
  }

  /** The session that an earlier request with the same idempotency key has created. */
  private async findFirst(
    tables: Kysely<Schema>,
    { owner, idempotency }: NewSession,
  ): Promise<string | undefined> {
    if (!idempotency) return undefined;
    const claim = await findClaim(tables, { owner, key: idempotency.key }, this.context.clock());
    if (claim && claim.body_hash !== idempotency.bodyHash)
      throw new OracleError('idempotency_conflict');
    return claim?.run_id;
  }

  private async insert(tables: Kysely<Schema>, request: NewSession): Promise<Session> {
    const { clock, newId } = this.context;
    const { owner, oracleDid, idempotency } = request;
    const now = clock();
    const { oracleName, oracleEntityDid, title = UNTITLED, isUnlisted = false } = request;
    const sessionId = newId();
    const row = sessions.toRow({
      ...{ owner, sessionId, title, oracleDid, oracleName, oracleEntityDid, isUnlisted },
      createdAt: now,
      lastUpdatedAt: now,
      roomId:
        request.roomId ?? (await findOrCreateRoom(tables, { owner, oracleDid }, this.context)),
      lastSeq: 0,
      lastTurn: 0,
      branch: 0,
      lastBranch: 0,
    });
    await tables.insertInto('sessions').values(row).execute();
    if (request.thread) await insertThread(tables, { owner, ...request.thread }, sessionId);
    if (idempotency) {
      const claim = { owner, ...idempotency, runId: sessionId, expiresAt: now + KEY_LIFE_MS };
      await replaceClaim(tables, claim, now);
    }
    return toSession(row);
  }
}

/** Keeps a session from being deleted until the unit of work is committed; throws if the owner has none. */
export async function holdSession(
  tables: Kysely<Schema>,
  engine: DatabaseEngine,
  { owner, sessionId }: SessionKey,
): Promise<void> {
  const session = tables
    .selectFrom('sessions')
    .select('last_turn')
    .where('owner', '=', owner)
    .where('id', '=', sessionId);
  const held = engine === 'postgres' ? session.forKeyShare() : session;
  if (!(await held.executeTakeFirst())) throw new OracleError('session_not_found');
}

/** How long an unlisted session is kept after its last use. */
const UNLISTED_MS = 30 * 86_400_000;
const UNLISTED_PER_PAGE = 100;

/** Some of the unlisted sessions that were last used before a time. */
const selectUnused = (tables: Kysely<Schema>, before: number) =>
  tables
    .selectFrom('sessions')
    .select(['owner', 'id'])
    .where('unlisted', '=', 1)
    .where('last_updated_at', '<', before)
    .limit(UNLISTED_PER_PAGE);

/** Deletes an unlisted session inside a unit of work, unless it was used since it was found. */
async function deleteUnused(
  tables: Kysely<Schema>,
  { owner, sessionId }: SessionKey,
  before: number,
): Promise<boolean> {
  // An update, because it locks the row on PostgreSQL: no turn begins between this check and the deletion.
  const unused = await tables
    .updateTable('sessions')
    .set({ unlisted: 1 })
    .where('owner', '=', owner)
    .where('id', '=', sessionId)
    .where('unlisted', '=', 1)
    .where('last_updated_at', '<', before)
    .returning('id')
    .executeTakeFirst();
  return unused !== undefined && deleteSession(tables, { owner, sessionId });
}

/** Deletes a session and all that belongs to it, except how much it has used and receipts, inside a unit of work. */
async function deleteSession(
  tables: Kysely<Schema>,
  { owner, sessionId }: SessionKey,
): Promise<boolean> {
  await keepUsage(tables, { owner, sessionId });
  await forgetArguments(tables, { owner, sessionId });
  const { numDeletedRows } = await tables
    .deleteFrom('sessions')
    .where('owner', '=', owner)
    .where('id', '=', sessionId)
    .executeTakeFirstOrThrow();
  return numDeletedRows > 0n;
}

/** Makes room for another session; false if every unlisted session has a turn that has not ended. */
async function deleteOldestUnlisted(tables: Kysely<Schema>, owner: string): Promise<boolean> {
  const oldest = await tables
    .selectFrom('sessions')
    .select('id')
    .where('owner', '=', owner)
    .where('unlisted', '=', 1)
    .where(({ not, exists, selectFrom }) =>
      not(
        exists(
          selectFrom('runs')
            .select('runs.id')
            .whereRef('runs.owner', '=', 'sessions.owner')
            .whereRef('runs.session_id', '=', 'sessions.id')
            .where('runs.status', 'in', ['queued', 'running']),
        ),
      ),
    )
    .orderBy('last_updated_at')
    .limit(1)
    .executeTakeFirst();
  return oldest ? deleteSession(tables, { owner, sessionId: oldest.id }) : false;
}

/** The title of a session without a title. */
export const UNTITLED = 'Untitled';

/** A conversation of one user with one oracle; times in milliseconds. */
export interface Session extends Omit<Values<typeof sessionFacts>, 'lastBranch'> {
  /** Whether it has other branches. */
  readonly isBranched: boolean;
}

function toSession(row: SelectedRow<typeof sessionFacts>): Session {
  const { lastBranch, ...session } = sessionFacts.toValues(row);
  return { ...session, isBranched: lastBranch > 0 };
}

/** Forgets the arguments and reasons of unsigned approvals of a session that is being deleted; what became of them stays. */
export async function forgetArguments(
  tables: Kysely<Schema>,
  { owner, sessionId }: SessionKey,
): Promise<void> {
  await tables
    .updateTable('approvals')
    .set({ request: '', answer: null })
    .where('owner', '=', owner)
    .where('run_id', 'in', (e) =>
      e
        .selectFrom('runs')
        .select('id')
        .where('owner', '=', owner)
        .where('session_id', '=', sessionId),
    )
    .where('receipt', 'is', null)
    .execute();
}
