import { expect, it } from 'vitest';
import type { ModelPart } from '../model.js';
import { ReplyReader } from './http-client.js';

const stream = [
  '\uFEFF: keep-alive\n\n',
  'event: message\r\nid: 7\r\ndata: {"choices":[{"delta":{"content":"a"}}]}\r\n\r\n',
  ': OPENROUTER PROCESSING\n\n',
  'data:{"choices":[{"delta":{"content":"b"},\ndata: "finish_reason":"stop"}]}\n\n',
  'retry: 10\n\n',
  'data: [DONE]',
].join('');

const body = '{"choices":[{"message":{"content":"ab"},"finish_reason":"stop"}]}';

function readText(contentType: string, chunks: readonly string[]): string {
  const reader = new ReplyReader({ headers: { 'content-type': contentType } });
  const parts: ModelPart[] = chunks.flatMap((chunk) => [...reader.push(chunk)]);
  parts.push(...reader.end('model', 0));
  expect(parts.at(-1)).toMatchObject({ type: 'finish', reason: 'stop' });
  return parts.map((part) => (part.type === 'text' ? part.text : '')).join('');
}

const split = (text: string, size: number) => text.match(new RegExp(`[^]{1,${size}}`, 'g')) ?? [];

it('ReplyReader reads a stream wherever its text is split', () => {
  for (let size = 1; size <= stream.length; size++)
    expect(readText('text/event-stream', split(stream, size))).toBe('ab');
});

it('ReplyReader reads a reply that is one JSON document', () => {
  expect(readText('application/json; charset=utf-8', split(body, 7))).toBe('ab');
});

it.each(['text/event-stream', 'application/json'])('ReplyReader limits a reply of %s', (type) => {
  const reader = new ReplyReader({ headers: { 'content-type': type } });
  const chunk = 'x'.repeat(1024 * 1024);
  expect(() => {
    for (let i = 0; i < 10; i++) [...reader.push(chunk)];
  }).toThrow(/exceeds 8388608 characters/);
});
