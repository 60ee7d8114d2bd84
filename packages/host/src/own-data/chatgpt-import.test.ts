import { expect, it } from 'vitest';
import { convertConversation } from './chatgpt-import.js';

it('convertConversation reads a conversation with very many messages in little time', () => {
  const count = 100_000;
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
  // Quadratic work takes much longer.
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

const say = (parent: unknown, role: string, text: string, more: object = {}) => ({
  parent,
  message: { author: { role }, content: { content_type: 'text', parts: [text] }, ...more },
});

it('convertConversation reads a conversation around nodes that it does not understand', () => {
  const mapping = {
    root: { parent: null, message: null },
    q: say('root', 'user', 'Hello?', { metadata: { is_visually_hidden_from_conversation: null } }),
    odd: { parent: 'q', message: { author: null, content: null } },
    thoughts: {
      parent: 'odd',
      message: {
        author: { role: 'assistant' },
        content: { content_type: 'thoughts', parts: null },
      },
    },
    number: { parent: 'thoughts', message: 7 },
    a: say('number', 'assistant', 'Hi.', { create_time: 'today', recipient: 4, metadata: [] }),
    unused: 'a text',
    other: { parent: 12 },
  };
  const conversation = {
    title: 5,
    create_time: null,
    update_time: 'x',
    id: 'odd',
    current_node: 'a',
    mapping,
  };
  expect(convertConversation(conversation)).toMatchObject({
    title: 'Untitled',
    messages: [
      { type: 'human', content: 'Hello?' },
      { type: 'ai', content: 'Hi.' },
    ],
  });
});

it.each([null, 'deleted', undefined])(
  'convertConversation shows the newest path if the current node is %s',
  (current_node) => {
    const mapping = {
      q: say(null, 'user', 'Hello?', { create_time: 10 }),
      late: say('q', 'assistant', 'The newest.', { create_time: 30 }),
      early: say('q', 'assistant', 'An older one.', { create_time: 20 }),
      end: { parent: 'late', message: null },
      island: say('gone', 'user', 'Without a root', { create_time: 5 }),
    };
    const conversation = { create_time: 1, id: 'lost', current_node, mapping };
    expect(convertConversation(conversation)?.messages).toMatchObject([
      { content: 'Hello?' },
      { content: 'The newest.' },
    ]);
  },
);

it('convertConversation takes the time of the first message if the conversation has none', () => {
  const mapping = { q: say(null, 'user', 'Hello?', { create_time: 10 }) };
  const conversation = { id: 'timeless', current_node: 'q', mapping };
  expect(convertConversation(conversation)).toMatchObject({ createdAt: 10_000, updatedAt: 10_000 });
  for (const none of [{}, [], 'text', { id: 'x', mapping: [] }, { id: 'x', mapping: null }])
    expect(convertConversation(none)).toBeUndefined();
});

it('convertConversation passes over very many values that it does not understand in little time', () => {
  const nodes = Object.fromEntries(Array.from({ length: 100_000 }, (_, i) => [`n${i}`, 1]));
  const parts = Array.from({ length: 100_000 }, () => ({}));
  const last = { message: { author: { role: 'user' }, content: { parts: [...parts, 'Hello'] } } };
  const mapping = { ...nodes, last };
  const before = process.threadCpuUsage();
  const read = convertConversation({ id: 'many', mapping });
  const { user, system } = process.threadCpuUsage(before);
  expect(read?.messages).toMatchObject([{ id: 'last', content: 'Hello' }]);
  expect((user + system) / 1000).toBeLessThan(300);
});
