import { describe, expect, it } from 'vitest';
import { loadConfig } from '../config/config.js';
import { findSettings } from '../config/models-config.js';
import { ModelFacts } from './model-facts.js';

const { signal } = new AbortController();

describe('ModelFacts', () => {
  it('prefers settings to what the server says, and that to defaults', async () => {
    const discover = async () => ({ contextTokens: 8192, vision: false });
    const defaults = { contextTokens: 128_000, vision: true, reasoning: true };
    const facts = new ModelFacts({ defaults, discover });
    expect([facts.contextTokens, facts.vision]).toEqual([128_000, true]);
    await facts.refresh(signal);
    expect([facts.contextTokens, facts.vision, facts.reasoning]).toEqual([8192, false, true]);
    const set = new ModelFacts({ settings: { contextTokens: 4096, vision: true }, discover });
    await set.refresh(signal);
    expect([set.contextTokens, set.vision]).toEqual([4096, true]);
  });

  it('leaves room for the answer', () => {
    expect(new ModelFacts({ settings: { contextTokens: 8192 } }).promptTokens).toBe(6144);
    expect(new ModelFacts({ settings: { contextTokens: 200_000 } }).promptTokens).toBe(195_904);
    const short = new ModelFacts({ settings: { contextTokens: 8192, outputTokens: 500 } });
    expect(short.promptTokens).toBe(7692);
    expect(new ModelFacts().promptTokens).toBe(Number.POSITIVE_INFINITY);
  });

  it('tries a model of unknown abilities, and remembers what it refuses', () => {
    const facts = new ModelFacts();
    expect([facts.vision, facts.tools]).toEqual([true, true]);
    facts.refuse('vision');
    facts.refuse('tools');
    expect([facts.vision, facts.tools]).toEqual([false, false]);
  });

  it('works with a server that does not answer, and asks it once at a time', async () => {
    let asked = 0;
    const facts = new ModelFacts({
      discover: async () => {
        asked += 1;
        throw new Error('down');
      },
    });
    await Promise.all([facts.refresh(signal), facts.refresh(signal)]);
    await facts.refresh(signal);
    expect(asked).toBe(1);
    expect(facts.contextTokens).toBeUndefined();
  });

  it('learns how many tokens an estimate means, and ignores nonsense', () => {
    const facts = new ModelFacts();
    for (let i = 0; i < 20; i++) facts.learnTokens(1000, 1500);
    expect(facts.tokenRatio).toBeCloseTo(1.5, 2);
    facts.learnTokens(1000, 7);
    facts.learnTokens(10, 40);
    facts.learnTokens(1000, Number.NaN);
    expect(facts.tokenRatio).toBeCloseTo(1.5, 2);
  });

  it('computes the cost of a call', () => {
    const usage = { input: 1_000_000, output: 100_000, cached: 400_000 };
    expect(new ModelFacts().computeCost(usage)).toBeUndefined();
    const prices = { input: 3, output: 15, cachedInput: 0.3 };
    expect(new ModelFacts({ settings: { prices } }).computeCost(usage)).toBeCloseTo(3.42);
  });
});

describe('MODEL_SETTINGS', () => {
  const read = (text: string) => loadConfig({ MODEL_SETTINGS: text }).models.settings;

  it('applies to the id, otherwise to the longest beginning', () => {
    const all = read(
      '{"a/*": {"vision": false}, "a/b*": {"vision": true}, "a/b:7": {"contextTokens": 600}}',
    );
    expect(findSettings(all, 'a/x')).toEqual({ vision: false });
    expect(findSettings(all, 'a/bc')).toEqual({ vision: true });
    expect(findSettings(all, 'a/b:7')).toEqual({ contextTokens: 600 });
    expect(findSettings(all, 'b/x')).toEqual({});
  });

  it.each([
    ['{"a/b": {"visoin": true}}', /visoin/],
    ['{"a/b": {"prices": {"input": -1, "output": 1}}}', /input/],
    ['{"a/b": ', /not valid JSON/],
    ['./no-such-file.json', /path of a file.*no such file/],
  ])('%s is an error that says why', (text, problem) => {
    expect(() => read(text)).toThrow(problem);
  });
});
