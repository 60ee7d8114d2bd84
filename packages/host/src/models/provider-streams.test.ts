import { describe, expect, it } from 'vitest';
import {
  collect,
  hello,
  KEY,
  listCalls,
  type Provider,
  providers,
  thinking,
  toModelCall,
  useProviders,
} from '../../test/support/model-servers/scripted-provider.ts';
import type { ModelMessage } from './model.js';

const open = useProviders();

describe.each(providers)('createProviderModel for %s', (provider) => {
  it('streams text with usage', async () => {
    const { model, server } = await open(provider, hello);
    const { parts, text } = await collect(model);
    expect(text).toBe('Hello wörld');
    const usage = { input: 100, output: 20, cached: 40 };
    expect(parts.at(-1)).toEqual({ type: 'finish', reason: 'stop', usage });
    expect(JSON.stringify(server.requests[0]?.body)).toContain('Be kind.');
    expect(JSON.stringify(server.requests[0]?.headers)).toContain(KEY);
  });

  it('streams reasoning and parallel tool calls', async () => {
    const { model } = await open(provider, thinking);
    const { parts } = await collect(model);
    const reasoning = parts.map((part) => (part.type === 'reasoning' ? part.text : '')).join('');
    expect(reasoning).toBe('Let me see.');
    const calls = listCalls(parts);
    expect(calls.map(({ name, input }) => [name, JSON.parse(input)])).toEqual([
      ['search', { q: 'soil' }],
      ['now', {}],
    ]);
    expect(new Set(calls.map(({ id }) => id)).size).toBe(2);
    expect(parts.at(-1)).toMatchObject({ type: 'finish', reason: 'tool-calls' });
  });

  it('sends a reasoning step back with the results as its provider requires', async () => {
    const { model, server } = await open(provider, thinking, hello);
    const { parts, text } = await collect(model);
    const toolCalls = listCalls(parts);
    const finish = parts.at(-1);
    const providerData = finish?.type === 'finish' ? finish.providerData : undefined;
    // It has to survive storage.
    const stored = JSON.parse(JSON.stringify(providerData));
    const results = toolCalls.map(({ id, name }, i) => ({
      id,
      name,
      output: `result ${i}`,
      isError: i === 1,
    }));
    const messages: ModelMessage[] = [
      { role: 'user', content: 'hello' },
      { role: 'assistant', text, toolCalls, providerData: stored },
      { role: 'tool', results },
    ];
    expect((await collect(model, toModelCall({ messages }))).text).toBe('Hello wörld');
    expect(server.requests[1]?.body).toMatchObject(secondRequests[provider]);
  });

  it('sends a step of another model back without its private data', async () => {
    const { model, server } = await open(provider, hello);
    const toolCalls = [{ id: 'call_a', name: 'search', input: '{"q":"soil"}' }];
    const providerData = { model: 'other/model', message: { reasoning: 'no' }, blocks: [] };
    const messages: ModelMessage[] = [
      { role: 'user', content: 'hello' },
      { role: 'assistant', text: 'Looking.', reasoning: 'secret', toolCalls, providerData },
      {
        role: 'tool',
        results: [{ id: 'call_a', name: 'search', output: 'found', isError: false }],
      },
    ];
    await collect(model, toModelCall({ messages }));
    const body = JSON.stringify(server.requests[0]?.body);
    for (const word of ['Looking.', 'soil', 'found']) expect(body).toContain(word);
    expect(body).not.toMatch(/secret|"no"/);
  });

  it('sends images, and every tool as an object', async () => {
    const { model, server } = await open(provider, hello);
    const data = new Uint8Array([1, 2, 3]);
    const content = [
      { type: 'text' as const, text: 'what is this?' },
      { type: 'file' as const, mediaType: 'image/png', data },
    ];
    const { fault } = await collect(model, toModelCall({ messages: [{ role: 'user', content }] }));
    expect(fault).toBeUndefined();
    const body = JSON.stringify(server.requests[0]?.body);
    expect(body).toContain(Buffer.from(data).toString('base64'));
    expect(body).not.toContain('$schema');
    expect(body).toContain('Finds pages');
  });
});

describe.each(providers)('createProviderModel for %s', (provider) => {
  it('sends the images of tool results as images', async () => {
    const { model, server } = await open(provider, hello);
    const media = [{ mediaType: 'image/png', data: new Uint8Array([137, 80, 78, 71, 1, 2, 3]) }];
    const messages: ModelMessage[] = [
      { role: 'user', content: 'draw' },
      { role: 'assistant', text: '', toolCalls: [{ id: 'call_a', name: 'search', input: '{}' }] },
      {
        role: 'tool',
        results: [{ id: 'call_a', name: 'search', output: '"a chart"', isError: false, media }],
      },
    ];
    const { fault } = await collect(model, toModelCall({ messages }));
    expect(fault).toBeUndefined();
    const body = JSON.stringify(server.requests[0]?.body);
    expect(body).toContain(Buffer.from(media[0]?.data ?? []).toString('base64'));
    expect(body).toContain('a chart');
  });
});

const secondRequests: Record<Provider, object> = {
  openai: {
    store: false,
    include: ['reasoning.encrypted_content'],
    input: [
      {},
      { role: 'user' },
      { type: 'reasoning', encrypted_content: 'sealed_0' },
      { role: 'assistant', content: 'Looking.' },
      { type: 'function_call', call_id: 'call_a', name: 'search', arguments: '{"q":"soil"}' },
      { type: 'function_call', call_id: 'call_b' },
      { type: 'function_call_output', call_id: 'call_a', output: 'result 0' },
      {
        type: 'function_call_output',
        call_id: 'call_b',
        output: expect.stringContaining('result 1'),
      },
    ],
  },
  anthropic: {
    cache_control: { type: 'ephemeral' },
    thinking: { type: 'adaptive', display: 'summarized' },
    messages: [
      { role: 'user' },
      {
        role: 'assistant',
        content: [
          { type: 'thinking', thinking: 'Let me see.', signature: 'signed_0' },
          { type: 'text', text: 'Looking.' },
          { type: 'tool_use', id: 'call_a', name: 'search', input: { q: 'soil' } },
          { type: 'tool_use', id: 'call_b', name: 'now', input: {} },
        ],
      },
      {
        role: 'user',
        content: [
          { type: 'tool_result', tool_use_id: 'call_a', content: 'result 0' },
          { type: 'tool_result', tool_use_id: 'call_b', content: 'result 1', is_error: true },
        ],
      },
    ],
  },
  google: {
    generationConfig: { thinkingConfig: { includeThoughts: true } },
    contents: [
      { role: 'user' },
      {
        role: 'model',
        parts: [
          { text: 'Let me see.', thought: true },
          { text: 'Looking.' },
          { functionCall: { name: 'search', args: { q: 'soil' } }, thoughtSignature: 'thought_2' },
          { functionCall: { name: 'now' }, thoughtSignature: 'thought_3' },
        ],
      },
      { role: 'user', parts: [{ functionResponse: { name: 'search' } }, {}] },
    ],
  },
  'openai-compatible': {
    stream_options: { include_usage: true },
    messages: [
      { role: 'system' },
      { role: 'user' },
      {
        role: 'assistant',
        content: 'Looking.',
        reasoning_content: 'Let me see.',
        tool_calls: [{ id: 'call_a', function: { arguments: '{"q":"soil"}' } }, { id: 'call_b' }],
      },
      { role: 'tool', tool_call_id: 'call_a', content: 'result 0' },
      { role: 'tool', tool_call_id: 'call_b', content: 'result 1' },
    ],
  },
};
