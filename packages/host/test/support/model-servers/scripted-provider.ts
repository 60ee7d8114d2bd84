import { afterEach } from 'vitest';
import { loadConfig } from '../../../src/config/config.js';
import type {
  Model,
  ModelCall,
  ModelError,
  ModelMessage,
  ModelPart,
} from '../../../src/models/model.js';
import { createProviderModel } from '../../../src/models/models.js';
import { startAnthropicServer } from './anthropic-server.ts';
import { startChatCompletionsServer } from './chat-completions-server.ts';
import { startGoogleServer } from './google-server.ts';
import type { ModelServer } from './model-server.ts';
import { startOpenAiServer } from './openai-server.ts';
import type { ScriptedReply } from './script.ts';

/** The key every scripted provider is asked with. */
export const KEY = 'sk-test-0123456789abcdef';
const protocols = {
  openai: { start: startOpenAiServer, key: 'OPENAI_API_KEY', url: 'OPENAI_BASE_URL' },
  anthropic: { start: startAnthropicServer, key: 'ANTHROPIC_API_KEY', url: 'ANTHROPIC_BASE_URL' },
  google: {
    start: startGoogleServer,
    key: 'GOOGLE_GENERATIVE_AI_API_KEY',
    url: 'GOOGLE_GENERATIVE_AI_BASE_URL',
  },
  'openai-compatible': {
    start: startChatCompletionsServer,
    key: 'MODEL_API_KEY',
    url: 'MODEL_BASE_URL',
  },
} as const;
const names = {
  openai: 'gpt-6-astra',
  anthropic: 'claude-sonnet-5-5',
  google: 'gemini-4-argon',
  'openai-compatible': 'some/model',
};
export type Provider = keyof typeof protocols;
export const providers = Object.keys(protocols) as Provider[];

export interface ScriptedProvider {
  readonly server: ModelServer;
  readonly model: Model;
  /** How long the model would have waited between its attempts. */
  readonly waits: readonly number[];
}

/** Opens providers as below and closes the last one's server after each test. */
export function useProviders(): typeof openProvider {
  let server: ModelServer | undefined;
  afterEach(async () => {
    await server?.close();
    server = undefined;
  });
  return async (provider, ...script) => {
    const opened = await openProvider(provider, ...script);
    server = opened.server;
    return opened;
  };
}

/** A scripted server and a model that calls it, without waiting between attempts. */
export async function openProvider(
  provider: Provider,
  ...script: ScriptedReply[]
): Promise<ScriptedProvider> {
  return openProviderWith({}, provider, ...script);
}

/** The same with settings for the model. */
export async function openProviderWith(
  settings: object,
  provider: Provider,
  ...script: ScriptedReply[]
): Promise<ScriptedProvider> {
  const { start, key, url } = protocols[provider];
  const server = await start({ script });
  const id = `${provider}/${names[provider]}`;
  const MODEL_SETTINGS = JSON.stringify({ [id]: settings });
  const env = { MODEL: id, [key]: KEY, [url]: server.url, MODEL_SETTINGS };
  const { models } = loadConfig(env);
  const waits: number[] = [];
  const sleep = async (ms: number) => {
    waits.push(ms);
  };
  const model = createProviderModel(id, models, { sleep, random: () => 1 });
  return { server, model, waits };
}

const tools = [
  {
    name: 'search',
    description: 'Finds pages',
    inputSchema: { properties: { q: { type: 'string' } } },
  },
  {
    name: 'now',
    description: 'Returns the time',
    inputSchema: { $schema: 'https://json-schema.org/x' },
  },
];

export function toModelCall(call: Partial<ModelCall> = {}): ModelCall {
  const messages: ModelMessage[] = [{ role: 'user', content: 'hello' }];
  return { system: 'Be kind.', messages, tools, signal: new AbortController().signal, ...call };
}

/** All parts until the end, and the error if there is one. */
export async function collect(model: Model, call = toModelCall()) {
  const parts: ModelPart[] = [];
  try {
    for await (const part of model.stream(call)) parts.push(part);
  } catch (fault) {
    return { parts, text: joinText(parts), fault: fault as ModelError };
  }
  return { parts, text: joinText(parts), fault: undefined };
}

function joinText(parts: readonly ModelPart[]): string {
  return parts.map((part) => (part.type === 'text' ? part.text : '')).join('');
}

export function listCalls(parts: readonly ModelPart[]) {
  return parts.flatMap((part) => (part.type === 'tool-call' ? [part.call] : []));
}

export const hello: ScriptedReply = { say: [{ text: ['Hel', 'lo ', 'wörld'] }] };
export const thinking: ScriptedReply = {
  say: [
    { reasoning: ['Let me ', 'see.'] },
    { text: ['Looking.'] },
    { toolCall: { id: 'call_a', name: 'search', input: '{"q":"soil"}' } },
    { toolCall: { id: 'call_b', name: 'now', input: '{}' } },
  ],
};
