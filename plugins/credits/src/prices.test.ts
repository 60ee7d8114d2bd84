import { describe, expect, it } from 'vitest';
import { CreditsConfig, computeCost, Prices, sumByModel } from './prices.js';

const prices = Prices.parse({
  'openai/large': { input: 2_000_000, cached: 500_000, output: 8_000_000 },
  'openai/small': { input: 100_000, output: 400_000 },
});
const use = (model: string, input: number, cached: number, output: number) => ({
  model,
  input,
  cached,
  output,
});

describe('computeCost: costs', () => {
  it('are the tokens times the price of their model, cached ones at theirs', () => {
    expect(computeCost([use('openai/large', 1000, 400, 50)], prices)).toBe(1200 + 200 + 400);
    expect(computeCost([use('openai/small', 1000, 1000, 50)], prices)).toBe(120);
  });

  it('are rounded up once for all calls together', () => {
    expect(computeCost([use('openai/small', 1, 0, 0)], prices)).toBe(1);
    expect(computeCost(Array(10).fill(use('openai/small', 1, 0, 0)), prices)).toBe(1);
    expect(computeCost([], prices)).toBe(0);
  });

  it('have a usual price for models without one, which can be set', () => {
    const anything = [use('new/model', 10, 0, 10)];
    expect(computeCost(anything, prices)).toBe(50);
    const free = Prices.parse({ '*': { input: 0, output: 0 } });
    expect(computeCost(anything, free)).toBe(0);
  });

  it('computeCost is never negative, even for wrong counts', () => {
    expect(computeCost([use('openai/large', 10, 1_000_000, 0)], prices)).toBe(5);
    expect(computeCost([use('openai/large', -5, 0, Number.NaN)], prices)).toBe(0);
  });

  it('computeCost counts a part of a token as one, and tokens without an end as none', () => {
    expect(computeCost([use('openai/large', 0.2, 0, 0)], prices)).toBe(2);
    expect(computeCost([use('openai/large', Number.POSITIVE_INFINITY, 0, 1)], prices)).toBe(8);
  });

  it('stay exact for numbers that floating point cannot hold', () => {
    const dear = Prices.parse({ '*': { input: 1e12, output: 1e12 } });
    expect(computeCost([use('m', 1_000_000_007, 0, 0)], dear)).toBe(1_000_000_007_000_000);
  });

  it('are shown with one line per model', () => {
    const uses = [use('a', 1, 0, 2), use('b', 5, 5, 5), use('a', 10, 3, 20)];
    expect(sumByModel(uses)).toEqual([use('a', 11, 3, 22), use('b', 5, 5, 5)]);
  });
});

describe('CreditsConfig', () => {
  it('has defaults for everything', () => {
    expect(CreditsConfig.parse({})).toEqual({
      CREDITS_ENABLED: 'false',
      CREDITS_PRICES: {},
      CREDITS_INITIAL_GRANT: 0,
      CREDITS_TURN_MINIMUM: 10_000,
      CREDITS_ANSWER_TOKENS: 1000,
      CREDITS_SERVICE_FAILURE: 'closed',
      CREDITS_SERVICE_CACHE_SECONDS: 60,
    });
  });

  it.each([
    ['CREDITS_ENABLED', 'true', 'true'],
    ['CREDITS_TURN_MINIMUM', '1', 1],
    ['CREDITS_INITIAL_GRANT', '999999999999999', 999_999_999_999_999],
    ['CREDITS_SERVICE_URL', 'http://x', 'http://x'],
    ['CREDITS_SERVICE_URL', 'https://x', 'https://x'],
    ['CREDITS_SERVICE_FAILURE', 'open', 'open'],
    [
      'CREDITS_PRICES',
      '{"a": {"input": 0, "output": 1000000000000}}',
      { a: { input: 0, cached: 0, output: 1e12 } },
    ],
  ])('accepts %s=%s', (name, value, expected) => {
    expect(CreditsConfig.parse({ [name]: value })).toMatchObject({ [name]: expected });
  });

  it.each([
    ['CREDITS_PRICES', 'not json', 'must be JSON'],
    ['CREDITS_PRICES', '{"a": {"input": 1}}', 'expected'],
    ['CREDITS_PRICES', '{"a": {"input": 1, "output": -1}}', 'expected'],
    ['CREDITS_PRICES', '{"a": {"input": 1, "output": 1, "ouput": 1}}', 'ouput'],
    ['CREDITS_PRICES', '{"a": {"input": 1, "output": 1000000000001}}', '<='],
    ['CREDITS_PRICES', '{"": {"input": 1, "output": 1}}', 'Invalid'],
    ['CREDITS_ENABLED', 'yes', 'true or false'],
    ['CREDITS_INITIAL_GRANT', '-5', 'whole number'],
    ['CREDITS_INITIAL_GRANT', '5x', 'whole number'],
    ['CREDITS_INITIAL_GRANT', '', 'whole number'],
    ['CREDITS_INITIAL_GRANT', '1000000000000000', 'whole number'],
    ['CREDITS_TURN_MINIMUM', '0', 'at least 1'],
    ['CREDITS_SERVICE_URL', 'ftp://x', 'http(s)'],
    ['CREDITS_SERVICE_URL', 'httpx://x', 'http(s)'],
    ['CREDITS_SERVICE_URL', 'xhttp://x', 'http(s)'],
    ['CREDITS_SERVICE_FAILURE', 'ajar', 'closed or open'],
  ])('refuses %s=%s', (name, value, text) => {
    const parsed = CreditsConfig.safeParse({ [name]: value });
    expect(parsed.error?.issues[0]?.path[0]).toBe(name);
    expect(parsed.error?.issues.map(({ message }) => message).join()).toContain(text);
  });
});
