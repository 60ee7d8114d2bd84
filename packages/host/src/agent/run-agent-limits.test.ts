import { describe, expect, it } from 'vitest';
import {
  filterParts,
  joinText,
  listFinishedCalls,
  requestTo,
  runToEnd,
  tool,
} from '../../test/support/agent/agent-requests.js';
import { RecordingMeter } from '../../test/support/agent/recording-meter.js';
import {
  callTools,
  ScriptedModel,
  type ScriptedStep,
  say,
} from '../../test/support/agent/scripted-model.js';
import type { ModelCall, ModelMessage, ModelPart } from '../models/model.js';
import { SummaryCache } from './agent.js';

const LIMITS = { steps: 3, contextTokens: 100_000 };

/** Calls a tool as long as it is offered one, then answers. */
function eagerModel(
  createInput: (step: number) => unknown,
  answer = say('Enough.'),
): ScriptedModel {
  const step = (n: number): ScriptedStep => {
    return ({ tools }: ModelCall): readonly ModelPart[] =>
      tools.length > 0 ? callTools([`c${n}`, 'look', createInput(n)]) : answer;
  };
  return new ScriptedModel(...Array.from({ length: 30 }, (_, n) => step(n)));
}

describe('the step limit of runAgent', () => {
  it('makes one more call without tools, and warns', async () => {
    const model = eagerModel((n) => ({ n }));
    const { parts, thrown } = await runToEnd(
      requestTo(model, { tools: [tool('look', async ({ n }) => ({ n }))], limits: LIMITS }),
    );
    expect(thrown).toBeUndefined();
    expect(model.calls.map(({ tools }) => tools.length)).toEqual([1, 1, 1, 0]);
    expect(listFinishedCalls(parts).map(({ status }) => status)).toEqual(['done', 'done', 'done']);
    expect(filterParts(parts, 'warning')).toMatchObject([{ code: 'step_limit' }]);
    expect(joinText(parts)).toBe('Enough.');
  });

  it('describes tool results as text, because some providers reject calls without tools', async () => {
    const model = eagerModel((n) => ({ n }));
    await runToEnd(
      requestTo(model, { tools: [tool('look', async ({ n }) => `saw ${n}`)], limits: LIMITS }),
    );
    const roles = model.lastMessages.map(({ role }) => role);
    expect(roles).toEqual(['user', 'assistant', 'user', 'assistant', 'user', 'assistant', 'user']);
    const sent = JSON.stringify(model.lastMessages);
    expect(sent).not.toContain('toolCalls');
    for (const n of [0, 1, 2]) expect(sent).toContain(`saw ${n}`);
    expect(model.lastMessages.at(-1)).toMatchObject({
      content: expect.stringContaining('Answer now'),
    });
  });

  it('runs no tool that the last call asks for', async () => {
    let runs = 0;
    const model = eagerModel((n) => ({ n }), callTools(['late', 'look', {}]));
    const { parts } = await runToEnd(
      requestTo(model, { tools: [tool('look', async () => ++runs)], limits: LIMITS }),
    );
    expect(runs).toBe(3);
    const codes = filterParts(parts, 'warning').map(({ code }) => code);
    expect(codes).toEqual(['step_limit', 'no_answer']);
  });

  it('does not warn if the last allowed step answers', async () => {
    const model = new ScriptedModel(
      callTools(['c1', 'look', { n: 1 }]),
      callTools(['c2', 'look', { n: 2 }]),
      say('Done.'),
    );
    const { parts } = await runToEnd(
      requestTo(model, { tools: [tool('look', async () => 1)], limits: LIMITS }),
    );
    expect(filterParts(parts, 'warning')).toEqual([]);
  });
});

describe('runAgent with a repeated tool call', () => {
  const limits = { ...LIMITS, steps: 20 };

  it('runs it three times, then rejects it, then asks for an answer without tools', async () => {
    let runs = 0;
    const keys = [
      { a: 1, b: { c: 2, d: 3 } },
      { b: { d: 3, c: 2 }, a: 1 },
    ];
    const model = eagerModel((n) => keys[n % 2]);
    const { parts } = await runToEnd(
      requestTo(model, { tools: [tool('look', async () => ++runs)], limits }),
    );
    expect(runs).toBe(3);
    const statuses = listFinishedCalls(parts).map(({ status }) => status);
    expect(statuses).toEqual(['done', 'done', 'done', 'error', 'error', 'error']);
    expect(listFinishedCalls(parts).at(-1)?.output).toContain('Not run');
    expect(filterParts(parts, 'warning')).toMatchObject([{ code: 'repetition' }]);
    expect(model.calls.at(-1)?.tools).toEqual([]);
    expect(joinText(parts)).toBe('Enough.');
  });

  it('does not limit the same tool with different input', async () => {
    const model = eagerModel((n) => ({ list: [n] }));
    const { parts } = await runToEnd(
      requestTo(model, { tools: [tool('look', async () => 1)], limits }),
    );
    expect(listFinishedCalls(parts).filter(({ status }) => status === 'done')).toHaveLength(20);
    expect(filterParts(parts, 'warning')).toMatchObject([{ code: 'step_limit' }]);
  });

  it('also stops a model that repeats an invalid call', async () => {
    const model = eagerModel(() => '{broken');
    const { parts } = await runToEnd(
      requestTo(model, { tools: [tool('look', async () => 1)], limits }),
    );
    expect(listFinishedCalls(parts)).toHaveLength(6);
    expect(filterParts(parts, 'warning')).toMatchObject([{ code: 'repetition' }]);
  });

  it('distinguishes errors of different inputs', async () => {
    const model = eagerModel((n) => `{broken ${n}`);
    const { parts } = await runToEnd(
      requestTo(model, { tools: [tool('look', async () => 1)], limits }),
    );
    expect(filterParts(parts, 'warning')).toMatchObject([{ code: 'step_limit' }]);
  });

  it('counts concurrent calls', async () => {
    let runs = 0;
    const same = Array.from({ length: 5 }, (_, i) => [`c${i}`, 'look', {}] as const);
    const model = new ScriptedModel(callTools(...same), say('ok'));
    const { parts } = await runToEnd(
      requestTo(model, { tools: [tool('look', async () => ++runs)], limits }),
    );
    expect(runs).toBe(3);
    expect(filterParts(parts, 'warning')).toEqual([]);
  });

  it('starts again with every turn', async () => {
    const look = tool('look', async () => 1);
    for (const _ of [1, 2]) {
      const calls = [1, 2, 3].map((n) => callTools([`c${n}`, 'look', {}]));
      const model = new ScriptedModel(...calls, say('ok'));
      const { parts } = await runToEnd(requestTo(model, { tools: [look], limits }));
      expect(listFinishedCalls(parts).every(({ status }) => status === 'done')).toBe(true);
    }
  });
});

describe('the token budget of runAgent', () => {
  const messages: ModelMessage[] = [
    { role: 'user', content: 'long '.repeat(2000) },
    { role: 'assistant', text: 'yes' },
    { role: 'user', content: 'And now?' },
  ];
  const limits = { steps: 5, contextTokens: 1000 };

  it('summarizes older turns and counts the cost', async () => {
    const model = new ScriptedModel(say('ok'));
    const smallModel = new ScriptedModel(say('It was long.'));
    const meter = new RecordingMeter();
    await runToEnd(requestTo(model, { smallModel, messages, limits, meter }));
    expect([meter.checks, meter.uses.length]).toEqual([2, 2]);
    expect(JSON.stringify(model.lastMessages)).toContain('It was long.');
    expect(model.lastMessages.at(-1)).toEqual(messages.at(-1));
  });

  it('warns once per turn about what was left out', async () => {
    const model = new ScriptedModel(callTools(['c1', 'look', {}]), say('ok'));
    const tools = [tool('look', async () => 1)];
    const { parts } = await runToEnd(requestTo(model, { messages, limits, tools }));
    expect(filterParts(parts, 'warning')).toMatchObject([{ code: 'history_shortened' }]);
    expect(joinText(parts)).toBe('ok');
  });

  it('reuses a summary in the next turn', async () => {
    const summaries = new SummaryCache();
    const smallModel = new ScriptedModel(say('It was long.'));
    for (const _ of [1, 2]) {
      const model = new ScriptedModel(say('ok'));
      await runToEnd(requestTo(model, { smallModel, messages, limits, summaries }));
      expect(JSON.stringify(model.lastMessages)).toContain('It was long.');
    }
    expect(smallModel.calls).toHaveLength(1);
  });

  it('applies to tool results of the same turn', async () => {
    const model = new ScriptedModel(callTools(['c1', 'look', {}]), say('ok'));
    const tools = [tool('look', async () => 'x'.repeat(50_000))];
    const { parts } = await runToEnd(requestTo(model, { limits, tools }));
    expect(listFinishedCalls(parts)[0]?.output).toHaveLength(50_002);
    expect(JSON.stringify(model.lastMessages).length).toBeLessThan(4000);
  });
});
