import { type Kysely, sql } from 'kysely';
import type { SessionKey } from '../bus/event-bus.js';
import { prepareQuery } from './database.js';
import type { BranchRow } from './schema/branches.js';
import type { Schema } from './schema/index.js';
import { isOpen } from './schema/runs.js';

/** The messages of a session from the first to the last of a branch. */
export interface PathKey extends SessionKey {
  readonly branch: number;
}

/** Where a turn begins, if not at the end of the active branch. */
export type TurnOrigin =
  /** A message continues from another one; null begins the session again. */
  | { readonly parentId: string | null }
  /** A question is answered again. */
  | { readonly questionId: string };

/** How a turn continues from an earlier message. */
export interface Fork {
  readonly parentId: string | undefined;
  /** Undefined for a new one. */
  readonly branch: number | undefined;
  readonly base: Pick<BranchRow, 'base_branch' | 'base_turn' | 'base_seq'>;
  readonly originalId: string | null;
}

interface Place {
  readonly id: string;
  readonly branch: number;
  readonly turn: number;
  readonly seq: number;
}

/** Finds how a turn continues; undefined if there is no such message. */
export async function findFork(
  tables: Kysely<Schema>,
  key: SessionKey,
  origin: TurnOrigin,
): Promise<Fork | undefined> {
  const id = 'questionId' in origin ? origin.questionId : origin.parentId;
  if (id === null) return forkAtBeginning(tables, key);
  const parent = (await findPlace(tables, key, id)) ?? (await findPending(tables, key, id));
  if (parent === undefined) return undefined;
  const next = await findNext(tables, key, parent);
  const answer = 'questionId' in origin && !next ? await findOpenAnswer(tables, key, parent) : next;
  const isFirst =
    'parentId' in origin && answer === undefined && !(await hasBranches(tables, key, id));
  return {
    parentId: id,
    branch: isFirst ? parent.branch : undefined,
    base: { base_branch: parent.branch, base_turn: parent.turn, base_seq: parent.seq },
    originalId: answer?.id ?? null,
  };
}

async function forkAtBeginning(tables: Kysely<Schema>, key: SessionKey): Promise<Fork> {
  const first = await findNext(tables, key, { branch: 0, turn: 0, seq: 0 });
  const isFirst = first === undefined && !(await hasBranches(tables, key, ''));
  return {
    parentId: undefined,
    branch: isFirst ? 0 : undefined,
    base: { base_branch: null, base_turn: 0, base_seq: 0 },
    originalId: first?.id ?? null,
  };
}

async function findPlace(
  tables: Kysely<Schema>,
  { owner, sessionId }: SessionKey,
  id: string,
): Promise<Place | undefined> {
  return tables
    .selectFrom('messages')
    .select(['id', 'branch', 'turn', 'seq'])
    .where('owner', '=', owner)
    .where('id', '=', id)
    .where('session_id', '=', sessionId)
    .executeTakeFirst();
}

/** The answer of an open run is known before it is stored. */
async function findPending(
  tables: Kysely<Schema>,
  { owner, sessionId }: SessionKey,
  id: string,
): Promise<Place | undefined> {
  const row = await tables
    .selectFrom('runs')
    .select(['branch', 'turn'])
    .where('owner', '=', owner)
    .where('session_id', '=', sessionId)
    .where(isOpen)
    .where('message_id', '=', id)
    .executeTakeFirst();
  return row && { id, ...row, seq: Number.MAX_SAFE_INTEGER };
}

async function findOpenAnswer(
  tables: Kysely<Schema>,
  { owner, sessionId }: SessionKey,
  { turn }: Place,
): Promise<{ readonly id: string } | undefined> {
  const row = await tables
    .selectFrom('runs')
    .select('message_id as id')
    .where('owner', '=', owner)
    .where('session_id', '=', sessionId)
    .where('turn', '=', turn)
    .where(isOpen)
    .executeTakeFirst();
  return row?.id ? { id: row.id } : undefined;
}

/** The message that follows on the same branch. */
async function findNext(
  tables: Kysely<Schema>,
  { owner, sessionId }: SessionKey,
  { branch, turn, seq }: Pick<Place, 'branch' | 'turn' | 'seq'>,
): Promise<{ readonly id: string } | undefined> {
  return tables
    .selectFrom('messages')
    .select('id')
    .where('owner', '=', owner)
    .where('session_id', '=', sessionId)
    .where('branch', '=', branch)
    .where(sql<boolean>`(turn, seq) > (${turn}, ${seq})`)
    .orderBy('turn')
    .orderBy('seq')
    .limit(1)
    .executeTakeFirst();
}

async function hasBranches(
  tables: Kysely<Schema>,
  { owner, sessionId }: SessionKey,
  parentId: string,
): Promise<boolean> {
  const row = await tables
    .selectFrom('branches')
    .select('branch')
    .where('owner', '=', owner)
    .where('session_id', '=', sessionId)
    .where('parent_id', '=', parentId)
    .limit(1)
    .executeTakeFirst();
  return row !== undefined;
}

export const insertBranch = prepareQuery((tables, row: BranchRow) =>
  tables.insertInto('branches').values(row),
);

/**
 * Makes the path through a message the active one, up to the newest message behind it; false if the session has no such
 * message.
 */
export async function activate(
  tables: Kysely<Schema>,
  key: SessionKey,
  messageId: string,
): Promise<boolean> {
  const branches = await listBranches(tables, key);
  const begun = branches.find(({ first_id }) => first_id === messageId);
  const place =
    (await findPlace(tables, key, messageId)) ??
    (await findPending(tables, key, messageId)) ??
    (begun && { id: messageId, branch: begun.branch, turn: 0, seq: 0 });
  if (!place) return false;
  const behind = findBehind(branches, place);
  const branch = (await findNewest(tables, key, behind)) ?? place.branch;
  const leaf = await findLeaf(tables, { ...key, branch });
  await setActive(tables, key, { branch, leaf: leaf ?? messageId });
  return true;
}

function listBranches(tables: Kysely<Schema>, { owner, sessionId }: SessionKey) {
  return tables
    .selectFrom('branches')
    .select(['branch', 'base_branch', 'base_turn', 'base_seq', 'first_id'])
    .where('owner', '=', owner)
    .where('session_id', '=', sessionId)
    .orderBy('branch')
    .execute();
}

type ListedBranch = Awaited<ReturnType<typeof listBranches>>[number];

/** The branches with messages behind a place; a branch has a higher number than the one it began from. */
function findBehind(branches: readonly ListedBranch[], { branch, turn, seq }: Place): Set<number> {
  const behind = new Set([branch]);
  for (const { branch: number, base_branch: base, base_turn, base_seq } of branches) {
    if (base === null || !behind.has(base)) continue;
    const isBehind = base_turn > turn || (base_turn === turn && base_seq >= seq);
    if (base !== branch || isBehind) behind.add(number);
  }
  return behind;
}

/** The branch with the newest turn. */
async function findNewest(
  tables: Kysely<Schema>,
  { owner, sessionId }: SessionKey,
  branches: ReadonlySet<number>,
): Promise<number | undefined> {
  if (branches.size === 1) return undefined;
  const rows = await tables
    .selectFrom('messages')
    .select(['branch', (e) => e.fn.max('turn').as('turn')])
    .where('owner', '=', owner)
    .where('session_id', '=', sessionId)
    .groupBy('branch')
    .execute();
  const open = await tables
    .selectFrom('runs')
    .select(['branch', 'turn'])
    .where('owner', '=', owner)
    .where('session_id', '=', sessionId)
    .where(isOpen)
    .execute();
  const known = [...rows, ...open].filter(({ branch }) => branches.has(branch));
  return known.toSorted((a, b) => b.turn - a.turn)[0]?.branch;
}

/** The last message of a branch, perhaps an answer that is not stored yet. */
async function findLeaf(
  tables: Kysely<Schema>,
  { owner, sessionId, branch }: PathKey,
): Promise<string | undefined> {
  const run = await tables
    .selectFrom('runs')
    .select('message_id as id')
    .where('owner', '=', owner)
    .where('session_id', '=', sessionId)
    .where('branch', '=', branch)
    .where(isOpen)
    .orderBy('turn', 'desc')
    .limit(1)
    .executeTakeFirst();
  if (run?.id) return run.id;
  const message = await tables
    .selectFrom('messages')
    .select('id')
    .where('owner', '=', owner)
    .where('session_id', '=', sessionId)
    .where('branch', '=', branch)
    .orderBy('turn', 'desc')
    .orderBy('seq', 'desc')
    .limit(1)
    .executeTakeFirst();
  return message?.id;
}

async function setActive(
  tables: Kysely<Schema>,
  { owner, sessionId }: SessionKey,
  { branch, leaf }: { readonly branch: number; readonly leaf: string | null },
): Promise<void> {
  await tables
    .updateTable('sessions')
    .set({ active_branch: branch, active_message_id: leaf })
    .where('owner', '=', owner)
    .where('id', '=', sessionId)
    .execute();
}

/** A turn that is taken out of its session before it has begun. */
export interface WithdrawnTurn extends PathKey {
  readonly turn: number;
  /** The id that its answer would have had. */
  readonly answerId: string;
  /** Undefined if it stays, because another turn asked or answers it. */
  readonly question?: { readonly id: string } | undefined;
  /** The message before it; null if there is none. */
  readonly parent: string | null;
}

/** Closes the gap that a withdrawn turn leaves, inside a unit of work: what follows it continues from what was before it. */
export async function closeGap(tables: Kysely<Schema>, withdrawn: WithdrawnTurn): Promise<void> {
  const { owner, sessionId, answerId, question, parent } = withdrawn;
  const ids = [answerId, question?.id ?? answerId];
  await tables
    .updateTable('messages')
    .set({ parent })
    .where('owner', '=', owner)
    .where('session_id', '=', sessionId)
    .where('turn', '>', withdrawn.turn)
    .where('parent', 'in', ids)
    .execute();
  const branches = () =>
    tables.updateTable('branches').where('owner', '=', owner).where('session_id', '=', sessionId);
  await branches()
    .set({ parent_id: parent ?? '' })
    .where('parent_id', 'in', ids)
    .execute();
  await branches().set({ original_id: null }).where('original_id', 'in', ids).execute();
  const removed = await removeEmptyBranch(tables, withdrawn);
  const { active_message_id: active } = await tables
    .selectFrom('sessions')
    .select('active_message_id')
    .where('owner', '=', owner)
    .where('id', '=', sessionId)
    .executeTakeFirstOrThrow();
  if (active !== answerId) return;
  const next = removed?.original_id ?? (removed?.parent_id || parent);
  if (!next || !(await activate(tables, withdrawn, next)))
    await setActive(tables, withdrawn, { branch: 0, leaf: null });
}

/** Removes the branch that a withdrawn turn began; one that continues begins with its next message. */
async function removeEmptyBranch(tables: Kysely<Schema>, withdrawn: WithdrawnTurn) {
  const { owner, sessionId, branch, question, answerId } = withdrawn;
  const row = await tables
    .selectFrom('branches')
    .selectAll()
    .where('owner', '=', owner)
    .where('session_id', '=', sessionId)
    .where('branch', '=', branch)
    .where('first_id', '=', question?.id ?? answerId)
    .executeTakeFirst();
  if (!row) return undefined;
  const next = await findNext(tables, withdrawn, { branch, turn: 0, seq: 0 });
  const change = next
    ? tables.updateTable('branches').set({ first_id: next.id })
    : tables.deleteFrom('branches');
  // Both builders have the same conditions, but no common type.
  await (change as ReturnType<typeof tables.deleteFrom<'branches'>>)
    .where('owner', '=', owner)
    .where('session_id', '=', sessionId)
    .where('branch', '=', branch)
    .execute();
  return next ? undefined : row;
}
