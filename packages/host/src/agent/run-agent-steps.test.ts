import { describe, expect, it } from 'vitest';
import {
  filterParts,
  joinText,
  listFinishedCalls,
  requestTo,
  tool,
} from '../../test/support/agent/agent-requests.js';
import { MemoryJournal, runUntilCrash } from '../../test/support/agent/memory-journal.js';
import { findProviderErrors } from '../../test/support/agent/provider-rules.js';
import {
  callTools,
  finish,
  ScriptedModel,
  say,
  wantTool,
} from '../../test/support/agent/scripted-model.js';
import type { ModelCall, ModelMessage } from '../models/model.js';
import type { AgentTool } from './agent.js';
import type { AgentStep } from './steps.js';

const never = () => new Promise<never>(() => undefined);

const listTypes = (steps: readonly AgentStep[]) => steps.map(({ type }) => type);

function listResults(messages: readonly ModelMessage[]) {
  return messages.flatMap((message) => (message.role === 'tool' ? message.results : []));
}

/** Tools that count their runs. */
function countRuns() {
  const runs: string[] = [];
  const counted = (name: string, run: AgentTool['run'] = async () => name) =>
    tool(name, async (input, call) => {
      runs.push(name);
      return run(input, call);
    });
  return { runs, counted };
}

describe('runAgent with a journal', () => {
  it('commits what the model wants before a tool runs, and adds its result', async () => {
    const journal = new MemoryJournal();
    const seen: string[][] = [];
    const act = tool('act', async () => void seen.push(listTypes(journal.stored)));
    const model = new ScriptedModel(
      [
        { type: 'reasoning', text: 'Hm.' },
        { type: 'text', text: 'Wait.' },
        wantTool('c1', 'act', { n: 1 }),
        { ...finish('tool-calls'), providerData: { signature: 'xyz' } },
      ],
      say('Done.'),
    );
    await runUntilCrash(requestTo(model, { tools: [act] }), journal);
    journal.flush();
    expect(seen).toEqual([['model']]);
    const call = { id: 'c1', name: 'act', args: { n: 1 }, status: 'done', output: 'null' };
    expect(journal.stored).toEqual([
      {
        type: 'model',
        path: '',
        message: {
          role: 'assistant',
          text: 'Wait.',
          reasoning: 'Hm.',
          toolCalls: [{ id: 'c1', name: 'act', input: '{"n":1}' }],
          providerData: { signature: 'xyz' },
        },
      },
      { type: 'result', path: '', call },
    ]);
  });

  it('stores no step without tool calls', async () => {
    const journal = new MemoryJournal();
    await runUntilCrash(requestTo(new ScriptedModel(say('Hello.'))), journal);
    journal.flush();
    expect(journal.stored).toEqual([]);
  });

  it('runs no tool and shows none if the commit fails', async () => {
    const { runs, counted } = countRuns();
    const journal = new MemoryJournal();
    const lost = new Error('The run was lost.');
    journal.onEvent = (event) => {
      if (event === 'commit') throw lost;
    };
    const model = new ScriptedModel(callTools(['c1', 'act', {}]));
    const ended = await runUntilCrash(requestTo(model, { tools: [counted('act')] }), journal);
    expect(ended).toEqual({ parts: [], thrown: lost });
    expect(runs).toEqual([]);
  });

  it('does not wait for a commit after an abort', async () => {
    const { runs, counted } = countRuns();
    const turn = new AbortController();
    const reason = new Error('stopped');
    const journal = new MemoryJournal();
    journal.onEvent = (event) => {
      if (event !== 'commit') return undefined;
      turn.abort(reason);
      return never();
    };
    const model = new ScriptedModel(callTools(['c1', 'act', {}]));
    const request = requestTo(model, { tools: [counted('act')], signal: turn.signal });
    expect(await runUntilCrash(request, journal)).toEqual({ parts: [], thrown: reason });
    expect(runs).toEqual([]);
  });

  it('stores calls that do not run with the step', async () => {
    const journal = new MemoryJournal();
    const seen: string[][] = [];
    const act = tool('act', async () => void seen.push(listTypes(journal.stored)));
    const model = new ScriptedModel(
      callTools(['c1', 'act', {}], ['c2', 'unknown', {}], ['c3', 'act', '{broken']),
      say('Done.'),
    );
    await runUntilCrash(requestTo(model, { tools: [act] }), journal);
    expect(seen).toEqual([['model', 'result', 'result']]);
  });
});

describe('runAgent after a crash', () => {
  const script = () => [
    [{ type: 'text', text: 'One.' } as const, ...callTools(['c1', 'look', { n: 1 }])],
    callTools(['c2', 'look', { n: 2 }], ['c3', 'act', { n: 3 }]),
    say('Done.'),
  ];

  it('before anything was stored starts again', async () => {
    const { runs, counted } = countRuns();
    const journal = new MemoryJournal();
    journal.onEvent = (event) => {
      if (event === 'commit') journal.crash();
    };
    const tools = [counted('look'), counted('act')];
    expect(await runUntilCrash(requestTo(new ScriptedModel(...script()), { tools }), journal)).toBe(
      undefined,
    );
    expect(runs).toEqual([]);
    const again = await runUntilCrash(
      requestTo(new ScriptedModel(...script()), { tools }),
      journal.next(),
    );
    expect(runs).toEqual(['look', 'look', 'act']);
    expect(joinText(again?.parts ?? [])).toBe('One.\n\nDone.');
  });

  it('never runs a call whose outcome is unknown again, and reports it to the model', async () => {
    const { runs, counted } = countRuns();
    const journal = new MemoryJournal();
    journal.onEvent = (event) => {
      if (event === 'stored') journal.crash();
    };
    const tools = [counted('look'), counted('act')];
    await runUntilCrash(requestTo(new ScriptedModel(...script()), { tools }), journal);
    const model = new ScriptedModel(...script().slice(1));
    const continued = journal.next();
    const again = await runUntilCrash(requestTo(model, { tools }), continued);
    expect(runs).toEqual(['look', 'act']);
    const [lost] = listFinishedCalls(again?.parts ?? []);
    expect(lost).toMatchObject({ id: 'c1', args: { n: 1 }, status: 'error' });
    expect(lost?.output).toContain('outcome is unknown');
    const started = filterParts(again?.parts ?? [], 'tool-start').map(({ id }) => id);
    expect(started).toEqual(['c2', 'c3']);
    expect(listResults(model.calls[0]?.messages ?? [])).toMatchObject([
      { id: 'c1', isError: true },
    ]);
    continued.flush();
    expect(listTypes(continued.stored).filter((type) => type === 'result')).toHaveLength(3);
  });

  it('keeps the results that were stored, in the order of the calls, and shows them once', async () => {
    const { runs, counted } = countRuns();
    const journal = new MemoryJournal();
    const act = counted('act', async () => {
      // The first call has ended and is stored, the second is still running.
      await expect.poll(() => runs).toContain('look');
      setImmediate(() => {
        journal.flush();
        journal.crash();
      });
      return never();
    });
    const tools = [act, counted('look')];
    const calls = callTools(['c1', 'act', {}], ['c2', 'look', {}]);
    await runUntilCrash(requestTo(new ScriptedModel(calls), { tools }), journal);
    const model = new ScriptedModel(say('Done.'));
    const again = await runUntilCrash(requestTo(model, { tools }), journal.next());
    expect(runs).toEqual(['act', 'look']);
    expect(listFinishedCalls(again?.parts ?? []).map(({ id }) => id)).toEqual(['c1']);
    expect(listResults(model.lastMessages)).toMatchObject([
      { id: 'c1', isError: true },
      { id: 'c2', isError: false, output: '"look"' },
    ]);
  });

  it('sends the same conversation as without a crash, with the data of the provider', async () => {
    const steps = [
      [
        { type: 'text', text: 'Wait.' } as const,
        { type: 'reasoning', text: 'Hm.' } as const,
        wantTool('c1', 'look', { n: 1 }),
        { ...finish('tool-calls'), providerData: { signature: ['xyz', { n: 1 }] } },
      ],
      say('Done.'),
    ];
    const tools = [tool('look', async () => 'seen')];
    const whole = new ScriptedModel(...steps);
    const first = new MemoryJournal();
    await runUntilCrash(requestTo(whole, { tools }), first);
    first.flush();
    const model = new ScriptedModel(say('Done.'));
    await runUntilCrash(requestTo(model, { tools }), first.next());
    expect(model.lastMessages).toEqual(whole.lastMessages);
    expect(findProviderErrors(model.lastMessages)).toEqual([]);
  });

  it('begins a new paragraph after the text of earlier attempts', async () => {
    const journal = new MemoryJournal();
    const tools = [tool('look', async () => 1)];
    await runUntilCrash(requestTo(new ScriptedModel(...script().slice(0, 1)), { tools }), journal);
    journal.flush();
    const again = await runUntilCrash(
      requestTo(new ScriptedModel(say('Done.')), { tools }),
      journal.next(),
    );
    expect(joinText(again?.parts ?? [])).toBe('\n\nDone.');
    const silent = await runUntilCrash(
      requestTo(new ScriptedModel([finish()]), { tools }),
      journal.next(),
    );
    expect(filterParts(silent?.parts ?? [], 'warning')).toEqual([]);
  });

  it('does not repeat the ids of earlier calls', async () => {
    const journal = new MemoryJournal();
    const tools = [tool('look', async () => 1)];
    await runUntilCrash(
      requestTo(new ScriptedModel(callTools(['c1', 'look', {}])), { tools }),
      journal,
    );
    journal.flush();
    const model = new ScriptedModel(callTools(['c1', 'look', { n: 2 }]), say('Done.'));
    await runUntilCrash(requestTo(model, { tools }), journal.next());
    expect(findProviderErrors(model.lastMessages)).toEqual([]);
  });

  it('stops at an abort before it continues', async () => {
    const journal = new MemoryJournal();
    const tools = [tool('look', async () => 1)];
    await runUntilCrash(
      requestTo(new ScriptedModel(callTools(['c1', 'look', {}])), { tools }),
      journal,
    );
    const reason = new Error('stopped');
    const request = requestTo(new ScriptedModel(), { tools, signal: AbortSignal.abort(reason) });
    expect(await runUntilCrash(request, journal.next())).toEqual({ parts: [], thrown: reason });
  });
});

describe('the limits of runAgent across attempts', () => {
  /** Calls a tool as long as it is offered one. */
  const eager = (input: (step: number) => unknown) => {
    const step = ({ tools, messages }: ModelCall) => {
      const n = messages.filter(({ role }) => role === 'assistant').length;
      return tools.length > 0 ? callTools([`c${n}`, 'look', input(n)]) : say('Enough.');
    };
    return new ScriptedModel(...Array.from({ length: 30 }, () => step));
  };

  /** Crashes at every second step until the agent ends. */
  async function crashOften(input: (step: number) => unknown, maxSteps: number) {
    const { runs, counted } = countRuns();
    const limits = { steps: maxSteps, contextTokens: 100_000 };
    const look = counted('look');
    let journal = new MemoryJournal();
    for (let attempts = 1; ; attempts++) {
      let commits = 0;
      const current = journal;
      current.onEvent = (event) => {
        if (event === 'commit') commits += 1;
        if (event === 'commit' && commits === 2) {
          current.flush();
          current.crash();
        }
      };
      const model = eager(input);
      const ended = await runUntilCrash(requestTo(model, { tools: [look], limits }), current);
      const steps = current.stored.filter(({ type }) => type === 'model').length;
      if (ended) return { runs, attempts, steps, ...ended };
      journal = current.next();
    }
  }

  it.each([
    ['run', (n: number) => ({ n })],
    ['cannot be parsed', (n: number) => `{broken ${n}`],
  ])('count all steps with calls that differ and %s', async (_, input) => {
    const { parts, runs, attempts, steps } = await crashOften(input, 7);
    expect(attempts).toBeGreaterThan(2);
    expect(runs.length).toBeLessThanOrEqual(7);
    expect(steps).toBe(7);
    expect(filterParts(parts, 'warning')).toMatchObject([{ code: 'step_limit' }]);
    expect(joinText(parts)).toBe('Enough.');
  });

  it.each([
    ['the same input', () => ({ same: true })],
    ['input that cannot be parsed', () => '{broken'],
  ])('count repeated calls with %s', async (_, input) => {
    const { parts, runs, attempts, steps } = await crashOften(input, 20);
    expect(attempts).toBeGreaterThan(2);
    expect(runs.length).toBeLessThanOrEqual(3);
    // Three that may run, and three that are refused.
    expect(steps).toBe(6);
    expect(filterParts(parts, 'warning')).toMatchObject([{ code: 'repetition' }]);
  });
});
