import { OracleError, type PluginDatabase } from '@sibyl/plugin-kit';
import { Did, describeIssues, wholeNumber } from '@sibyl/protocol';
import { z } from 'zod';
import { LockedAccount } from './account.js';
import type { AccountRow, CreditsTables, EntryRow, Tables } from './tables.js';

interface LedgerDeps {
  readonly database: PluginDatabase<CreditsTables>;
  readonly initialGrant: number;
  readonly clock: () => number;
}

/** The accounts, for their owners. */
export class Ledger {
  private readonly deps: LedgerDeps;

  constructor(deps: LedgerDeps) {
    this.deps = deps;
  }

  /** The balance of an owner and the latest entries. */
  async statement(request: {
    readonly owner: string;
    readonly limit: number;
  }): Promise<CreditStatement> {
    await this.welcome(request.owner);
    return this.deps.database.read(async (tables) => {
      const account = await findAccount(tables, request.owner);
      const entries = await tables
        .selectFrom('credits_entries')
        .selectAll()
        .where('owner', '=', request.owner)
        .orderBy('seq', 'desc')
        .limit(request.limit)
        .execute();
      const { balance = 0, reserved = 0, unpaid = 0 } = account ?? {};
      return { balance, reserved, unpaid, entries: entries.map(toEntry) };
    });
  }

  /** Users also get the initial grant when they first read their statement. */
  private async welcome(owner: string): Promise<void> {
    const { database, initialGrant, clock } = this.deps;
    if (initialGrant === 0 || (await findAccount(database.tables, owner))?.is_welcomed) return;
    await database.writeFor(owner, async (tables) => {
      const account = await LockedAccount.lock(tables, owner, clock());
      await account.welcome(initialGrant);
      await account.save();
    });
  }
}

function findAccount(tables: Tables, owner: string): Promise<AccountRow | undefined> {
  return tables
    .selectFrom('credits_accounts')
    .selectAll()
    .where('owner', '=', owner)
    .executeTakeFirst();
}

function toEntry(row: EntryRow): CreditEntry {
  return {
    id: String(row.seq),
    kind: row.kind,
    amount: row.amount,
    balance: row.balance,
    ...(row.cost !== null && { cost: row.cost }),
    ...(row.usage !== null && { usage: JSON.parse(row.usage) }),
    ...(row.session_id !== null && { sessionId: row.session_id }),
    ...(row.request_id !== null && { requestId: row.request_id }),
    ...(row.note !== null && { note: row.note }),
    createdAt: new Date(row.created_at).toISOString(),
  };
}

const Amount = z.int();

const UsedTokens = z.object({
  model: z.string(),
  input: z.int(),
  cached: z.int(),
  output: z.int(),
});

/** One line of the ledger. */
export const CreditEntry = z
  .object({
    id: z.string(),
    kind: z.enum(['grant', 'charge', 'refund']),
    amount: Amount.describe('Added to the balance; below 0 for what was taken out of it'),
    balance: Amount.describe('The balance after it'),
    cost: Amount.optional().describe('What the usage cost, of which the amount was paid'),
    usage: z.array(UsedTokens).optional(),
    sessionId: z.string().optional(),
    requestId: z.string().optional(),
    note: z.string().optional(),
    createdAt: z.iso.datetime(),
  })
  .meta({ id: 'CreditEntry' });
export type CreditEntry = z.infer<typeof CreditEntry>;

/** Reply of `GET /credits`; entries are newest first. */
export const CreditStatement = z
  .object({
    balance: Amount,
    reserved: Amount.describe('Part of the balance that running turns have set aside'),
    unpaid: Amount.describe('Usage that the balance could not pay'),
    entries: z.array(CreditEntry),
  })
  .meta({ id: 'CreditStatement' });
export type CreditStatement = z.infer<typeof CreditStatement>;

/** Query of `GET /credits`. */
export const ReadStatement = z.strictObject({
  limit: wholeNumber({ min: 1, max: 100 }).default(20),
});
export type ReadStatement = z.infer<typeof ReadStatement>;

/** A grant; of several with one reference only the first counts. */
const CreditGrant = z.strictObject({
  owner: Did,
  amount: z.int().min(1).max(1e15),
  note: z.string().trim().min(1).max(200).optional(),
  reference: z.string().trim().min(1).max(200).optional(),
});
export type CreditGrant = z.input<typeof CreditGrant>;

export interface GrantOutcome {
  /** The balance after it. */
  readonly balance: number;
  /** False if the reference was used before, so that nothing was given. */
  readonly isNew: boolean;
}

/** Adds to a user's balance, which first pays the user's unpaid usage. */
export async function grantCredits(
  database: PluginDatabase<CreditsTables>,
  request: CreditGrant,
): Promise<GrantOutcome> {
  const parsed = CreditGrant.safeParse(request);
  if (!parsed.success) throw createGrantError(parsed.error);
  const { owner, amount, note, reference } = parsed.data;
  return database.writeFor(owner, async (tables) => {
    const account = await LockedAccount.lock(tables, owner, database.now());
    const isNew = reference === undefined || !(await isUsed(tables, reference));
    if (isNew && account.balance + amount > Number.MAX_SAFE_INTEGER) throw createOverflowError();
    if (isNew) await account.grant(amount, { note, reference });
    await account.save();
    return { balance: account.balance, isNew };
  });
}

async function isUsed(tables: Tables, reference: string): Promise<boolean> {
  const entry = await tables
    .selectFrom('credits_entries')
    .select('seq')
    .where('reference', '=', reference)
    .executeTakeFirst();
  return entry !== undefined;
}

const createGrantError = ({ issues }: z.ZodError) =>
  new OracleError('validation_failed', { message: describeIssues(issues, 'grant') });

const createOverflowError = () =>
  new OracleError('bad_request', { message: 'The balance would exceed the largest safe number' });
