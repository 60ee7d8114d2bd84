import type { ModelUse } from '@sibyl/plugin-kit';
import { z } from 'zod';

const TOKENS_PER_PRICE = 1_000_000n;

const Amount = z.int().min(0).max(1e12);

/** The price of a million tokens of a model; by default cached input costs as much as other input. */
export const Price = z
  .strictObject({ input: Amount, cached: Amount.optional(), output: Amount })
  .transform(({ input, cached = input, output }) => ({ input, cached, output }));
export type Price = z.output<typeof Price>;

/** Price by model id, as `/models` lists it; `*` is that of every other model. */
export const Prices = z.record(z.string().min(1), Price);
export type Prices = z.output<typeof Prices>;

/** One unit a token of input, four a token of output. */
const DEFAULT_PRICE: Price = { input: 1_000_000, cached: 250_000, output: 4_000_000 };

/** The cost of all these calls, rounded up once. */
export function computeCost(uses: readonly ModelUse[], prices: Prices): number {
  const costs = uses.map((use) =>
    priceTokens(use, prices[use.model] ?? prices['*'] ?? DEFAULT_PRICE),
  );
  const total = costs.reduce((sum, cost) => sum + cost, 0n);
  return Number((total + TOKENS_PER_PRICE - 1n) / TOKENS_PER_PRICE);
}

function priceTokens(use: ModelUse, price: Price): bigint {
  const input = toWhole(use.input);
  // A provider may report more cached tokens than input tokens, which must not reduce the cost below zero.
  const cached = Math.min(toWhole(use.cached), input);
  return (
    BigInt(input - cached) * BigInt(price.input) +
    BigInt(cached) * BigInt(price.cached) +
    BigInt(toWhole(use.output)) * BigInt(price.output)
  );
}

function toWhole(tokens: number): number {
  return Number.isFinite(tokens) ? Math.max(0, Math.ceil(tokens)) : 0;
}

/** Adds up the tokens of each model. */
export function sumByModel(uses: readonly ModelUse[]): ModelUse[] {
  const sums = new Map<string, ModelUse>();
  for (const { model, input, cached, output } of uses) {
    const sum = sums.get(model) ?? { model, input: 0, cached: 0, output: 0 };
    sums.set(model, {
      model,
      input: sum.input + input,
      cached: sum.cached + cached,
      output: sum.output + output,
    });
  }
  return [...sums.values()];
}

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
