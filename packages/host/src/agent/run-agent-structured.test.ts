import { expect, it } from 'vitest';
import { joinText, requestTo, tool } from '../../test/support/agent/agent-requests.js';
import { callTools, ScriptedModel, say } from '../../test/support/agent/scripted-model.js';
import type { AgentPart, AgentRequest } from './agent.js';
import { answerMessage } from './run-agent.js';

const responseSchema = {
  $defs: { city: { type: 'string', minLength: 1 } },
  type: 'object',
  properties: { capital: { $ref: '#/$defs/city' }, people: { type: 'integer' } },
  required: ['capital'],
};

async function answer(request: AgentRequest) {
  const parts: AgentPart[] = [];
  try {
    for await (const part of answerMessage(request)) parts.push(part);
    return { text: joinText(parts), parts, thrown: undefined };
  } catch (thrown) {
    return { text: joinText(parts), parts, thrown };
  }
}

it('answerMessage returns JSON that fits the schema, and asks the model for it', async () => {
  const model = new ScriptedModel(say('```json\n{ "capital": "Nairobi", "people": 5 }\n```'));
  const { text } = await answer(requestTo(model, { responseSchema }));
  expect(JSON.parse(text)).toEqual({ capital: 'Nairobi', people: 5 });
  const [call] = model.calls;
  expect(call?.responseSchema).toMatchObject({ properties: { capital: { type: 'string' } } });
  expect(call?.messages.at(-1)).toMatchObject({
    content: 'Hello',
    note: expect.stringContaining('"capital"'),
  });
});

it('answerMessage checks a long answer of line ends in no time', async () => {
  const lines = '\n'.repeat(400_000);
  const model = new ScriptedModel(
    say(`\`\`\`${lines}x`),
    say('```json\n\n{"capital":"Nairobi"}```'),
  );
  const { text } = await answer(requestTo(model, { responseSchema }));
  expect(JSON.parse(text)).toEqual({ capital: 'Nairobi' });
});

it('answerMessage asks once for an answer that fits, and says what is wrong', async () => {
  const model = new ScriptedModel(say('It is Nairobi.'), say('{"capital":"Nairobi"}'));
  const { text } = await answer(requestTo(model, { responseSchema }));
  expect(text).toBe('{"capital":"Nairobi"}');
  expect(model.calls[1]?.messages.at(-2)).toMatchObject({ text: 'It is Nairobi.' });
  expect(model.calls[1]?.messages.at(-1)).toMatchObject({
    content: expect.stringContaining('not JSON'),
  });
});

it('answerMessage fails with the reason if the second answer does not fit either', async () => {
  const model = new ScriptedModel(say('{}'), say('{"capital":"Nairobi","people":1.5}'));
  const { text, thrown } = await answer(requestTo(model, { responseSchema }));
  expect(text).toBe('');
  expect(thrown).toMatchObject({ code: 'response_schema_mismatch' });
  expect(String(thrown)).toContain('people');
  expect(model.calls).toHaveLength(2);
});

it('answerMessage uses tools first, and leaves out what the model says before', async () => {
  const model = new ScriptedModel(
    [{ type: 'text', text: 'Let me see.' }, ...callTools(['1', 'look', {}])],
    say('{"capital":"Nairobi"}'),
  );
  const tools = [tool('look', async () => 'Nairobi')];
  const { text, parts } = await answer(requestTo(model, { responseSchema, tools }));
  expect(text).toBe('{"capital":"Nairobi"}');
  expect(parts.map(({ type }) => type)).toEqual(['tool-start', 'tool-end', 'text']);
});

it('answerMessage rejects a schema that cannot be checked, before it calls the model', async () => {
  const model = new ScriptedModel(say('{}'));
  const unusable = { type: 'object', unevaluatedProperties: false };
  const { thrown } = await answer(requestTo(model, { responseSchema: unusable }));
  expect(thrown).toMatchObject({ code: 'validation_failed' });
  expect(String(thrown)).toContain('unevaluatedProperties');
  expect(model.calls).toEqual([]);
});
