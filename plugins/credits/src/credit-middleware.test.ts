import type { ModelMessage } from '@sibyl/plugin-kit';
import { expect, it } from 'vitest';
import { estimateRequest } from './credit-middleware.js';

const bytes = (length: number) => new Uint8Array(length);
const countTokens = (messages: readonly ModelMessage[]) =>
  estimateRequest({
    agent: 'main',
    model: { id: 'm', vision: true },
    system: '',
    messages,
    tools: [],
  });
const none = countTokens([]);

it.each<[string, ModelMessage, number]>([
  ['text', { role: 'user', content: 'x'.repeat(400) }, 100],
  ['text of other scripts', { role: 'user', content: '土'.repeat(400) }, 300],
  ['an image', image('image/png', 5_000_000), 1500],
  ['a text file', image('text/plain', 4000), 1000],
  ['a document', image('application/pdf', 100_000), 5000],
  ['tool results', toolResult('x'.repeat(800)), 200],
])('estimateRequest counts %s', (_, message, tokens) => {
  expect(countTokens([message]) - none).toBeGreaterThanOrEqual(tokens);
  expect(countTokens([message]) - none).toBeLessThan(tokens + 10);
});

it('estimateRequest counts what the assistant wrote and called', () => {
  const message: ModelMessage = {
    role: 'assistant',
    text: 'x'.repeat(100),
    reasoning: 'x'.repeat(100),
    toolCalls: [{ id: '1', name: 'tool', input: 'x'.repeat(200) }],
  };
  expect(countTokens([message]) - none).toBeGreaterThanOrEqual(100);
});

it('estimateRequest counts the tools', () => {
  const tool = { name: 'tool', description: 'x'.repeat(400), inputSchema: { type: 'object' } };
  const request = { agent: 'main', model: { id: 'm', vision: true }, system: '', messages: [] };
  expect(estimateRequest({ ...request, tools: [tool] })).toBeGreaterThan(100);
});

function image(mediaType: string, length: number): ModelMessage {
  return { role: 'user', content: [{ type: 'file', mediaType, data: bytes(length) }] };
}

function toolResult(output: string): ModelMessage {
  return { role: 'tool', results: [{ id: '1', name: 'tool', output, isError: false }] };
}
