import { expect, it } from 'vitest';
import {
  filterParts,
  joinText,
  requestTo,
  runToEnd,
  tool,
} from '../../test/support/agent/agent-requests.js';
import { ScriptedModel, type ScriptedStep, say } from '../../test/support/agent/scripted-model.js';
import { ModelError, type ModelMessage } from '../models/model.js';
import { ModelFacts } from '../models/model-facts.js';
import type { Rejection } from '../models/rejections.js';
import { estimateCall } from './model-call.js';

/** A step that the model refuses. */
const refuse = (rejection: Rejection): ScriptedStep => {
  return () => {
    throw new ModelError('Refused', { kind: 'unknown', retryable: false, rejection });
  };
};
const tooLong = refuse({ of: 'context', limit: 1000 });

class SeeingModel extends ScriptedModel {
  override readonly facts = new ModelFacts();
}

const listCodes = (parts: Awaited<ReturnType<typeof runToEnd>>['parts']) =>
  filterParts(parts, 'warning').map(({ code }) => code);

function longConversation(): ModelMessage[] {
  const turns = Array.from({ length: 20 }, (_, n): ModelMessage[] => [
    { role: 'user', content: `Question ${n} ${'why '.repeat(60)}` },
    { role: 'assistant', text: `Answer ${n} ${'so '.repeat(60)}` },
  ]);
  return [...turns.flat(), { role: 'user', content: 'And now?' }];
}

it('runAgent repeats a call that is too long once, shorter, and says so', async () => {
  const model = new ScriptedModel(tooLong, say('Fine.'));
  const smallModel = new ScriptedModel(say('They spoke.'));
  const messages = longConversation();
  const { parts, thrown } = await runToEnd(requestTo(model, { smallModel, messages }));
  expect(thrown).toBeUndefined();
  expect(joinText(parts)).toBe('Fine.');
  expect(listCodes(parts)).toEqual(['history_summarized']);
  const [first, second] = model.calls.map(estimateCall);
  expect(second).toBeLessThanOrEqual(800);
  expect(first).toBeGreaterThan(1000);
});

it('runAgent throws if the shorter call is refused too', async () => {
  const model = new ScriptedModel(tooLong, tooLong);
  const { thrown } = await runToEnd(requestTo(model));
  expect(thrown).toMatchObject({ rejection: { of: 'context' } });
  expect(model.calls).toHaveLength(2);
});

it('runAgent shortens every step of a turn if needed', async () => {
  const call = { id: '1', name: 'look', input: '{}' };
  const look = [
    { type: 'tool-call' as const, call },
    {
      type: 'finish' as const,
      reason: 'tool-calls' as const,
      usage: { input: 1, output: 1, cached: 0 },
    },
  ];
  const model = new ScriptedModel(tooLong, look, tooLong, say('Fine.'));
  const tools = [tool('look', async () => 'x'.repeat(8000))];
  const { parts, thrown } = await runToEnd(requestTo(model, { tools }));
  expect(thrown).toBeUndefined();
  expect(joinText(parts)).toBe('Fine.');
});

it('runAgent does not repeat a call of which a part has arrived', async () => {
  const model = new ScriptedModel(async function* (modelCall) {
    yield { type: 'text', text: 'Half' };
    yield* (tooLong as (c: typeof modelCall) => AsyncIterable<never>)(modelCall);
  });
  const { thrown } = await runToEnd(requestTo(model));
  expect(thrown).toMatchObject({ rejection: { of: 'context' } });
  expect(model.calls).toHaveLength(1);
});

const photo: ModelMessage = {
  role: 'user',
  content: [
    { type: 'text', text: 'What is this?' },
    { type: 'file', mediaType: 'image/png', data: new Uint8Array([1]) },
  ],
};

it('runAgent repeats a call without the images that the model refuses', async () => {
  const model = new SeeingModel(refuse({ of: 'images', isLasting: true }), say('No idea.'));
  const { parts } = await runToEnd(requestTo(model, { messages: [photo] }));
  expect(joinText(parts)).toBe('No idea.');
  expect(listCodes(parts)).toEqual(['images_left_out']);
  expect(model.calls[0]?.messages).toEqual([photo]);
  expect(JSON.stringify(model.calls[1]?.messages)).toContain('you cannot see images');
});

it('runAgent sends no images to a model that is known to see none', async () => {
  const model = new ScriptedModel(say('No idea.'));
  const { parts } = await runToEnd(requestTo(model, { messages: [photo] }));
  expect(joinText(parts)).toBe('No idea.');
  expect(JSON.stringify(model.calls[0]?.messages)).toContain('you cannot see images');
});

it('runAgent repeats a call without tools if the model supports none', async () => {
  const model = new ScriptedModel(refuse({ of: 'tools' }), say('By hand.'));
  const tools = [tool('look', async () => 'x')];
  const { parts } = await runToEnd(requestTo(model, { tools }));
  expect(joinText(parts)).toBe('By hand.');
  expect(listCodes(parts)).toEqual(['tools_left_out']);
  expect(model.calls.map((made) => made.tools.length)).toEqual([1, 0]);
});

it('runAgent repeats a call without the choice of a tool that the model refuses', async () => {
  const model = new ScriptedModel(refuse({ of: 'tool-choice' }), say('By hand.'));
  const tools = [tool('look', async () => 'x')];
  const { parts } = await runToEnd(requestTo(model, { tools, toolChoice: 'required' }));
  expect(joinText(parts)).toBe('By hand.');
  expect(listCodes(parts)).toEqual(['tool_choice_left_out']);
  expect(model.calls.map(({ toolChoice }) => toolChoice)).toEqual(['required', undefined]);
});
