import { expect, it } from 'vitest';
import { MessagesReply, readMessage } from './chat-events.js';

const account = '@oracle:b.c';
const place = { roomId: '!r:b.c', account };
const toEvent = (content: unknown) => {
  const event = { event_id: '$1', type: 'm.room.message', sender: '@alice:b.c', content };
  return MessagesReply.parse({ chunk: [event] }).chunk;
};
const read = (content: unknown) => toEvent(content).map((event) => readMessage(event, place))[0];

it('MessagesReply and readMessage do not copy the fields of an event', () => {
  const ownKeys = () => {
    throw new Error('it was copied');
  };
  const content = new Proxy({ msgtype: 'm.text', body: 'Hello' }, { ownKeys });
  expect(toEvent(content)[0]?.content).toBe(content);
  expect(read(content)).toMatchObject({ text: 'Hello', thread: '$1', isMention: false });
});

it.each([[[]], [undefined], [null], ['text'], [{ body: 'x' }], [{ msgtype: 'm.text', body: 1 }]])(
  'readMessage ignores an event with the content %j',
  (content) => {
    expect(toEvent(content)).toHaveLength(1);
    expect(read(content)).toBeUndefined();
  },
);

it('readMessage reads a message whose other fields are not valid', () => {
  const content = {
    msgtype: 'm.text',
    body: 'Hello',
    info: 1,
    'm.relates_to': [],
    'm.mentions': 2,
  };
  expect(read(content)).toMatchObject({ text: 'Hello', isInThread: false });
});

it('readMessage reads a message in a thread, and a file', () => {
  const relation = { rel_type: 'm.thread', event_id: '$0' };
  const content = { msgtype: 'm.image', body: 'a.png', url: 'mxc://b.c/1', info: { size: 3 } };
  expect(read({ ...content, 'm.relates_to': relation })).toMatchObject({
    thread: '$0',
    isInThread: true,
    file: { url: 'mxc://b.c/1', name: 'a.png', size: 3 },
  });
});
