import { z } from 'zod';
import { Prices } from './prices.js';

const whole = z
  .string()
  .regex(/^\d{1,15}$/, { error: 'must be a whole number' })
  .transform(Number);
const positive = whole.refine((value) => value > 0, { error: 'must be at least 1' });

/** The plugin's variables; amounts are whole numbers of the smallest unit of credit. */
export const CreditsConfig = z.object({
  CREDITS_ENABLED: z
    .enum(['true', 'false'], { error: 'must be true or false' })
    .prefault('false')
    .describe('Turns are paid for out of a balance per user'),
  CREDITS_PRICES: z
    .string()
    .transform(readJson)
    .pipe(Prices)
    .prefault('{}')
    .describe(
      'Prices a million tokens as JSON, by model id, * for the others: {"openai/…": {"input": 2500000, "cached": 250000, "output": 10000000}}',
    ),
  CREDITS_INITIAL_GRANT: whole.prefault('0').describe('Credit every user starts with'),
  CREDITS_TURN_MINIMUM: positive
    .prefault('10000')
    .describe('Credit set aside for every turn before it starts, beside the price of its message'),
  CREDITS_ANSWER_TOKENS: whole
    .prefault('1000')
    .describe('Tokens of answer that must be paid for before a model is asked'),
  CREDITS_SERVICE_URL: z
    .url({ protocol: /^https?$/, error: 'must be an http(s) URL' })
    .optional()
    .describe('Subscription service that is asked for the credit of users whose balance is short'),
  CREDITS_SERVICE_FAILURE: z
    .enum(['closed', 'open'], { error: 'must be closed or open' })
    .prefault('closed')
    .describe('What happens while that service cannot be asked: turns are refused, or let in'),
  CREDITS_SERVICE_CACHE_SECONDS: whole
    .prefault('60')
    .describe("How long that service's answer about a user counts"),
});
export type CreditsConfig = z.output<typeof CreditsConfig>;

function readJson(text: string, context: z.RefinementCtx): unknown {
  try {
    return JSON.parse(text);
  } catch {
    context.addIssue({ code: 'custom', message: 'must be JSON' });
    return z.NEVER;
  }
}
