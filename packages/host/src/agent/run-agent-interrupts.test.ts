import { describe, expect, it } from 'vitest';
import {
  agentTool,
  filterParts,
  joinText,
  listFinishedCalls,
  requestTo,
  runToEnd,
  tool,
} from '../../test/support/agent/agent-requests.js';
import { answered, MemoryJournal, runUntilCrash } from '../../test/support/agent/memory-journal.js';
import {
  callTools,
  ScriptedModel,
  type ScriptedStep,
  say,
} from '../../test/support/agent/scripted-model.js';
import type { AgentTool } from './agent.js';
import { type InterruptRequest, PausedError } from './steps.js';

const CONFIRM: InterruptRequest = { kind: 'confirmation', schema: { type: 'boolean' } };
const never = () => new Promise<never>(() => undefined);

const confirm = (data: string): InterruptRequest => ({ ...CONFIRM, data });

/** Runs one attempt with a model that says these steps. */
async function attempt(
  journal: MemoryJournal,
  tools: readonly AgentTool[],
  ...script: ScriptedStep[]
) {
  const model = new ScriptedModel(...script);
  const ended = await runUntilCrash(requestTo(model, { tools }), journal);
  const { parts = [], thrown } = ended ?? {};
  const interrupts = thrown instanceof PausedError ? thrown.interrupts : [];
  return { parts, thrown, interrupts, model };
}

const listKeys = ({ interrupts }: Awaited<ReturnType<typeof attempt>>) =>
  interrupts.map(({ key }) => key);

describe('interrupt', () => {
  const pay = tool('pay', async ({ sum }, call) => ({ paid: sum, ok: call.interrupt(CONFIRM) }));

  it('pauses the turn once all other calls have ended, and the tool runs again with the answer', async () => {
    const journal = new MemoryJournal();
    const looked = Promise.withResolvers<void>();
    const runs: string[] = [];
    const look = tool('look', async () => {
      runs.push('look');
      await looked.promise;
      return 'seen';
    });
    const asking = tool('pay', async ({ sum }, call) => {
      runs.push('pay');
      queueMicrotask(looked.resolve);
      return { paid: sum, ok: call.interrupt(confirm('Pay 5?')) };
    });
    const calls = callTools(['c1', 'pay', { sum: 5 }], ['c2', 'look', {}]);
    const paused = await attempt(journal, [asking, look], calls);
    expect(paused.interrupts).toEqual([
      { ...confirm('Pay 5?'), callId: 'c1', path: '', key: 'c1' },
    ]);
    expect(listFinishedCalls(paused.parts).map(({ id }) => id)).toEqual(['c2']);
    const types = journal.stored.map(({ type }) => type);
    expect(types).toEqual(['model', 'interrupt', 'result']);

    const next = journal.next({ c1: answered(true) });
    const { parts, model } = await attempt(next, [asking, look], say('Paid.'));
    expect(runs).toEqual(['pay', 'look', 'pay']);
    expect(filterParts(parts, 'tool-start').map(({ id }) => id)).toEqual(['c1']);
    expect(listFinishedCalls(parts)).toMatchObject([{ id: 'c1', output: '{"paid":5,"ok":true}' }]);
    expect(model.lastMessages.at(-1)).toMatchObject({
      results: [
        { id: 'c1', output: '{"paid":5,"ok":true}', isError: false },
        { id: 'c2', output: '"seen"' },
      ],
    });
    expect(joinText(parts)).toBe('Paid.');
  });

  it('of two calls pauses both; each continues with its own answer', async () => {
    const journal = new MemoryJournal();
    const calls = callTools(['c1', 'pay', { sum: 1 }], ['c2', 'pay', { sum: 2 }]);
    const paused = await attempt(journal, [pay], calls);
    expect(listKeys(paused)).toEqual(['c1', 'c2']);
    const next = journal.next({ c1: answered(true), c2: answered(false) });
    const { model } = await attempt(next, [pay], say('Done.'));
    expect(model.lastMessages.at(-1)).toMatchObject({
      results: [{ output: '{"paid":1,"ok":true}' }, { output: '{"paid":2,"ok":false}' }],
    });
  });

  it('still waits for the second of two answers, without running that tool', async () => {
    const journal = new MemoryJournal();
    const sums: unknown[] = [];
    const asking = tool('pay', async ({ sum }, call) => {
      sums.push(sum);
      return call.interrupt(CONFIRM);
    });
    const calls = callTools(['c1', 'pay', { sum: 1 }], ['c2', 'pay', { sum: 2 }]);
    await attempt(journal, [asking], calls);
    const half = journal.next({ c1: answered(true) });
    const paused = await attempt(half, [asking]);
    expect(listKeys(paused)).toEqual(['c2']);
    expect(listFinishedCalls(paused.parts).map(({ id }) => id)).toEqual(['c1']);
    expect(half.stored.map(({ type }) => type).at(-1)).toBe('result');
    await attempt(half.next({ c2: answered(true) }), [asking], say('Done.'));
    expect(sums).toEqual([1, 2, 1, 2]);
  });

  it('twice in one call pauses twice; the keys are numbered', async () => {
    const journal = new MemoryJournal();
    const effects: unknown[] = [];
    const twice = tool('twice', async (_, call) => {
      const name = call.interrupt(confirm('name?'));
      const age = call.interrupt(confirm('age?'));
      effects.push([name, age]);
      return 'ok';
    });
    expect(listKeys(await attempt(journal, [twice], callTools(['c1', 'twice', {}])))).toEqual([
      'c1',
    ]);
    const second = journal.next({ c1: answered('Ada') });
    expect(listKeys(await attempt(second, [twice]))).toEqual(['c1#1']);
    const third = second.next({ 'c1#1': answered(36) });
    const { parts } = await attempt(third, [twice], say('Done.'));
    expect(effects).toEqual([['Ada', 36]]);
    expect(listFinishedCalls(parts)).toMatchObject([{ status: 'done' }]);
  });

  it('asked twice in the same words needs two answers', async () => {
    const journal = new MemoryJournal();
    const twice = tool('twice', async (_, call) => [
      call.interrupt(CONFIRM),
      call.interrupt(CONFIRM),
    ]);
    await attempt(journal, [twice], callTools(['c1', 'twice', {}]));
    const second = journal.next({ c1: answered(1) });
    expect(listKeys(await attempt(second, [twice]))).toEqual(['c1#1']);
    const { parts } = await attempt(second.next({ 'c1#1': answered(2) }), [twice], say('Done.'));
    expect(listFinishedCalls(parts)).toMatchObject([{ output: '[1,2]' }]);
  });

  it('does not take the answer to another question', async () => {
    const journal = new MemoryJournal();
    let price = 5;
    const buy = tool('buy', async (_, call) => call.interrupt(confirm(`Pay ${price}?`)));
    await attempt(journal, [buy], callTools(['c1', 'buy', {}]));
    price = 500;
    const second = journal.next({ c1: answered(true) });
    const asked = await attempt(second, [buy]);
    expect(asked.interrupts).toMatchObject([{ key: 'c1#1', data: 'Pay 500?' }]);
    const { parts } = await attempt(second.next({ 'c1#1': answered(false) }), [buy], say('Done.'));
    expect(listFinishedCalls(parts)).toMatchObject([{ output: 'false' }]);
  });

  it('asked again and again with other data fails the call in the end', async () => {
    let journal = new MemoryJournal();
    let asked = 0;
    const restless = tool('restless', async (_, call) => call.interrupt(confirm(`${asked++}`)));
    let last = await attempt(journal, [restless], callTools(['c1', 'restless', {}]));
    while (last.interrupts.length > 0) {
      expect(asked).toBeLessThan(50);
      journal = journal.next({ [listKeys(last)[0] ?? '']: answered(true) });
      last = await attempt(journal, [restless], say('Well.'));
    }
    expect(last.thrown).toBeUndefined();
    expect(listFinishedCalls(last.parts)[0]?.output).toContain('has asked 20 questions');
  });

  it.each([
    ['expired', 'The request expired without an answer.'],
    ['cancelled', 'The user sent another message instead of answering.'],
  ] as const)('that was %s fails the call with a text for the model', async (status, text) => {
    const journal = new MemoryJournal();
    await attempt(journal, [pay], callTools(['c1', 'pay', { sum: 5 }]));
    const { parts, model } = await attempt(journal.next({ c1: { status } }), [pay], say('Well.'));
    expect(listFinishedCalls(parts)).toMatchObject([{ status: 'error' }]);
    const output = JSON.stringify({ error: text });
    expect(model.lastMessages.at(-1)).toMatchObject({ results: [{ output, isError: true }] });
    expect(joinText(parts)).toBe('Well.');
  });

  it.each([
    [
      'catches it and returns',
      async (ask: () => unknown) => {
        try {
          return ask();
        } catch {
          return 'swallowed';
        }
      },
    ],
    [
      'catches it and throws another error',
      async (ask: () => unknown) => {
        try {
          return ask();
        } catch {
          throw new Error('another');
        }
      },
    ],
    [
      'catches it and hangs',
      async (ask: () => unknown) => {
        try {
          return ask();
        } catch {
          return never();
        }
      },
    ],
    [
      'asks again',
      async (ask: () => unknown) => {
        try {
          return ask();
        } catch {
          return ask();
        }
      },
    ],
  ])('pauses a tool that %s', async (_, handle) => {
    const journal = new MemoryJournal();
    const stubborn = tool('stubborn', (_input, call) => handle(() => call.interrupt(CONFIRM)), {
      timeoutMs: 20,
    });
    const paused = await attempt(journal, [stubborn], callTools(['c1', 'stubborn', {}]));
    expect(listKeys(paused)).toEqual(['c1']);
    expect(listFinishedCalls(paused.parts)).toEqual([]);
    const { parts } = await attempt(
      journal.next({ c1: answered('yes') }),
      [stubborn],
      say('Done.'),
    );
    expect(listFinishedCalls(parts)).toMatchObject([{ output: '"yes"' }]);
  });

  it('fails the call without a journal', async () => {
    const model = new ScriptedModel(callTools(['c1', 'pay', {}]), say('ok'));
    const { parts, thrown } = await runToEnd(requestTo(model, { tools: [pay] }));
    expect(thrown).toBeUndefined();
    expect(listFinishedCalls(parts)[0]?.output).toContain('nothing can be asked here');
  });

  it('does not pause if the journal cannot store it', async () => {
    const journal = new MemoryJournal();
    const lost = new Error('The run was lost.');
    let commits = 0;
    journal.onEvent = (event) => {
      if (event === 'commit' && ++commits === 2) throw lost;
    };
    const { thrown } = await attempt(journal, [pay], callTools(['c1', 'pay', {}]));
    expect(thrown).toBe(lost);
  });

  it('waits again after a crash between the question and the pause', async () => {
    const journal = new MemoryJournal();
    const asking = tool('pay', async (_, call) => {
      setImmediate(() => {
        journal.flush();
        journal.crash();
      });
      return call.interrupt(CONFIRM);
    });
    const slow = tool('slow', never);
    await attempt(journal, [asking, slow], callTools(['c1', 'pay', {}], ['c2', 'slow', {}]));
    const second = journal.next();
    const paused = await attempt(second, [asking, slow]);
    expect(listKeys(paused)).toEqual(['c1']);
    expect(listFinishedCalls(paused.parts)).toMatchObject([{ id: 'c2', status: 'error' }]);
  });

  it('runs an answered call at most once more: a crash in it loses its outcome', async () => {
    const journal = new MemoryJournal();
    await attempt(journal, [pay], callTools(['c1', 'pay', {}]));
    const second = journal.next({ c1: answered(true) });
    let effects = 0;
    const crashing = tool('pay', async (_, call) => {
      call.interrupt(CONFIRM);
      effects += 1;
      second.crash();
      return never();
    });
    await attempt(second, [crashing]);
    const { parts, thrown } = await attempt(second.next(), [crashing], say('Hm.'));
    expect(thrown).toBeUndefined();
    expect(effects).toBe(1);
    expect(listFinishedCalls(parts)[0]?.output).toContain('outcome is unknown');
    expect(filterParts(parts, 'tool-start')).toEqual([]);
  });

  it('runs an answered call if the host crashed before it could', async () => {
    const journal = new MemoryJournal();
    await attempt(journal, [pay], callTools(['c1', 'pay', { sum: 1 }]));
    const second = journal.next({ c1: answered(true) });
    second.onEvent = (event) => {
      if (event === 'commit') second.crash();
    };
    await attempt(second, [pay]);
    const { parts } = await attempt(second.next(), [pay], say('Done.'));
    expect(listFinishedCalls(parts)).toMatchObject([{ status: 'done' }]);
  });

  it('reports to the model that the tool of an answered call is gone', async () => {
    const journal = new MemoryJournal();
    await attempt(journal, [pay], callTools(['c1', 'pay', {}]));
    const { parts } = await attempt(journal.next({ c1: answered(true) }), [], say('Hm.'));
    expect(listFinishedCalls(parts)[0]?.output).toContain('There is no tool named pay');
  });

  it('ends with the turn when that is aborted before the other calls end', async () => {
    const journal = new MemoryJournal();
    const turn = new AbortController();
    const reason = new Error('stopped');
    const slow = tool('slow', never);
    const model = new ScriptedModel(callTools(['c1', 'pay', {}], ['c2', 'slow', {}]));
    const asking = tool('pay', async (_, call) => {
      setImmediate(() => turn.abort(reason));
      return call.interrupt(CONFIRM);
    });
    const tools = [asking, slow];
    const request = requestTo(model, { tools, journal, signal: turn.signal });
    const { parts, thrown } = await runToEnd(request);
    expect(thrown).toBe(reason);
    const ended = listFinishedCalls(parts).map(({ id, status }) => [id, status]);
    expect(ended.sort()).toEqual([
      ['c1', 'error'],
      ['c2', 'error'],
    ]);
    journal.flush();
    // What an aborted tool did is unknown, and nothing is stored about it.
    expect(journal.stored.map(({ type }) => type)).toEqual(['model', 'interrupt']);
  });
});

describe('a sub-agent that pauses', () => {
  /** A main agent that calls a sub-agent, which pays after a confirmation. */
  function createAgents() {
    const effects: string[] = [];
    const look = tool('look', async () => {
      effects.push('look');
      return 'seen';
    });
    const pay = tool('pay', async ({ to }, call) => {
      call.interrupt(confirm(`Pay ${to}?`));
      effects.push(`pay ${to}`);
      return 'paid';
    });
    const clerk = (...script: ScriptedStep[]) => {
      const model = new ScriptedModel(...script);
      return agentTool('clerk', () => requestTo(model, { tools: [look, pay] }));
    };
    return { effects, look, clerk };
  }

  it('pauses the turn with the path of its call, and every level continues', async () => {
    const { effects, look, clerk } = createAgents();
    const journal = new MemoryJournal();
    const main = callTools(['m1', 'clerk', {}], ['m2', 'look', {}]);
    const first = clerk(
      callTools(['s1', 'look', {}]),
      callTools(['s2', 'pay', { to: 'Ada' }], ['s3', 'pay', { to: 'Bob' }]),
    );
    const paused = await attempt(journal, [first, look], main);
    expect(paused.interrupts).toMatchObject([
      { callId: 's2', path: 'm1', key: 'm1/s2', data: 'Pay Ada?' },
      { callId: 's3', path: 'm1', key: 'm1/s3', data: 'Pay Bob?' },
    ]);
    expect(listFinishedCalls(paused.parts).map(({ id }) => id)).toEqual(['m2']);
    expect(effects.sort()).toEqual(['look', 'look']);

    const second = journal.next({ 'm1/s2': answered(true), 'm1/s3': answered(true) });
    const again = clerk(say('All paid.'));
    const { parts, model } = await attempt(second, [again, look], say('Done.'));
    expect(effects).toEqual(['look', 'look', 'pay Ada', 'pay Bob']);
    expect(filterParts(parts, 'tool-start').map(({ id }) => id)).toEqual(['m1']);
    expect(model.lastMessages.at(-1)).toMatchObject({
      results: [
        { id: 'm1', output: '"All paid."' },
        { id: 'm2', output: '"seen"' },
      ],
    });
  });

  it('continues after a crash without repeating what it did', async () => {
    const { effects, look, clerk } = createAgents();
    const journal = new MemoryJournal();
    const dying = agentTool('clerk', () =>
      requestTo(
        new ScriptedModel(callTools(['s1', 'look', {}]), () => {
          journal.flush();
          journal.crash();
          return [];
        }),
        { tools: [look] },
      ),
    );
    await attempt(journal, [dying], callTools(['m1', 'clerk', {}]));
    const { parts } = await attempt(journal.next(), [clerk(say('Seen.'))], say('Done.'));
    expect(effects).toEqual(['look']);
    expect(listFinishedCalls(parts)).toMatchObject([{ id: 'm1', output: '"Seen."' }]);
  });

  it('starts again if it had not run any tool', async () => {
    const { clerk } = createAgents();
    const journal = new MemoryJournal();
    const dying = agentTool('clerk', () => {
      journal.crash();
      return requestTo(new ScriptedModel());
    });
    await attempt(journal, [dying], callTools(['m1', 'clerk', {}]));
    const { parts } = await attempt(journal.next(), [clerk(say('Here.'))], say('Done.'));
    expect(listFinishedCalls(parts)).toMatchObject([{ id: 'm1', output: '"Here."' }]);
  });

  it('of a sub-agent pauses all levels', async () => {
    const { effects, clerk } = createAgents();
    const boss = (inner: AgentTool, ...script: ScriptedStep[]) =>
      agentTool('boss', () => requestTo(new ScriptedModel(...script), { tools: [inner] }));
    const journal = new MemoryJournal();
    const inner = clerk(callTools(['s1', 'pay', { to: 'Ada' }]));
    const outer = boss(inner, callTools(['b1', 'clerk', {}]));
    const paused = await attempt(journal, [outer], callTools(['m1', 'boss', {}]));
    expect(listKeys(paused)).toEqual(['m1/b1/s1']);
    const second = journal.next({ 'm1/b1/s1': answered(true) });
    const outerAgain = boss(clerk(say('Paid.')), say('It is paid.'));
    const { parts } = await attempt(second, [outerAgain], say('Done.'));
    expect(effects).toEqual(['pay Ada']);
    expect(listFinishedCalls(parts)).toMatchObject([{ id: 'm1', output: '"It is paid."' }]);
  });

  it('counts its steps for the whole turn after a pause', async () => {
    const { look, clerk } = createAgents();
    const journal = new MemoryJournal();
    const first = clerk(callTools(['s1', 'look', {}]), callTools(['s2', 'pay', { to: 'Ada' }]));
    await attempt(journal, [first, look], callTools(['m1', 'clerk', {}]));
    const next = journal.next({ 'm1/s2': answered(true) });
    const model = new ScriptedModel(say('Enough.'));
    const limits = { steps: 4, contextTokens: 100_000 };
    const request = requestTo(model, { journal: next, limits });
    const clerkModel = new ScriptedModel(callTools(['s3', 'look', {}]), say('Stopped.'));
    const again = agentTool('clerk', () => ({
      ...requestTo(clerkModel, { tools: [look] }),
      limits: request.limits,
    }));
    await runToEnd({ ...request, tools: () => [again] });
    // Three steps were taken before the pause: one is left, and then it has to answer.
    expect(clerkModel.calls.map(({ tools }) => tools.length)).toEqual([1, 0]);
    expect(model.calls.map(({ tools }) => tools.length)).toEqual([0]);
  });

  it('counts its answer as a step in later attempts', async () => {
    const { look, clerk } = createAgents();
    const journal = new MemoryJournal();
    const ended = clerk(callTools(['s1', 'look', {}]), say('Seen.'));
    await attempt(journal, [ended, look], callTools(['m1', 'clerk', {}]));
    journal.flush();
    // The main agent has made one call, the sub-agent two.
    for (const [steps, tools] of [
      [4, 1],
      [3, 0],
    ] as const) {
      const model = new ScriptedModel(say('Done.'));
      const limits = { steps, contextTokens: 100_000 };
      await runToEnd(requestTo(model, { journal: journal.next(), limits, tools: [look] }));
      expect(model.calls.map((call) => call.tools.length)).toEqual([tools]);
    }
  });
});
