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

it('convertConversation reads what was spoken in a voice conversation', () => {
  const toVoiceContent = (text: string, direction: string) => ({
    content_type: 'multimodal_text',
    parts: [
      { content_type: 'audio_transcription', text, direction, decoding_id: null },
      { content_type: 'audio_asset_pointer', asset_pointer: 'sediment://file_1', format: 'wav' },
    ],
  });
  const mapping = {
    q: {
      parent: null,
      message: { author: { role: 'user' }, content: toVoiceContent('Hello?', 'in') },
    },
    a: {
      parent: 'q',
      message: { author: { role: 'assistant' }, content: toVoiceContent('Hi.', 'out') },
    },
    b: {
      parent: 'a',
      message: {
        author: { role: 'user' },
        content: {
          content_type: 'multimodal_text',
          parts: [
            { content_type: 'image_asset_pointer', asset_pointer: 'file-service://1' },
            'See',
          ],
        },
      },
    },
  };
  const conversation = { create_time: 1, id: 'voice', current_node: 'b', mapping };
  expect(convertConversation(conversation)?.messages).toMatchObject([
    { type: 'human', content: 'Hello?' },
    { type: 'ai', content: 'Hi.' },
    { type: 'human', content: 'See' },
  ]);
});
