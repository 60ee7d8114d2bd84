import { expect, it } from 'vitest';
import { filterParts, requestTo, runToEnd, tool } from '../../test/support/agent/agent-requests.js';
import { findProviderErrors } from '../../test/support/agent/provider-rules.js';
import { Random } from '../../test/support/agent/random.js';
import { callTools, ScriptedModel, say } from '../../test/support/agent/scripted-model.js';
import type { ModelCall, ModelMessage, ModelPart } from '../models/model.js';
import type { AgentRequest } from './agent.js';
import { estimateMessages, estimateTokens, estimateTools } from './model-call.js';

const IDS = ['', 'a', 'b', 'call_1'];
const NAMES = ['look', 'fail', 'huge', 'no such tool!', ''];
/** Tight, but enough for the shortest form of every step a turn may make. */
const CLOSE = 5000;
const INPUTS = ['{}', '{"a":1}', '', '[]', 'nonsense', '{"a":'];

/** Messages in any order at all, as no caller should send them. */
function anyMessage(random: Random): ModelMessage {
  const id = () => random.pick(IDS);
  const text = random.pick(['', 'words', 'many words '.repeat(200)]);
  switch (random.pick(['user', 'assistant', 'calls', 'tool'] as const)) {
    case 'user':
      return { role: 'user', content: text };
    case 'assistant':
      return { role: 'assistant', text };
    case 'calls': {
      const toolCalls = random.list(3, () => ({ id: id(), name: 'look', input: '{}' }));
      return { role: 'assistant', text, toolCalls };
    }
    case 'tool': {
      const output = '"result"'.repeat(random.below(500));
      const results = random.list(3, () => ({ id: id(), name: 'look', output, isError: false }));
      return { role: 'tool', results };
    }
  }
}

/** A model that makes random calls. */
function anyModel(random: Random): ScriptedModel {
  const call = () => [random.pick(IDS), random.pick(NAMES), random.pick(INPUTS)] as const;
  const step = ({ tools }: ModelCall): readonly ModelPart[] => {
    if (tools.length === 0 || random.below(5) === 0) return say('done');
    return [
      { type: 'text', text: random.pick(['', 'so']) },
      ...callTools(call(), ...random.list(3, call)),
    ];
  };
  return new ScriptedModel(...Array.from({ length: 12 }, () => step));
}

function anyRequest(random: Random): AgentRequest & { readonly model: ScriptedModel } {
  const model = anyModel(random);
  const summary = random.pick<readonly ModelPart[]>([say('A short summary.'), []]);
  return {
    ...requestTo(model, {
      smallModel: new ScriptedModel(...Array.from({ length: 20 }, () => summary)),
      messages: [...random.list(12, () => anyMessage(random)), { role: 'user', content: 'So?' }],
      tools: [
        tool('look', async () => 'seen'),
        tool('fail', () => Promise.reject(new Error('no'))),
        tool('huge', async () => 'x'.repeat(random.below(20_000))),
      ],
      limits: { steps: 1 + random.below(8), contextTokens: random.pick([600, CLOSE, 100_000]) },
    }),
    model,
  };
}

function countTokens({ system, tools, messages }: ModelCall): number {
  return estimateTokens(system) + estimateTools(tools) + estimateMessages(messages);
}

it('runAgent sends only conversations that providers accept and that fit', async () => {
  for (let seed = 1; seed <= 600; seed++) {
    const request = anyRequest(new Random(seed));
    const { parts, thrown } = await runToEnd(request);
    expect(thrown, `seed ${seed}`).toBeUndefined();
    for (const call of request.model.calls) {
      expect(findProviderErrors(call.messages), `seed ${seed}`).toEqual([]);
      if (request.limits.contextTokens < CLOSE) continue;
      expect(countTokens(call), `seed ${seed}`).toBeLessThanOrEqual(request.limits.contextTokens);
    }
    const opened = filterParts(parts, 'tool-start').map(({ id }) => id);
    const closed = filterParts(parts, 'tool-end').map(({ call }) => call.id);
    expect(closed.toSorted(), `seed ${seed}`).toEqual(opened.toSorted());
    expect(new Set(opened).size, `seed ${seed}`).toBe(opened.length);
  }
}, 120_000);
