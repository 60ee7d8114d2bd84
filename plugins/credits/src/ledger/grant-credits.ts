import { OracleError, type PluginDatabase } from '@sibyl/plugin-kit';
import { Did, describeIssues } from '@sibyl/protocol';
import { z } from 'zod';
import { LockedAccount } from './locked-account.js';
import type { CreditsTables, Tables } from './tables.js';

/** Whom to give how much; of several grants with one reference only the first counts. */
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

/** Adds to a user's balance. What they left unpaid is paid out of it at once. */
export async function grantCredits(
  database: PluginDatabase<CreditsTables>,
  request: CreditGrant,
): Promise<GrantOutcome> {
  const parsed = CreditGrant.safeParse(request);
  if (!parsed.success) throw invalidGrant(parsed.error);
  const { owner, amount, note, reference } = parsed.data;
  return database.write(async (tables) => {
    const account = await LockedAccount.lock(tables, owner, Date.now());
    const isNew = reference === undefined || !(await isUsed(tables, reference));
    if (isNew && account.balance + amount > Number.MAX_SAFE_INTEGER) throw tooMuch();
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

const invalidGrant = ({ issues }: z.ZodError) =>
  new OracleError('validation_failed', { message: describeIssues(issues, 'grant') });

const tooMuch = () =>
  new OracleError('bad_request', { message: 'The balance would be larger than can be counted' });
