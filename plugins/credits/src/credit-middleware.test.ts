import type { ModelMessage, UserPart } from '@sibyl/plugin-kit';
import { expect, it } from 'vitest';
import { estimateRequest } from './credit-middleware.js';

const countTokens = (messages: readonly ModelMessage[]) =>
  estimateRequest({
    agent: 'main',
    model: { id: 'm', vision: true },
    system: '',
    messages,
    tools: [],
  });
const none = countTokens([]);

// A token is four bytes, or a part of them; a line break stands between the parts of a message.
it.each<[string, ModelMessage, number]>([
  ['text', { role: 'user', content: 'x'.repeat(400) }, 101],
  ['text of other scripts', { role: 'user', content: '土'.repeat(400) }, 301],
  ['a note', { role: 'user', content: 'x'.repeat(400), note: 'x'.repeat(400) }, 201],
  ['parts of text', user(text(400), text(400)), 201],
  ['an image', user(file('image/png', 5_000_000)), 1501],
  ['a text file', user(text(400), file('text/plain', 4001)), 101 + 1001],
  ['a document', user(file('application/pdf', 100_001)), 5002],
  ['a short document', user(file('application/pdf', 100)), 1501],
  ['two files', user(file('image/png', 1), file('image/png', 1)), 1 + 3000],
  ['tool results', tool('x'.repeat(799), 'x'.repeat(400)), 300],
  ['the assistant', { role: 'assistant', text: 'x'.repeat(100), toolCalls: [] }, 26],
])('estimateRequest counts %s', (_, message, tokens) => {
  expect(countTokens([message]) - none).toBe(tokens);
});

it('estimateRequest counts what the assistant wrote and called', () => {
  const toolCalls = [{ id: '1', name: 'tool', input: 'x'.repeat(200) }];
  const message: ModelMessage = {
    role: 'assistant',
    text: 'x'.repeat(100),
    reasoning: 'x'.repeat(100),
    toolCalls,
  };
  const bytes = 202 + JSON.stringify(toolCalls).length;
  expect(countTokens([message]) - none).toBe(Math.ceil(bytes / 4));
});

it('estimateRequest counts the system text', () => {
  const request = { agent: 'main', model: { id: 'm', vision: true }, messages: [], tools: [] };
  expect(estimateRequest({ ...request, system: 'x'.repeat(401) }) - none).toBe(101);
});

it('estimateRequest counts the tools', () => {
  const tool = { name: 'tool', description: 'x'.repeat(400), inputSchema: { type: 'object' } };
  const request = { agent: 'main', model: { id: 'm', vision: true }, system: '', messages: [] };
  expect(estimateRequest({ ...request, tools: [tool] })).toBeGreaterThan(100);
});

function user(...content: readonly UserPart[]): ModelMessage {
  return { role: 'user', content };
}

function text(length: number): UserPart {
  return { type: 'text', text: 'x'.repeat(length) };
}

function file(mediaType: string, length: number): UserPart {
  return { type: 'file', mediaType, data: new Uint8Array(length) };
}

function tool(...outputs: readonly string[]): ModelMessage {
  const results = outputs.map((output) => ({ id: '1', name: 'tool', output, isError: false }));
  return { role: 'tool', results };
}
