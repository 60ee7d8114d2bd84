import { expect, it } from 'vitest';
import {
  filterParts,
  joinText,
  requestTo,
  runToEnd,
  tool,
} from '../../test/support/agent/agent-requests.js';
import { RecordingMeter } from '../../test/support/agent/recording-meter.js';
import {
  callTools,
  finish,
  ScriptedModel,
  say,
  wantTool,
} from '../../test/support/agent/scripted-model.js';
import { ModelError, type ModelPart } from '../models/model.js';
import { ModelFacts } from '../models/model-facts.js';
import type { AgentPart } from './agent.js';
import { runAgent } from './run-agent.js';

it('runAgent streams text and reasoning as they arrive, and meters the cost', async () => {
  const model = new ScriptedModel([
    { type: 'reasoning', text: 'Hm.' },
    { type: 'text', text: 'Good ' },
    { type: 'text', text: 'day' },
    finish(),
  ]);
  const meter = new RecordingMeter();
  const { parts, thrown } = await runToEnd(requestTo(model, { meter }));
  expect(thrown).toBeUndefined();
  expect(parts).toEqual([
    { type: 'reasoning', text: 'Hm.' },
    { type: 'text', text: 'Good ' },
    { type: 'text', text: 'day' },
  ]);
  expect(meter.uses).toEqual([{ model: 'scripted/model', input: 10, output: 5, cached: 2 }]);
});

it('runAgent yields a token before the model creates the next one', async () => {
  const next = Promise.withResolvers<void>();
  const model = new ScriptedModel(async function* (): AsyncGenerator<ModelPart> {
    yield { type: 'text', text: 'first' };
    await next.promise;
    yield* say('second');
  });
  const reader = runAgent(requestTo(model));
  expect((await reader.next()).value).toEqual({ type: 'text', text: 'first' });
  next.resolve();
  expect((await reader.next()).value).toEqual({ type: 'text', text: 'second' });
});

it('runAgent calls the model with system prompt, messages, tools and signal', async () => {
  const model = new ScriptedModel(say('ok'));
  const add = tool('add', async () => 3);
  const request = requestTo(model, { tools: [add] });
  await runToEnd(request);
  const { name, description, inputSchema } = add;
  expect(model.calls).toEqual([
    {
      system: request.system,
      messages: request.messages,
      tools: [{ name, description, inputSchema }],
      signal: request.signal,
    },
  ]);
});

it('runAgent runs a tool and sends its result to the model', async () => {
  const model = new ScriptedModel(
    [
      { type: 'reasoning', text: 'I need to add.' },
      { type: 'text', text: 'One moment.' },
      wantTool('c1', 'add', { a: 1, b: 2 }),
      { ...finish('tool-calls'), providerData: { signature: 'xyz' } },
    ],
    say('It is 3.'),
  );
  const add = tool('add', async ({ a, b }) => ({ sum: Number(a) + Number(b) }));
  const meter = new RecordingMeter();
  const { parts } = await runToEnd(requestTo(model, { tools: [add], meter }));
  const call = { id: 'c1', name: 'add', args: { a: 1, b: 2 } };
  expect(parts.filter(({ type }) => type.startsWith('tool'))).toEqual([
    { type: 'tool-start', ...call },
    { type: 'tool-end', call: { ...call, status: 'done', output: '{"sum":3}' } },
  ]);
  expect(model.lastMessages).toEqual([
    { role: 'user', content: 'Hello' },
    {
      role: 'assistant',
      text: 'One moment.',
      reasoning: 'I need to add.',
      toolCalls: [{ id: 'c1', name: 'add', input: '{"a":1,"b":2}' }],
      providerData: { signature: 'xyz' },
    },
    { role: 'tool', results: [{ id: 'c1', name: 'add', output: '{"sum":3}', isError: false }] },
  ]);
  expect([meter.checks, meter.uses.length]).toEqual([2, 2]);
});

it('runAgent separates the texts of two steps by a paragraph', async () => {
  const model = new ScriptedModel(
    [{ type: 'text', text: 'One moment.' }, ...callTools(['c1', 'look', {}])],
    callTools(['c2', 'look', {}]),
    [{ type: 'text', text: 'It is' }, { type: 'text', text: ' blue.' }, finish()],
  );
  const { parts } = await runToEnd(requestTo(model, { tools: [tool('look', async () => 'blue')] }));
  expect(joinText(parts)).toBe('One moment.\n\nIt is blue.');
});

it('runAgent sends no tools to a model that does not support them', async () => {
  const model = new (class extends ScriptedModel {
    override readonly facts = new ModelFacts({ settings: { tools: false } });
  })(say('ok'));
  await runToEnd(requestTo(model, { tools: [tool('add', async () => 3)] }));
  expect(model.calls[0]?.tools).toEqual([]);
});

it.each([
  ['length', 'answer_cut'],
  ['content-filter', 'answer_filtered'],
] as const)('runAgent warns about an answer that ended by %s', async (reason, code) => {
  const { parts } = await runToEnd(requestTo(new ScriptedModel(say('Once upon', reason))));
  expect(filterParts(parts, 'warning')).toMatchObject([{ code }]);
});

it('runAgent warns when the model returns nothing', async () => {
  const { parts } = await runToEnd(requestTo(new ScriptedModel([finish()])));
  expect(filterParts(parts, 'warning')).toMatchObject([{ code: 'no_answer' }]);
});

it('runAgent does not warn about an empty last step after earlier text', async () => {
  const model = new ScriptedModel(
    [{ type: 'text', text: 'Done in a moment.' }, ...callTools(['c1', 'act', {}])],
    [finish()],
  );
  const { parts } = await runToEnd(requestTo(model, { tools: [tool('act', async () => 1)] }));
  expect(filterParts(parts, 'warning')).toEqual([]);
});

it('runAgent throws an error of the model after the parts received', async () => {
  const fault = new ModelError('Too many requests', { kind: 'rate_limit', retryable: true });
  const model = new ScriptedModel(function* (): Generator<ModelPart> {
    yield { type: 'text', text: 'Well' };
    yield wantTool('c1', 'act', {});
    throw fault;
  });
  let runs = 0;
  const act = tool('act', async () => ++runs);
  const { parts, thrown } = await runToEnd(requestTo(model, { tools: [act] }));
  expect(thrown).toBe(fault);
  expect(parts).toEqual([{ type: 'text', text: 'Well' }]);
  expect(runs).toBe(0);
});

it('runAgent throws if the stream ends without a finish', async () => {
  const { parts, thrown } = await runToEnd(
    requestTo(new ScriptedModel([{ type: 'text', text: 'Well' }])),
  );
  expect(parts).toEqual([{ type: 'text', text: 'Well' }]);
  expect(thrown).toBeInstanceOf(ModelError);
  expect(thrown).toMatchObject({ kind: 'server', retryable: true });
});

it('runAgent throws the error of a model that fails before it streams', async () => {
  const fault = new ModelError('No key', { kind: 'auth', retryable: false });
  const model = new ScriptedModel();
  const { thrown } = await runToEnd(
    requestTo({
      ...model,
      id: 'x',
      stream: () => {
        throw fault;
      },
    }),
  );
  expect(thrown).toBe(fault);
});

it('runAgent does not change its messages', async () => {
  const messages = [{ role: 'user' as const, content: 'Hello' }];
  const before = structuredClone(messages);
  const model = new ScriptedModel(callTools(['c1', 'act', {}]), say('ok'));
  const parts: AgentPart[] = [];
  const request = requestTo(model, { messages, tools: [tool('act', async () => 1)] });
  for await (const part of runAgent(request)) parts.push(part);
  expect(messages).toEqual(before);
});
