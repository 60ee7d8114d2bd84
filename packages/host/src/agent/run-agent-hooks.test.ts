import { OracleError } from '@sibyl/protocol';
import { describe, expect, it } from 'vitest';
import {
  joinText,
  listFinishedCalls,
  requestTo,
  runToEnd,
  tool,
} from '../../test/support/agent/agent-requests.js';
import { RecordingMeter } from '../../test/support/agent/recording-meter.js';
import { callTools, finish, ScriptedModel, say } from '../../test/support/agent/scripted-model.js';
import type { ModelCall, ModelPart } from '../models/model.js';
import type { AgentTool, ModelAnswer, ModelHooks } from './agent.js';

interface TestHooks {
  before?: (call: ModelCall) => Promise<ModelCall>;
  after?: (answer: ModelAnswer) => Promise<void>;
}

const createHooks = ({ before, after }: TestHooks): ModelHooks => ({
  begin: async (call) => ({
    call: (await before?.(call)) ?? call,
    finish: async (answer) => after?.(answer),
    fail: () => undefined,
  }),
});

describe('runAgent with tools that change during a turn', () => {
  it('uses the tools at the time of each model call', async () => {
    const late = tool('late', async () => 'late');
    let tools: readonly AgentTool[] = [];
    const load = tool('load', async () => {
      tools = [load, late];
    });
    tools = [load];
    const model = new ScriptedModel(
      callTools(['c1', 'load', {}], ['c2', 'late', {}]),
      callTools(['c3', 'late', {}]),
      say('ok'),
    );
    const { parts } = await runToEnd({ ...requestTo(model), tools: () => tools });
    expect(model.calls.map((call) => call.tools.map(({ name }) => name))).toEqual([
      ['load'],
      ['load', 'late'],
      ['load', 'late'],
    ]);
    const byId = new Map(listFinishedCalls(parts).map((end) => [end.id, end.status]));
    expect(byId).toEqual(
      new Map([
        ['c1', 'done'],
        ['c2', 'error'],
        ['c3', 'done'],
      ]),
    );
  });
});

describe('hooks of runAgent', () => {
  it('run around every model call and receive the ids of the tool calls', async () => {
    const answers: ModelAnswer[] = [];
    const ids: string[] = [];
    const hooks = createHooks({
      before: async (call) => ({ ...call, system: `${call.system} Really.` }),
      after: async (answer) => void answers.push(answer),
    });
    const act = tool('act', async (_, { id }) => ids.push(id));
    const model = new ScriptedModel(
      [
        { type: 'text', text: 'Well' },
        ...callTools(['same', 'act', {}], ['same', 'act', { n: 1 }]),
      ],
      say('ok'),
    );
    await runToEnd(requestTo(model, { hooks, tools: [act] }));
    expect(model.calls.map(({ system }) => system)).toEqual([
      'You are Sibyl. Really.',
      'You are Sibyl. Really.',
    ]);
    const use = { model: 'scripted/model', input: 10, output: 5, cached: 2 };
    const toolCalls = ids.map((id) => ({ id, name: 'act' }));
    expect(answers).toEqual([
      { text: 'Well', toolCalls, use },
      { text: 'ok', toolCalls: [], use },
    ]);
  });

  it('cannot add tools to the last call', async () => {
    const act = tool('act', async () => 1);
    const { name, description, inputSchema } = act;
    const before = async (call: ModelCall) => ({
      ...call,
      tools: [{ name, description, inputSchema }],
    });
    const model = new ScriptedModel(callTools(['c1', 'act', {}]), say('ok'));
    const limits = { steps: 1, contextTokens: 100_000 };
    await runToEnd(requestTo(model, { hooks: createHooks({ before }), tools: [act], limits }));
    expect(model.calls.map(({ tools }) => tools.length)).toEqual([1, 0]);
  });

  it.each(['before', 'after'] as const)('that throw %s a call end the turn', async (when) => {
    const refusal = new OracleError('forbidden');
    let runs = 0;
    const hooks = createHooks({ [when]: () => Promise.reject(refusal) });
    const model = new ScriptedModel(callTools(['c1', 'act', {}]), say('ok'));
    const act = tool('act', async () => ++runs);
    const { thrown } = await runToEnd(requestTo(model, { hooks, tools: [act] }));
    expect(thrown).toBe(refusal);
    expect([model.calls.length, runs]).toEqual([when === 'before' ? 0 : 1, 0]);
  });
});

describe('the meter of runAgent', () => {
  it('is checked before every call and can end the turn', async () => {
    const refusal = new OracleError('insufficient_credit');
    const meter = new RecordingMeter((uses) => {
      if (uses.length === 1) throw refusal;
    });
    const model = new ScriptedModel(
      [{ type: 'text', text: 'One' }, ...callTools(['c1', 'act', {}])],
      say('two'),
    );
    const tools = [tool('act', async () => 1)];
    const { parts, thrown } = await runToEnd(requestTo(model, { meter, tools }));
    expect(thrown).toBe(refusal);
    expect(joinText(parts)).toBe('One');
    expect(model.calls).toHaveLength(1);
  });

  it('is not awaited when the turn is aborted', async () => {
    const turn = new AbortController();
    const reason = new Error('aborted');
    const check = () => {
      turn.abort(reason);
      return new Promise<never>(() => undefined);
    };
    const meter = { check, add: () => undefined };
    const model = new ScriptedModel(say('never seen'));
    const { thrown } = await runToEnd(requestTo(model, { meter, signal: turn.signal }));
    expect([thrown, model.calls]).toEqual([reason, []]);
  });

  it('counts an aborted call by the output received', async () => {
    const turn = new AbortController();
    const meter = new RecordingMeter();
    const model = new ScriptedModel([{ type: 'text', text: 'word '.repeat(100) }, ...say('more')]);
    await runToEnd(requestTo(model, { meter, signal: turn.signal }), () => turn.abort());
    expect(meter.uses).toEqual([
      { model: 'scripted/model', input: expect.any(Number), output: 125, cached: 0 },
    ]);
    expect(meter.uses[0]?.input).toBeGreaterThan(0);
  });

  it('counts the input when the user stops before any output', async () => {
    const turn = new AbortController();
    const meter = new RecordingMeter();
    const model = new ScriptedModel(async function* (): AsyncGenerator<ModelPart> {
      turn.abort();
      yield* say('never seen');
    });
    await runToEnd(requestTo(model, { meter, signal: turn.signal }));
    expect(meter.uses).toMatchObject([{ output: 0 }]);
    expect(meter.uses[0]?.input).toBeGreaterThan(0);
  });

  it('counts nothing for a call that failed before any output', async () => {
    const meter = new RecordingMeter();
    const model = new ScriptedModel(() => {
      throw new Error('no connection');
    });
    await runToEnd(requestTo(model, { meter }));
    expect(meter.uses).toEqual([{ model: 'scripted/model', input: 0, output: 0, cached: 0 }]);
  });

  it('estimates usage that the model does not report', async () => {
    const meter = new RecordingMeter();
    const unreported = { ...finish(), usage: { input: 0, output: 0, cached: 0 } };
    const model = new ScriptedModel([{ type: 'text', text: 'four words are here' }, unreported]);
    await runToEnd(requestTo(model, { meter }));
    expect(meter.uses).toMatchObject([{ output: 5 }]);
  });
});
