import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, it } from 'vitest';
import { discoverDetails } from './server-details.js';

let server: Server | undefined;
afterEach(() => server?.close());

/** Asks a server that has these routes about the model `m`. */
async function discover(routes: Readonly<Record<string, unknown>>) {
  const asked: string[] = [];
  server = createServer((request, response) => {
    const route = `${request.method} ${request.url}`;
    asked.push(route);
    const found = routes[route];
    response.writeHead(found ? 200 : 404).end(JSON.stringify(found ?? { error: 'not found' }));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const details = await discoverDetails(
    { baseUrl: `http://127.0.0.1:${port}/v1`, headers: {}, name: 'm' },
    AbortSignal.timeout(10_000),
  );
  return { details, asked };
}

const listing = (entry: object, ...others: object[]) => ({
  'GET /v1/models': { object: 'list', data: [...others, { id: 'm', ...entry }] },
});

it('discoverDetails finds the window of a llama.cpp process, not the one of the training', async () => {
  const { details } = await discover({
    ...listing({ owned_by: 'llamacpp', meta: { n_ctx_train: 131_072 } }),
    'GET /props': {
      default_generation_settings: { n_ctx: 8192 },
      modalities: { vision: true, audio: false },
    },
  });
  expect(details).toEqual({ contextTokens: 8192, vision: true });
});

it('discoverDetails asks Ollama what is loaded, otherwise assumes its default', async () => {
  const routes = {
    ...listing({ owned_by: 'library' }),
    'GET /api/version': { version: '0.13.0' },
    'POST /api/show': {
      model_info: { 'qwen2.context_length': 32_768 },
      parameters: 'stop "x"',
      capabilities: ['completion', 'tools', 'vision'],
    },
  };
  const can = { vision: true, tools: true, reasoning: false };
  const { details } = await discover(routes);
  expect(details).toEqual({ contextTokens: 4096, ...can, isProvisional: true });
  const loaded = { 'GET /api/ps': { models: [{ name: 'm:latest', context_length: 16_384 }] } };
  expect((await discover({ ...routes, ...loaded })).details).toEqual({
    contextTokens: 16_384,
    ...can,
    isProvisional: false,
  });
  const set = { 'POST /api/show': { parameters: 'num_ctx                        2048' } };
  expect((await discover({ ...routes, ...set })).details.contextTokens).toBe(2048);
});

it.each([
  ['vLLM', { max_model_len: 4096 }, { contextTokens: 4096 }],
  ['Groq', { context_window: 131_072 }, { contextTokens: 131_072 }],
  [
    'Mistral',
    { max_context_length: 32_768, capabilities: { vision: true, function_calling: true } },
    { contextTokens: 32_768, vision: true, tools: true },
  ],
  [
    'OpenRouter',
    {
      context_length: 200_000,
      architecture: { input_modalities: ['text'] },
      supported_parameters: ['tools', 'reasoning'],
    },
    { contextTokens: 200_000, vision: false, tools: true, reasoning: true },
  ],
])('discoverDetails reads the list of %s', async (_, entry, expected) => {
  const { details, asked } = await discover(listing(entry, { id: 'other', context_length: 7 }));
  expect(details).toEqual(expected);
  expect(asked).toEqual(['GET /v1/models']);
});

it('discoverDetails asks LiteLLM about the model behind it', async () => {
  const model_info = { max_input_tokens: 8192, supports_vision: false };
  const { details } = await discover({
    ...listing({ owned_by: 'openai' }, { id: 'other' }),
    'GET /model/info': { data: [{ model_name: 'm', model_info }] },
  });
  expect(details).toEqual({ contextTokens: 8192, vision: false });
});

it('discoverDetails finds nothing on a server without such routes, and posts nothing to it', async () => {
  const { details, asked } = await discover({});
  expect(details).toEqual({});
  expect(asked.every((route) => route.startsWith('GET '))).toBe(true);
});
