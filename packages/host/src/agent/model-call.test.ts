import { expect, it } from 'vitest';
import { RecordingMeter } from '../../test/support/agent/recording-meter.js';
import { finish, ScriptedModel, say } from '../../test/support/agent/scripted-model.js';
import { createLlms, generateText, type TextRequest } from './model-call.js';

function question(model: ScriptedModel, more: Partial<TextRequest> = {}): TextRequest {
  const { signal } = new AbortController();
  const meter = new RecordingMeter();
  return { model, system: 'Be brief.', prompt: 'Why?', meter, signal, ...more };
}

it('generateText returns the complete answer and its cost', async () => {
  const meter = new RecordingMeter();
  const model = new ScriptedModel([{ type: 'text', text: 'Be' }, ...say('cause')]);
  const use = { model: 'scripted/model', input: 10, output: 5, cached: 2 };
  expect(await generateText(question(model, { meter }))).toEqual({ text: 'Because', use });
  expect(meter.uses).toEqual([use]);
  expect(model.calls).toMatchObject([
    { system: 'Be brief.', messages: [{ role: 'user', content: 'Why?' }], tools: [] },
  ]);
});

it('generateText makes no call that the meter denies', async () => {
  const refusal = new Error('no credit');
  const meter = new RecordingMeter(() => {
    throw refusal;
  });
  const model = new ScriptedModel(say('x'));
  await expect(generateText(question(model, { meter }))).rejects.toBe(refusal);
  expect(model.calls).toEqual([]);
});

it('generateText stops reading at maxLength and counts what it read', async () => {
  const meter = new RecordingMeter();
  const model = new ScriptedModel([
    { type: 'text', text: 'a'.repeat(50) },
    { type: 'text', text: 'b'.repeat(50) },
    { type: 'text', text: 'c' },
    finish(),
  ]);
  const { text } = await generateText(question(model, { meter, maxLength: 60 }));
  expect(text).toHaveLength(100);
  expect(meter.uses).toMatchObject([{ output: 25 }]);
});

it('generateText rejects a stream without a finish and counts its cost', async () => {
  const meter = new RecordingMeter();
  const model = new ScriptedModel([{ type: 'text', text: 'Beca' }]);
  await expect(generateText(question(model, { meter }))).rejects.toThrow('ended too early');
  expect(meter.uses).toMatchObject([{ output: 1 }]);
});

it('createLlms aborts a call with either signal', async () => {
  const [turn, own] = [new AbortController(), new AbortController()];
  const never = async function* () {
    yield await new Promise<never>(() => undefined);
  };
  const model = new ScriptedModel(never, never);
  const meter = new RecordingMeter();
  const llm = createLlms({ modelFor: () => model, meter, signal: turn.signal }).get('utility');
  const first = llm.generate({ prompt: 'Why?', signal: own.signal });
  own.abort(new Error('own'));
  await expect(first).rejects.toThrow('own');
  const second = llm.generate({ prompt: 'Why?', signal: new AbortController().signal });
  turn.abort(new Error('turn'));
  await expect(second).rejects.toThrow('turn');
});
