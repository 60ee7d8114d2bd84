import { randomUUID } from 'node:crypto';
import { setImmediate, setTimeout } from 'node:timers/promises';
import { OFFLINE } from '../../config/models-config.js';
import type { Model, ModelCall, ModelPart } from '../model.js';
import { ModelFacts } from '../model-facts.js';
import { getText, type OfflineReply, readRequest, replyTo } from './intents.js';

/** Creates the built-in model: deterministic rules, no network, no key. */
export function createOfflineModel(clock: () => Date = () => new Date()): Model {
  return {
    id: OFFLINE,
    label: 'Offline (built-in rules, no language model)',
    provider: OFFLINE,
    facts: new ModelFacts({ settings: { vision: false, tools: true } }),
    stream: (call) => stream(call, replyTo(readRequest(call, clock()))),
  };
}

async function* stream(call: ModelCall, reply: OfflineReply): AsyncGenerator<ModelPart> {
  for (const word of reply.text?.match(/\s*\S+/g) ?? []) {
    await pause(reply.pauseMs ?? 0, call.signal);
    yield { type: 'text', text: word };
  }
  call.signal.throwIfAborted();
  const calls = (reply.calls ?? []).map(({ name, input }) => {
    return { id: `call_${randomUUID()}`, name, input: JSON.stringify(input) };
  });
  for (const wanted of calls) yield { type: 'tool-call', call: wanted };
  yield {
    type: 'finish',
    reason: calls.length > 0 ? 'tool-calls' : 'stop',
    usage: {
      input: countInputWords(call),
      output: countWords(reply.text ?? '') + calls.reduce((sum, c) => sum + countWords(c.input), 0),
      cached: 0,
    },
  };
}

/** Yields to the event loop between words even without a delay, so that an abort is noticed. */
async function pause(ms: number, signal: AbortSignal): Promise<void> {
  try {
    if (ms > 0) await setTimeout(ms, undefined, { signal });
    else await setImmediate();
  } finally {
    signal.throwIfAborted();
  }
}

function countInputWords({ system, messages }: ModelCall): number {
  let words = countWords(system);
  for (const message of messages) {
    words += countWords(getText(message));
    if (message.role === 'tool')
      for (const { output } of message.results) words += countWords(output);
  }
  return words;
}

function countWords(text: string): number {
  return text.match(/\S+/g)?.length ?? 0;
}
