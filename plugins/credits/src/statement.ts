import { wholeNumber } from '@sibyl/protocol';
import { z } from 'zod';

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
    reserved: Amount.describe('Part of the balance that turns under way have set aside'),
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
