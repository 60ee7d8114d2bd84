import { getEventListeners } from 'node:events';
import { expect, it } from 'vitest';
import {
  filterParts,
  joinText,
  listFinishedCalls,
  requestTo,
  runToEnd,
  tool,
} from '../../test/support/agent/agent-requests.js';
import {
  callTools,
  ScriptedModel,
  say,
  wantTool,
} from '../../test/support/agent/scripted-model.js';
import type { ModelCall, ModelPart } from '../models/model.js';
import type { AgentPart } from './agent.js';
import { runAgent } from './run-agent.js';

const reason = new Error('The user stopped the turn.');
const never = () => new Promise<never>(() => undefined);

it('runAgent does not call the model when the turn is already aborted', async () => {
  const asked: ModelCall[] = [];
  const stream = (call: ModelCall) => {
    asked.push(call);
    return say('Hello').values() as unknown as AsyncIterable<ModelPart>;
  };
  const model = { ...new ScriptedModel(), tools: true, stream };
  const { parts, thrown } = await runToEnd(requestTo(model, { signal: AbortSignal.abort(reason) }));
  expect(thrown).toBe(reason);
  expect(parts).toEqual([]);
  expect(asked).toEqual([]);
});

it('runAgent ends between two tokens', async () => {
  const turn = new AbortController();
  const model = new ScriptedModel([
    { type: 'text', text: 'one' },
    { type: 'text', text: 'two' },
    ...say('three'),
  ]);
  const { parts, thrown } = await runToEnd(requestTo(model, { signal: turn.signal }), (part) => {
    if (part.type === 'text' && part.text === 'two') turn.abort(reason);
  });
  expect(thrown).toBe(reason);
  expect(joinText(parts)).toBe('onetwo');
});

it('runAgent ends while the model is silent, even if it ignores the signal', async () => {
  const turn = new AbortController();
  const model = new ScriptedModel(async function* (): AsyncGenerator<ModelPart> {
    yield { type: 'text', text: 'one' };
    setImmediate(() => turn.abort(reason));
    await never();
  });
  const { parts, thrown } = await runToEnd(requestTo(model, { signal: turn.signal }));
  expect(thrown).toBe(reason);
  expect(joinText(parts)).toBe('one');
});

it('runAgent throws its own reason when the model reports another after an abort', async () => {
  const turn = new AbortController();
  const model = new ScriptedModel(async function* ({ signal }): AsyncGenerator<ModelPart> {
    yield { type: 'text', text: 'one' };
    const aborted = Promise.withResolvers<never>();
    signal.addEventListener('abort', () => aborted.reject(new Error('socket closed')));
    setImmediate(() => turn.abort(reason));
    await aborted.promise;
  });
  expect((await runToEnd(requestTo(model, { signal: turn.signal }))).thrown).toBe(reason);
});

it('runAgent closes the stream of the model', async () => {
  const turn = new AbortController();
  const closed = Promise.withResolvers<void>();
  const model = new ScriptedModel();
  const stream = async function* (): AsyncGenerator<ModelPart> {
    try {
      yield { type: 'text', text: 'one' };
      yield { type: 'text', text: 'two' };
    } finally {
      closed.resolve();
    }
  };
  const request = requestTo(
    { ...model, id: 'x', facts: model.facts, stream },
    { signal: turn.signal },
  );
  const { thrown } = await runToEnd(request, () => turn.abort(reason));
  expect(thrown).toBe(reason);
  await closed.promise;
});

it('runAgent starts no tool of an aborted stream', async () => {
  const turn = new AbortController();
  let runs = 0;
  const model = new ScriptedModel(function* (): Generator<ModelPart> {
    yield wantTool('c1', 'act', {});
    turn.abort(reason);
    yield* say('late');
  });
  const act = tool('act', async () => ++runs);
  const { parts, thrown } = await runToEnd(requestTo(model, { tools: [act], signal: turn.signal }));
  expect(thrown).toBe(reason);
  expect(parts).toEqual([]);
  expect(runs).toBe(0);
});

it('runAgent ends an announced call without running it', async () => {
  const turn = new AbortController();
  let runs = 0;
  const act = tool('act', async () => ++runs);
  const model = new ScriptedModel(callTools(['c1', 'act', {}], ['c2', 'act', {}]), say('late'));
  const request = requestTo(model, { tools: [act], signal: turn.signal });
  const { parts, thrown } = await runToEnd(request, (part) => {
    if (part.type === 'tool-start') turn.abort(reason);
  });
  expect(thrown).toBe(reason);
  expect(filterParts(parts, 'tool-start').map(({ id }) => id)).toEqual(['c1']);
  expect(listFinishedCalls(parts)).toMatchObject([{ id: 'c1', status: 'error' }]);
  expect(listFinishedCalls(parts)[0]?.output).toContain('aborted');
  expect(runs).toBe(0);
  expect(model.calls).toHaveLength(1);
});

it('runAgent ends every running call, aborts the tools, and does not wait for them', async () => {
  const turn = new AbortController();
  const reasons: unknown[] = [];
  const listening = tool('listening', (_, { signal }) => {
    const { promise, reject } = Promise.withResolvers<never>();
    signal.addEventListener('abort', () => {
      reasons.push(signal.reason);
      reject(signal.reason);
    });
    return promise;
  });
  const deaf = tool('deaf', () => {
    setImmediate(() => turn.abort(reason));
    return never();
  });
  const quick = tool('quick', async () => 1);
  const calls = callTools(['c1', 'listening', {}], ['c2', 'deaf', {}], ['c3', 'quick', {}]);
  const model = new ScriptedModel(calls, say('late'));
  const { parts, thrown } = await runToEnd(
    requestTo(model, { tools: [listening, deaf, quick], signal: turn.signal }),
  );
  expect(thrown).toBe(reason);
  expect(reasons).toEqual([reason]);
  const ends = Object.fromEntries(listFinishedCalls(parts).map((call) => [call.name, call]));
  expect(ends.quick).toMatchObject({ status: 'done', output: '1' });
  expect(ends.deaf).toMatchObject({ status: 'error' });
  expect(ends.listening?.output).toContain('aborted');
  expect(model.calls).toHaveLength(1);
});

it('runAgent ends after the tools, before the next model call', async () => {
  const turn = new AbortController();
  const model = new ScriptedModel(callTools(['c1', 'act', {}]), say('late'));
  const limits = { steps: 1, contextTokens: 10_000 };
  const tools = [tool('act', async () => 1)];
  const request = requestTo(model, { tools, limits, signal: turn.signal });
  const { parts, thrown } = await runToEnd(request, (part) => {
    if (part.type === 'tool-end') turn.abort(reason);
  });
  expect(thrown).toBe(reason);
  expect(parts.at(-1)).toMatchObject({ type: 'tool-end', call: { status: 'done' } });
  expect(model.calls).toHaveLength(1);
});

it('runAgent ends while older turns are summarized', async () => {
  const turn = new AbortController();
  const smallModel = new ScriptedModel(async function* (): AsyncGenerator<ModelPart> {
    setImmediate(() => turn.abort(reason));
    await never();
  });
  const model = new ScriptedModel(say('late'));
  const { parts, thrown } = await runToEnd(
    requestTo(model, {
      smallModel,
      messages: [
        { role: 'user', content: 'long '.repeat(2000) },
        { role: 'assistant', text: 'yes' },
        { role: 'user', content: 'And now?' },
      ],
      limits: { steps: 5, contextTokens: 1000 },
      signal: turn.signal,
    }),
  );
  expect(thrown).toBe(reason);
  expect(parts).toEqual([]);
  expect(model.calls).toEqual([]);
});

it('runAgent aborts the tools when the reader stops', async () => {
  const stopped = Promise.withResolvers<void>();
  const slow = tool('slow', (_, { signal }) => {
    signal.addEventListener('abort', () => stopped.resolve());
    return never();
  });
  const quick = tool('quick', async () => 1);
  const model = new ScriptedModel(callTools(['c1', 'slow', {}], ['c2', 'quick', {}]));
  for await (const part of runAgent(requestTo(model, { tools: [slow, quick] }))) {
    if (part.type === 'tool-end') break;
  }
  await stopped.promise;
});

it('runAgent closes the stream of the model when the reader stops', async () => {
  const closed = Promise.withResolvers<void>();
  const model = new ScriptedModel(async function* (): AsyncGenerator<ModelPart> {
    try {
      yield { type: 'text', text: 'one' };
      yield { type: 'text', text: 'two' };
    } finally {
      closed.resolve();
    }
  });
  const seen: AgentPart[] = [];
  for await (const part of runAgent(requestTo(model))) {
    seen.push(part);
    break;
  }
  await closed.promise;
  expect(seen).toHaveLength(1);
});

it('runAgent leaves no listener on the signal of the turn', async () => {
  const { signal } = new AbortController();
  const script = [callTools(['c1', 'act', {}]), callTools(['c2', 'act', {}]), say('ok')];
  const model = new ScriptedModel(...script);
  const seen: AbortSignal[] = [signal];
  const act = tool('act', async (_, call) => seen.push(call.signal));
  await runToEnd(requestTo(model, { signal, tools: [act] }));
  expect(seen).toHaveLength(3);
  expect(seen.flatMap((one) => getEventListeners(one, 'abort'))).toEqual([]);
});
