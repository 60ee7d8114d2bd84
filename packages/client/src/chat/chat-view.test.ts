import type { Message } from '@sibyl/protocol';
import { expect, it } from 'vitest';
import { emptyTurn } from '../turns/turn.js';
import { ChatView } from './chat-view.js';
import { createSentTurn, type LiveTurn } from './live-turns.js';

const answer: Message = {
  id: 'answer',
  type: 'ai',
  content: 'It rains.',
  createdAt: '',
  requestId: 'request',
  isComplete: true,
};

it('an answer that the history has before the stream stays the same message, with its text', () => {
  const view = new ChatView();
  const sent = createSentTurn('request', { message: 'Weather?' });
  const show = (live: LiveTurn) => {
    const history = { messages: [answer], hasOlder: false, hasNewer: false };
    const rest = { loading: 'loaded', error: undefined, connection: 'connected' } as const;
    const { messages } = view.build({ history, live: [live], ...rest });
    return messages.find(({ type }) => type === 'ai');
  };
  const shown = { id: 'request:ai', content: 'It rains.', messageId: 'answer' };
  const started = { ...emptyTurn, runId: 'run' };
  const say = (text: string) => ({ ...started, text, parts: [{ type: 'text', text }] }) as const;
  const phases: LiveTurn[] = [
    sent,
    { ...sent, turn: started },
    { ...sent, turn: say('It') },
    { ...sent, turn: { ...say('It rains.'), status: 'finished' }, phase: 'ended' },
  ];
  for (const live of phases) {
    expect(show(live)).toMatchObject(shown);
    expect(show(live)?.parts).toEqual([{ type: 'text', text: 'It rains.' }]);
  }
});
