import type { ModelUse } from '@sibyl/plugin-kit';
import { z } from 'zod';

const TOKENS_PER_PRICE = 1_000_000n;

const Amount = z.int().min(0).max(1e12);

/** What a million tokens of a model cost; cached input costs as much as other input unless told. */
export const Price = z
  .strictObject({ input: Amount, cached: Amount.optional(), output: Amount })
  .transform(({ input, cached = input, output }) => ({ input, cached, output }));
export type Price = z.output<typeof Price>;

/** Price by model id, as `/models` lists it; `*` is that of every other model. */
export const Prices = z.record(z.string().min(1), Price);
export type Prices = z.output<typeof Prices>;

/** One unit a token of input, four a token of output. */
const USUAL_PRICE: Price = { input: 1_000_000, cached: 250_000, output: 4_000_000 };

/** What the tokens of all these calls cost together, rounded up once. */
export function costOf(uses: readonly ModelUse[], prices: Prices): number {
  const parts = uses.map((use) => partsOf(use, prices[use.model] ?? prices['*'] ?? USUAL_PRICE));
  const total = parts.reduce((sum, part) => sum + part, 0n);
  return Number((total + TOKENS_PER_PRICE - 1n) / TOKENS_PER_PRICE);
}

function partsOf(use: ModelUse, price: Price): bigint {
  const input = whole(use.input);
  // A provider that counts more cached tokens than tokens must not make a call cheaper than free.
  const cached = Math.min(whole(use.cached), input);
  return (
    BigInt(input - cached) * BigInt(price.input) +
    BigInt(cached) * BigInt(price.cached) +
    BigInt(whole(use.output)) * BigInt(price.output)
  );
}

function whole(tokens: number): number {
  return Number.isFinite(tokens) ? Math.max(0, Math.ceil(tokens)) : 0;
}

/** One line per model. */
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
