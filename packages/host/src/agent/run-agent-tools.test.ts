import { mediaResult } from '@sibyl/plugin-kit';
import { expect, it, onTestFinished, vi } from 'vitest';
import {
  filterParts,
  listFinishedCalls,
  requestTo,
  runToEnd,
  tool,
} from '../../test/support/agent/agent-requests.js';
import { callTools, ScriptedModel, say } from '../../test/support/agent/scripted-model.js';
import type { ModelToolResult } from '../models/model.js';
import { ModelFacts } from '../models/model-facts.js';
import type { AgentTool } from './agent.js';

class SeeingModel extends ScriptedModel {
  override readonly facts = new ModelFacts();
}

/** Has the model make the calls once, then answer. */
async function runCalls(
  calls: readonly (readonly [string, string, unknown])[],
  tools: readonly AgentTool[],
) {
  const model = new ScriptedModel(callTools(...calls), say('ok'));
  const { parts, thrown } = await runToEnd(requestTo(model, { tools }));
  expect(thrown).toBeUndefined();
  const last = model.lastMessages.at(-1);
  const results: readonly ModelToolResult[] = last?.role === 'tool' ? last.results : [];
  return { model, parts, ends: listFinishedCalls(parts), results };
}

it('runAgent runs tool calls concurrently', async () => {
  const both = [Promise.withResolvers<void>(), Promise.withResolvers<void>()] as const;
  // Each waits until the other has begun: one after the other would never end.
  const left = tool('left', async () => {
    both[0].resolve();
    await both[1].promise;
    return 'left';
  });
  const right = tool('right', async () => {
    both[1].resolve();
    await both[0].promise;
    return 'right';
  });
  const { results } = await runCalls(
    [
      ['c1', 'left', {}],
      ['c2', 'right', {}],
    ],
    [left, right],
  );
  expect(results.map(({ output }) => output)).toEqual(['"left"', '"right"']);
});

it('runAgent starts all calls, reports results as they arrive, and sends them to the model in the order of its calls', async () => {
  const quickDone = Promise.withResolvers<void>();
  const slow = tool('slow', async () => {
    await quickDone.promise;
    return 1;
  });
  const quick = tool('quick', async () => {
    queueMicrotask(() => quickDone.resolve());
    return 2;
  });
  const { parts, results } = await runCalls(
    [
      ['c1', 'slow', {}],
      ['c2', 'quick', {}],
    ],
    [slow, quick],
  );
  const order = parts.flatMap((part) => {
    if (part.type === 'tool-start') return [`start ${part.name}`];
    return part.type === 'tool-end' ? [`end ${part.call.name}`] : [];
  });
  expect(order).toEqual(['start slow', 'start quick', 'end quick', 'end slow']);
  expect(results.map(({ name }) => name)).toEqual(['slow', 'quick']);
});

it('runAgent waits for each of many calls once, not again whenever another one ends', async () => {
  const race = vi.spyOn(Promise, 'race');
  onTestFinished(() => race.mockRestore());
  const calls = Array.from({ length: 50 }, (_, i) => [`c${i}`, 'act', { i }] as const);
  const { results } = await runCalls(calls, [tool('act', async (input) => input)]);
  expect(results).toHaveLength(calls.length);
  expect(race).not.toHaveBeenCalled();
});

it('runAgent passes the id and the validated input to a tool', async () => {
  const seen: unknown[] = [];
  const twice = tool(
    'twice',
    async (input, { id, signal }) => {
      seen.push(input, id, signal.aborted);
    },
    { check: () => ({ ok: { n: 2 } }) },
  );
  const { ends } = await runCalls([['c1', 'twice', { n: '2' }]], [twice]);
  expect(seen).toEqual([{ n: 2 }, 'c1', false]);
  expect(ends).toMatchObject([{ args: { n: '2' }, status: 'done', output: 'null' }]);
});

it.each([
  ['no JSON', '{"a": 1', 'The input is not valid JSON: {"a": 1'],
  ['no object', '[1]', 'The input must be a JSON object'],
  ['a JSON string', '"a"', 'The input must be a JSON object'],
])('runAgent reports to the model that its input is %s', async (_, input, fault) => {
  let runs = 0;
  const { parts, ends, results, model } = await runCalls(
    [['c1', 'act', input]],
    [tool('act', async () => ++runs)],
  );
  expect(filterParts(parts, 'tool-start')).toMatchObject([{ args: {} }]);
  expect(ends).toMatchObject([{ status: 'error', args: {} }]);
  expect(results).toMatchObject([{ isError: true }]);
  expect(JSON.parse(results[0]?.output ?? '').error).toContain(fault);
  expect(model.lastMessages.at(-2)).toMatchObject({ toolCalls: [{ input: '{}' }] });
  expect(runs).toBe(0);
});

it('runAgent treats an empty input as an empty object', async () => {
  const { ends } = await runCalls([['c1', 'act', '']], [tool('act', async (input) => input)]);
  expect(ends).toMatchObject([{ status: 'done', output: '{}' }]);
});

it('runAgent reports the available tools when the model calls an unknown one', async () => {
  const { results, model } = await runCalls(
    [['c1', 'functions.äct!', {}]],
    [tool('act', async () => 1), tool('look', async () => 2)],
  );
  expect(results[0]).toMatchObject({ isError: true });
  expect(results[0]?.output).toContain('Tools: act, look');
  // A name that providers take when they see it again.
  expect(model.lastMessages.at(-2)).toMatchObject({ toolCalls: [{ name: 'functions__ct_' }] });
});

it('runAgent reports validation errors to the model', async () => {
  let runs = 0;
  const strict = tool('strict', async () => ++runs, {
    check: () => ({ error: ['a: expected number', 'b: is required'] }),
  });
  const { ends } = await runCalls([['c1', 'strict', {}]], [strict]);
  expect(ends).toMatchObject([{ status: 'error' }]);
  expect(ends[0]?.output).toContain('a: expected number; b: is required');
  expect(runs).toBe(0);
});

it('runAgent handles a check that throws', async () => {
  const odd = tool('odd', async () => 1, {
    check: () => {
      throw new Error('async schema');
    },
  });
  const { ends } = await runCalls([['c1', 'odd', {}]], [odd]);
  expect(ends).toMatchObject([{ status: 'error', output: '{"error":"async schema"}' }]);
});

it.each([
  ['an error', new Error('No\n  such file'), 'No such file'],
  ['a text', 'out of order', 'out of order'],
  ['nothing', undefined, 'The tool failed.'],
  ['an object without a prototype', Object.create(null), 'The tool failed.'],
])('runAgent reports in one line that a tool threw %s', async (_, thrown, error) => {
  const { ends } = await runCalls([['c1', 'bad', {}]], [tool('bad', () => Promise.reject(thrown))]);
  expect(ends).toMatchObject([{ status: 'error', output: JSON.stringify({ error }) }]);
});

it('runAgent treats a synchronous throw as a rejection, and limits its message', async () => {
  const bad = tool('bad', () => {
    throw new Error('x'.repeat(10_000));
  });
  const { ends } = await runCalls([['c1', 'bad', {}]], [bad]);
  expect(ends[0]?.output.length).toBeLessThan(600);
  expect(ends[0]?.output).not.toContain('run-agent-tools');
});

it('runAgent continues other calls when one fails', async () => {
  const good = tool('good', async () => 1);
  const bad = tool('bad', () => Promise.reject(new Error('no')));
  const { results } = await runCalls(
    [
      ['c1', 'bad', {}],
      ['c2', 'good', {}],
    ],
    [good, bad],
  );
  expect(results.map(({ isError }) => isError)).toEqual([true, false]);
});

it('runAgent ends a call that times out, even if it ignores the signal', async () => {
  const reason = Promise.withResolvers<unknown>();
  const deaf = tool(
    'deaf',
    (_, { signal }) => {
      signal.addEventListener('abort', () => reason.resolve(signal.reason));
      return new Promise(() => undefined);
    },
    { timeoutMs: 1 },
  );
  const { ends } = await runCalls([['c1', 'deaf', {}]], [deaf]);
  expect(ends).toMatchObject([{ status: 'error' }]);
  expect(ends[0]?.output).toContain('did not finish within 0.001 s');
  expect(await reason.promise).toBeInstanceOf(Error);
});

it('runAgent limits its timer to what Node supports, and clears it', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const set = vi.fn(setTimeout);
  vi.stubGlobal('setTimeout', set);
  onTestFinished(() => {
    vi.unstubAllGlobals();
    vi.useRealTimers();
  });
  const endless = tool('endless', async () => 1, { timeoutMs: Number.POSITIVE_INFINITY });
  const { ends } = await runCalls([['c1', 'endless', {}]], [endless]);
  expect(ends).toMatchObject([{ status: 'done' }]);
  expect(set).toHaveBeenCalledExactlyOnceWith(expect.any(Function), 2 ** 31 - 1);
  expect(vi.getTimerCount()).toBe(0);
});

it('runAgent gives every call a unique id', async () => {
  const model = new ScriptedModel(
    callTools(['old', 'act', { n: 1 }], ['same', 'act', { n: 2 }], ['same', 'act', { n: 3 }]),
    callTools(['same', 'act', { n: 4 }], ['', 'act', { n: 5 }]),
    say('ok'),
  );
  const { parts } = await runToEnd(
    requestTo(model, {
      messages: [
        { role: 'user', content: 'Hello' },
        { role: 'assistant', text: '', toolCalls: [{ id: 'old', name: 'act', input: '{}' }] },
        { role: 'tool', results: [{ id: 'old', name: 'act', output: '0', isError: false }] },
        { role: 'assistant', text: 'Hello' },
        { role: 'user', content: 'Again' },
      ],
      tools: [tool('act', async ({ n }) => n)],
    }),
  );
  const ids = filterParts(parts, 'tool-start').map(({ id }) => id);
  expect(new Set(['old', ...ids]).size).toBe(6);
  expect(ids).toContain('same');
  for (const id of ids) expect(id).toMatch(/^[\w-]{1,40}$/);
  const outputs = listFinishedCalls(parts).map(({ id, output }) => [id, output]);
  expect(outputs).toEqual(ids.map((id, i) => [id, String(i + 1)]));
});

it('runAgent sends the files of a tool result to the model, and only their description to the user', async () => {
  const model = new ScriptedModel(callTools(['1', 'draw', {}]), say('A chart.'));
  const data = new Uint8Array([137, 80, 78, 71]);
  const chart = mediaResult({ mediaType: 'image/png', data, description: 'A chart' });
  const tools = [tool('draw', async () => ({ title: 'Sales', chart }))];
  const { parts } = await runToEnd(requestTo(model, { tools }));
  const [finished] = listFinishedCalls(parts);
  expect(finished?.output).toBe('{"title":"Sales","chart":"[image/png, 4 bytes] A chart"}');
  expect(Object.keys(finished ?? {}).sort()).toEqual(['args', 'id', 'name', 'output', 'status']);
  expect(model.facts.vision).toBe(false);
  const seeing = new SeeingModel(callTools(['1', 'draw', {}]), say('A chart.'));
  await runToEnd(requestTo(seeing, { tools }));
  const results = (made: ScriptedModel) => made.lastMessages.at(-1);
  expect(results(seeing)).toMatchObject({
    results: [{ media: [{ mediaType: 'image/png', data }] }],
  });
  expect(results(model)).not.toMatchObject({ results: [{ media: expect.anything() }] });
});
