import { expect, it } from 'vitest';
import { ScriptedModel, type ScriptedStep, say } from '../../test/support/agent/scripted-model.js';
import { generateText } from '../agent/ask-model.js';
import { withFallbacks } from './fallback.js';
import {
  createModelError,
  type Model,
  ModelError,
  type ModelPart,
  type ModelUse,
} from './model.js';
import { ModelFacts } from './model-facts.js';

class NamedModel extends ScriptedModel {
  override readonly id: string;

  constructor(id: string, ...script: readonly ScriptedStep[]) {
    super(...script);
    this.id = id;
  }
}

const down = () => {
  throw createModelError('network', 'refused');
};
const invalid = () => {
  throw new ModelError('no', { kind: 'unknown', retryable: false });
};

async function read(model: Model) {
  const parts: ModelPart[] = [];
  const { signal } = new AbortController();
  try {
    for await (const part of model.stream({ system: '', messages: [], tools: [], signal }))
      parts.push(part);
    return { parts, thrown: undefined };
  } catch (thrown) {
    return { parts, thrown };
  }
}

it('withFallbacks answers with the next model while the first is down, says so, and counts it', async () => {
  const first = new NamedModel('a/first', down, down, say('I am back.'));
  const second = new NamedModel('b/second', say('Hello.'), say('Again.'));
  const model = withFallbacks(first, [second]);
  expect(model.id).toBe('a/first');
  const { parts, thrown } = await read(model);
  expect(thrown).toBeUndefined();
  expect(parts[0]).toMatchObject({ type: 'warning', code: 'model_fallback' });
  expect(parts[1]).toEqual({ type: 'text', text: 'Hello.' });
  expect(parts.at(-1)).toMatchObject({ type: 'finish', model: 'b/second' });
  // The next call does not wait for it again.
  expect((await read(model)).parts[1]).toEqual({ type: 'text', text: 'Again.' });
  expect(first.calls).toHaveLength(1);
});

it('withFallbacks tries the model that failed last if all others fail too', async () => {
  const first = new NamedModel('a/first', down, say('I am back.'));
  const second = new NamedModel('b/second', down);
  const model = withFallbacks(first, [second]);
  expect((await read(model)).thrown).toMatchObject({ kind: 'network' });
});

it('withFallbacks repeats neither an answer that has begun nor a request that is refused', async () => {
  const begun = new NamedModel('a/first', async function* () {
    yield { type: 'text', text: 'Half' };
    down();
  });
  const refused = new NamedModel('a/other', invalid);
  const second = new NamedModel('b/second', say('Hello.'));
  expect((await read(withFallbacks(begun, [second]))).thrown).toMatchObject({ kind: 'network' });
  expect((await read(withFallbacks(refused, [second]))).thrown).toMatchObject({ kind: 'unknown' });
  expect(second.calls).toEqual([]);
});

it('withFallbacks counts an answer that was aborted, or broke off, for the model that wrote it', async () => {
  const begun = async function* (): AsyncGenerator<ModelPart> {
    yield { type: 'text', text: 'A long answer that' };
    down();
  };
  const facts = new ModelFacts({ settings: { prices: { input: 10, output: 20 } } });
  const second = Object.assign(new NamedModel('b/second', begun), { facts });
  const model = withFallbacks(new NamedModel('a/first', down), [second]);
  const uses: ModelUse[] = [];
  const meter = { check: async () => {}, add: (use: ModelUse) => void uses.push(use) };
  const { signal } = new AbortController();
  const question = { model, system: '', prompt: 'Write a story', meter, signal };
  await expect(generateText(question)).rejects.toMatchObject({ kind: 'network' });
  expect(uses).toEqual([expect.objectContaining({ model: 'b/second', cost: expect.any(Number) })]);
  expect(uses[0]?.cost).toBeGreaterThan(0);
});

it('withFallbacks does not fall back to the model itself', () => {
  const first = new NamedModel('a/first');
  expect(withFallbacks(first, [first])).toBe(first);
});
