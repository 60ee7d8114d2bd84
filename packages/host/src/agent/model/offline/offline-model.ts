import { randomUUID } from 'node:crypto';
import { setImmediate, setTimeout } from 'node:timers/promises';
import { OFFLINE } from '../../../config/model-providers.js';
import type { Model, ModelCall, ModelMessage, ModelPart, ModelToolCall } from '../model.js';
import type { OfflineReply, OfflineToolCall } from './intent.js';
import { replyTo } from './intents.js';
import { readRequest, textOf } from './offline-request.js';

/** The built-in model: rules instead of a network, the same words every time, no key. */
export function createOfflineModel(clock: () => Date = () => new Date()): Model {
  return {
    id: OFFLINE,
    label: 'Offline (built-in rules, no language model)',
    provider: OFFLINE,
    vision: false,
    tools: true,
    stream: (call) => stream(call, replyTo(readRequest(call, clock()))),
  };
}

async function* stream(call: ModelCall, reply: OfflineReply): AsyncGenerator<ModelPart> {
  for (const word of reply.text?.match(/\s*\S+/g) ?? []) {
    await pause(reply.pauseMs ?? 0, call.signal);
    yield { type: 'text', text: word };
  }
  call.signal.throwIfAborted();
  const calls = (reply.calls ?? []).map(toolCall);
  for (const wanted of calls) yield { type: 'tool-call', call: wanted };
  yield {
    type: 'finish',
    reason: calls.length > 0 ? 'tool-calls' : 'stop',
    usage: {
      input: countWords(call.system) + call.messages.reduce((sum, m) => sum + wordsIn(m), 0),
      output: countWords(reply.text ?? '') + calls.reduce((sum, c) => sum + countWords(c.input), 0),
      cached: 0,
    },
  };
}

/** Lets others run between words even without a delay, so that an abort arrives. */
async function pause(ms: number, signal: AbortSignal): Promise<void> {
  try {
    if (ms > 0) await setTimeout(ms, undefined, { signal });
    else await setImmediate();
  } finally {
    signal.throwIfAborted();
  }
}

function toolCall({ name, input }: OfflineToolCall): ModelToolCall {
  return { id: `call_${randomUUID()}`, name, input: JSON.stringify(input) };
}

function wordsIn(message: ModelMessage): number {
  const results = message.role === 'tool' ? message.results.map(({ output }) => output) : [];
  return countWords([textOf(message), ...results].join(' '));
}

function countWords(text: string): number {
  return text.match(/\S+/g)?.length ?? 0;
}
