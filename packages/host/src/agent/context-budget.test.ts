import { describe, expect, it } from 'vitest';
import { RecordingMeter } from '../../test/support/agent/recording-meter.js';
import { ScriptedModel, say } from '../../test/support/agent/scripted-model.js';
import type { ModelMessage, ModelPart } from '../models/model.js';
import { type Meter, SummaryCache, unmetered, type Warning } from './agent.js';
import { type CallDraft, Compactor } from './context-budget.js';
import { estimateMessages, estimateTokens } from './model-call.js';

const ROOM = 2000;
const ask: ModelMessage = { role: 'user', content: 'And now?' };

/** A turn of about 250 tokens. */
function turn(n: number): ModelMessage[] {
  return [
    { role: 'user', content: `Question ${n} ${'why '.repeat(125)}` },
    { role: 'assistant', text: `Answer ${n} ${'yes '.repeat(125)}` },
  ];
}

function turns(count: number): ModelMessage[] {
  return Array.from({ length: count }, (_, n) => turn(n)).flat();
}

function toolTurn(n: number, output: string): ModelMessage[] {
  return [
    { role: 'user', content: `Look ${n}` },
    { role: 'assistant', text: '', toolCalls: [{ id: `c${n}`, name: 'look', input: '{}' }] },
    { role: 'tool', results: [{ id: `c${n}`, name: 'look', output, isError: false }] },
    { role: 'assistant', text: `Seen ${n}` },
  ];
}

function draft(history: readonly ModelMessage[], changes: Partial<CallDraft> = {}): CallDraft {
  const { signal } = new AbortController();
  return { system: '', tools: [], history, current: [ask], signal, ...changes };
}

function compactor(smallModel: ScriptedModel, summaries?: SummaryCache, meter: Meter = unmetered) {
  const model = new ScriptedModel();
  return new Compactor({ model, smallModel, limits: { contextTokens: ROOM }, summaries, meter });
}

const listCodes = (warnings: readonly Warning[]) => warnings.map(({ code }) => code);

it('Compactor.fit returns a conversation that fits unchanged', async () => {
  const small = new ScriptedModel();
  const history = turns(6);
  const { messages, warnings } = await compactor(small).fit(draft(history));
  expect(messages).toEqual([...history, ask]);
  expect(warnings).toEqual([]);
  expect(small.calls).toEqual([]);
});

it('Compactor.fit counts the system prompt and the tools', async () => {
  const small = new ScriptedModel(say('Summary.'), say('Summary.'));
  const system = 'rule '.repeat(800);
  await compactor(small).fit(draft(turns(6), { system }));
  expect(small.calls).toHaveLength(1);
  const inputSchema = { type: 'object', description: system };
  const tools = [{ name: 'look', description: 'Looks.', inputSchema }];
  await compactor(small).fit(draft(turns(6), { tools }));
  expect(small.calls).toHaveLength(2);
});

it('Compactor.fit shortens results of older turns before it summarizes', async () => {
  const small = new ScriptedModel();
  const history = [0, 1, 2].flatMap((n) => toolTurn(n, `"${'x'.repeat(4000)}"`));
  const { messages, warnings } = await compactor(small).fit(draft(history));
  expect(small.calls).toEqual([]);
  expect(warnings).toEqual([]);
  const lengths = messages.flatMap((message) =>
    message.role === 'tool' ? message.results.map(({ output }) => output.length) : [],
  );
  expect(lengths.map((length) => length <= 500)).toEqual([true, true, false]);
  expect(messages).toHaveLength(history.length + 1);
  expect(history).toEqual([0, 1, 2].flatMap((n) => toolTurn(n, `"${'x'.repeat(4000)}"`)));
});

describe('Compactor.fit with a conversation that is too long', () => {
  it('starts with a summary of the oldest turns and keeps the newest unchanged', async () => {
    const small = new ScriptedModel(say('They spoke of whys.'));
    const history = turns(12);
    const meter = new RecordingMeter();
    const { messages } = await compactor(small, undefined, meter).fit(draft(history));
    expect(messages[0]).toMatchObject({ content: expect.stringContaining('They spoke of whys.') });
    expect(messages[1]).toMatchObject({ role: 'assistant' });
    const kept = messages.slice(2, -1);
    expect(kept.length).toBeGreaterThan(0);
    expect(kept).toEqual(history.slice(-kept.length));
    expect(messages.at(-1)).toBe(ask);
    expect(estimateMessages(messages)).toBeLessThanOrEqual(ROOM);
    expect(meter.uses).toEqual([{ model: small.id, input: 10, output: 5, cached: 2 }]);
  });

  it('sends exactly the replaced turns to the small model, without tools', async () => {
    const small = new ScriptedModel(say('Summary.'));
    const history = turns(12);
    const { messages } = await compactor(small).fit(draft(history));
    const summed = (history.length - (messages.length - 3)) / 2;
    const [call] = small.calls;
    const shown = JSON.stringify(call?.messages);
    expect(call?.tools).toEqual([]);
    for (let n = 0; n < 12; n++) expect(shown.includes(`Answer ${n} `)).toBe(n < summed);
  });

  it('limits what the small model receives', async () => {
    const small = new ScriptedModel(say('Summary.'));
    await compactor(small).fit(draft(turns(100)));
    expect(estimateMessages(small.lastMessages)).toBeLessThanOrEqual(ROOM);
    expect(JSON.stringify(small.lastMessages)).toContain('Answer 90 ');
  });

  it('uses the summary again in the next turn', async () => {
    const small = new ScriptedModel(say('Summary.'));
    const summaries = new SummaryCache();
    const first = await compactor(small, summaries).fit(draft(turns(12)));
    const second = await compactor(small, summaries).fit(draft(turns(13)));
    expect(small.calls).toHaveLength(1);
    expect(second.messages[0]).toEqual(first.messages[0]);
    expect(second.messages).toHaveLength(first.messages.length + 2);
    expect(second.warnings).toEqual([]);
  });

  it('finds the summary after an answer with a long result and repeated ids', async () => {
    const small = new ScriptedModel(say('Summary.'));
    const summaries = new SummaryCache();
    const looked = (id: string) =>
      toolTurn(0, `"${'x'.repeat(3000)}"`).map((message) =>
        message.role === 'tool'
          ? { ...message, results: message.results.map((result) => ({ ...result, id })) }
          : message,
      );
    const long = turns(8);
    await compactor(small, summaries).fit(draft([...looked('a'), ...long]));
    await compactor(small, summaries).fit(draft([...looked('b'), ...long, ...turn(9)]));
    expect(small.calls).toHaveLength(1);
  });

  it('summarizes a summary and later turns when both are too long', async () => {
    const small = new ScriptedModel(say('First part.'), say('Both parts.'));
    const summaries = new SummaryCache();
    await compactor(small, summaries).fit(draft(turns(12)));
    const { messages } = await compactor(small, summaries).fit(draft(turns(20)));
    expect(small.calls).toHaveLength(2);
    const shown = JSON.stringify(small.calls[1]?.messages);
    expect(shown).toContain('First part.');
    expect(shown).not.toContain('Answer 0 ');
    expect(messages[0]).toMatchObject({ content: expect.stringContaining('Both parts.') });
  });

  it('does not use the summary of another conversation', async () => {
    const small = new ScriptedModel(say('One.'), say('Two.'));
    const summaries = new SummaryCache();
    await compactor(small, summaries).fit(draft(turns(12)));
    const other: ModelMessage[] = [
      { role: 'user', content: 'Something else' },
      { role: 'assistant', text: 'Sure' },
    ];
    const { messages } = await compactor(small, summaries).fit(draft([...other, ...turns(12)]));
    expect(messages[0]).toMatchObject({ content: expect.stringContaining('Two.') });
  });

  it('truncates a summary that is longer than what it replaces, in any script', async () => {
    const small = new ScriptedModel(say('説明'.repeat(20_000)));
    const { messages } = await compactor(small).fit(draft(turns(12)));
    expect(estimateMessages(messages)).toBeLessThanOrEqual(ROOM);
  });
});

const failing: readonly [string, () => Iterable<ModelPart>][] = [
  [
    'throws',
    () => {
      throw new Error('down');
    },
  ],
  ['says nothing', () => [...say(' ')]],
  ['just stops', () => [{ type: 'text', text: 'They' }]],
];

describe.each(failing)('Compactor.fit with a small model that %s', (_, script) => {
  it('drops the oldest turns and warns the user once', async () => {
    const small = new ScriptedModel(script, script);
    const fitting = compactor(small);
    const history = turns(12);
    const { messages, warnings } = await fitting.fit(draft(history));
    expect(listCodes(warnings)).toEqual(['history_shortened']);
    const kept = messages.slice(2, -1);
    expect(kept.length).toBeGreaterThan(8);
    expect(kept).toEqual(history.slice(-kept.length));
    expect(estimateMessages(messages)).toBeLessThanOrEqual(ROOM);
    const again = await fitting.fit(draft(history));
    expect(again).toEqual({ messages, warnings: [] });
    expect(small.calls).toHaveLength(1);
  });
});

describe('Compactor.fit with a turn that becomes too long', () => {
  const steps = (outputs: readonly string[]): ModelMessage[] => [
    ask,
    ...outputs.flatMap((output, n) => toolTurn(n, output).slice(1, 3)),
  ];
  const listOutputs = (messages: readonly ModelMessage[]) =>
    messages.flatMap((message) => (message.role === 'tool' ? message.results : []));

  it('keeps the newest result while shortening older ones is enough', async () => {
    const newest = `"${'y'.repeat(4000)}"`;
    const current = steps([`"${'x'.repeat(20_000)}"`, `"${'x'.repeat(20_000)}"`, newest]);
    const { messages, warnings } = await compactor(new ScriptedModel()).fit(draft([], { current }));
    expect(estimateMessages(messages)).toBeLessThanOrEqual(ROOM);
    expect(listOutputs(messages).at(-1)?.output).toBe(newest);
    expect(warnings).toEqual([]);
  });

  it('shortens the newest result if necessary, with a note to the model', async () => {
    const current = steps([`"${'x'.repeat(90_000)}"`]);
    const { messages } = await compactor(new ScriptedModel()).fit(draft([], { current }));
    expect(estimateMessages(messages)).toBeLessThanOrEqual(ROOM);
    const [result] = listOutputs(messages);
    expect(result?.output).toContain('the whole result has 90002 characters');
    expect(JSON.parse(result?.output ?? '')).toHaveProperty('beginning');
  });

  it('leaves room for a summary of earlier turns', async () => {
    const small = new ScriptedModel(say('Summary.'));
    const current = steps([`"${'x'.repeat(90_000)}"`]);
    const { messages } = await compactor(small).fit(draft(turns(10), { current }));
    expect(messages[0]).toMatchObject({ content: expect.stringContaining('Summary.') });
    expect(estimateMessages(messages)).toBeLessThanOrEqual(ROOM);
  });

  it('shortens the turn when it would leave no room for earlier turns', async () => {
    const small = new ScriptedModel(say('Summary.'));
    const current = steps([`"${'x'.repeat(7000)}"`]);
    const { messages } = await compactor(small).fit(draft(turns(4), { current }));
    expect(listOutputs(messages)[0]?.output.length).toBeLessThanOrEqual(5000);
    expect(estimateMessages(messages)).toBeLessThanOrEqual(ROOM);
  });

  it('never shortens the message of the user: earlier turns are dropped instead', async () => {
    const small = new ScriptedModel();
    const current: ModelMessage[] = [{ role: 'user', content: 'word '.repeat(3000) }];
    const { messages, warnings } = await compactor(small).fit(draft(turns(3), { current }));
    expect(messages.at(-1)).toBe(current[0]);
    expect(listCodes(warnings)).toEqual(['history_shortened']);
    expect(small.calls).toEqual([]);
  });
});

it('estimateMessages counts more tokens for other scripts, and files by type', () => {
  expect(estimateTokens('four')).toBe(1);
  expect(estimateTokens('日本語です')).toBeGreaterThan(estimateTokens('abcde'));
  const file = (mediaType: string, length: number) =>
    estimateMessages([
      { role: 'user', content: [{ type: 'file', mediaType, data: new Uint8Array(length) }] },
    ]);
  expect(file('image/png', 5_000_000)).toBeLessThan(3000);
  expect(file('text/plain', 40_000)).toBeGreaterThan(9000);
  expect(file('application/pdf', 1_000_000)).toBeGreaterThan(20_000);
});

it('SummaryCache limits its bytes: the least recently used summaries are evicted', () => {
  const cache = new SummaryCache(400);
  cache.set('a', '1');
  cache.set('b', '2');
  expect(cache.get('a')).toBe('1');
  cache.set('c', '3');
  expect(['a', 'b', 'c'].map((hash) => cache.get(hash))).toEqual(['1', undefined, '3']);
  cache.set('d', 'x'.repeat(1000));
  expect(cache.get('d')).toBeUndefined();
  expect(cache.bytes).toBeLessThanOrEqual(400);
});
