import { randomUUID } from 'node:crypto';
import { setImmediate, setTimeout } from 'node:timers/promises';
import { OFFLINE } from '../../config/models-config.js';
import type { Model, ModelCall, ModelMessage, ModelPart, ModelToolCall } from '../model.js';
import { ModelFacts } from '../model-facts.js';
import {
  answerTime,
  count,
  getText,
  type Intent,
  introduce,
  listCapabilities,
  type OfflineReply,
  type OfflineRequest,
  type OfflineToolCall,
  readRequest,
  withoutEnd,
} from './intent.js';
import { changePreferences, recallFacts, rememberFact, reportFacts } from './preference-intents.js';
import {
  callNamedTools,
  reportFilePassages,
  reportToolResults,
  searchFiles,
} from './tool-intents.js';

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
  const calls = (reply.calls ?? []).map(toToolCall);
  for (const wanted of calls) yield { type: 'tool-call', call: wanted };
  yield {
    type: 'finish',
    reason: calls.length > 0 ? 'tool-calls' : 'stop',
    usage: {
      input:
        countWords(call.system) + call.messages.reduce((sum, m) => sum + countMessageWords(m), 0),
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

function toToolCall({ name, input }: OfflineToolCall): ModelToolCall {
  return { id: `call_${randomUUID()}`, name, input: JSON.stringify(input) };
}

function countMessageWords(message: ModelMessage): number {
  const results = message.role === 'tool' ? message.results.map(({ output }) => output) : [];
  return countWords([getText(message), ...results].join(' '));
}

function countWords(text: string): number {
  return text.match(/\S+/g)?.length ?? 0;
}

function replyTo(request: OfflineRequest): OfflineReply {
  for (const intent of intents) {
    const reply = intent(request);
    if (reply) return reply;
  }
  return {};
}

const TITLE_WORDS = 6;
const SUMMARY_LENGTH = 600;
const SPEAKER = /^(user|human|assistant|ai|oracle)\s*:\s*/i;

/** Returns the first words of the conversation when the system prompt asks for a title. */
const makeTitle: Intent = (request) => {
  if (!asksFor(request, 'title')) return undefined;
  const words = splitLines(request.texts[0] ?? '')[0]?.split(/\s+/) ?? [];
  const title = words.slice(0, TITLE_WORDS).join(' ');
  return { text: withoutEnd(title, ' .,;:!?') || 'Untitled' };
};

/** Returns the first sentence of every message when the system prompt asks for a summary. */
const makeSummary: Intent = (request) => {
  if (!asksFor(request, 'summary') && !asksFor(request, 'summarise', 'summarize')) return undefined;
  const sentences = request.texts.flatMap(splitLines).map((line) => line.split(/(?<=[.!?])\s/)[0]);
  return { text: sentences.join(' ').slice(0, SUMMARY_LENGTH).trim() || 'Nothing was said.' };
};

/** All rules; the first reply is used, and the last rule always has one. */
const intents: readonly Intent[] = [
  makeTitle,
  makeSummary,
  callNamedTools,
  searchFiles,
  reportFilePassages,
  reportFacts,
  reportToolResults,
  listCapabilities,
  changePreferences,
  recallFacts,
  rememberFact,
  answerTime,
  count,
  introduce,
];

/** The tools that rules call although no message names them. */
const USUAL_TOOLS = ['remember', 'recall', 'set_user_preferences'];

/** Whether the rules do what a message asks for, given the tools that it needs. */
export function understands(message: string): boolean {
  const names = [...USUAL_TOOLS, ...(message.match(/\b\w+_\w+\b/g) ?? [])];
  const tools = names.map((name) => ({ name, description: '', inputSchema: {} }));
  const messages = [{ role: 'user', content: message }] as const;
  const signal = AbortSignal.timeout(0);
  const request = readRequest({ system: '', messages, tools, signal }, new Date());
  return intents.some((intent) => intent !== introduce && intent(request) !== undefined);
}

// A normal turn may also mention titles, but it has tools or a longer prompt.
const UTILITY_PROMPT_LENGTH = 1500;

function asksFor({ system, tools, results }: OfflineRequest, ...words: string[]): boolean {
  if (tools.size > 0 || results.length > 0 || system.length > UTILITY_PROMPT_LENGTH) return false;
  const said = system.toLowerCase();
  return words.some((word) => said.includes(word));
}

function splitLines(text: string): string[] {
  const lines = text.split('\n').map((line) => line.trim().replace(SPEAKER, ''));
  return lines.filter(Boolean);
}
