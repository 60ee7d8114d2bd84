import { expect, it } from 'vitest';
import { convertConversation } from './chatgpt-import.js';

it('convertConversation reads a conversation with very many messages in little time', () => {
  const count = 300_000;
  const nodes = Array.from({ length: count }, (_, i) => [
    `n${i}`,
    {
      parent: i > 0 ? `n${i - 1}` : null,
      message: {
        author: { role: i % 2 ? 'assistant' : 'user' },
        content: { content_type: 'text', parts: [`${i}`] },
      },
    },
  ]);
  const mapping = Object.fromEntries(nodes);
  const conversation = { create_time: 1, id: 'many', current_node: `n${count - 1}`, mapping };
  const { cpuUsage } = process;
  const before = cpuUsage();
  const messages = convertConversation(conversation)?.messages;
  const { user } = cpuUsage(before);
  expect(messages?.length).toBe(count);
  expect(messages?.[1]).toMatchObject({ content: '1', type: 'ai' });
  // Quadratic work takes minutes.
  expect(user / 1_000_000).toBeLessThan(10);
});
