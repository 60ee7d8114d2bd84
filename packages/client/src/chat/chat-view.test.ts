import type { Message } from '@sibyl/protocol';
import { expect, it } from 'vitest';
import { emptyTurn } from '../turns/turn.js';
import { ChatView } from './chat-view.js';
import { createFollowedTurn, createSentTurn, type LiveTurn } from './live-turns.js';

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

it('an answer that is written again is shown below its question once the old one is not, and nothing between them', () => {
  const question: Message = { ...answer, id: 'question', type: 'human', content: 'Weather?' };
  const show = (messages: readonly Message[], live: readonly LiveTurn[]) => {
    const history = { messages, hasOlder: false, hasNewer: false };
    const rest = { loading: 'loaded', error: undefined, connection: 'connected' } as const;
    return new ChatView().build({ history, live, ...rest }).messages.map(({ content }) => content);
  };
  const write = (requestId: string, text: string): LiveTurn => ({
    ...createFollowedTurn(requestId),
    questionId: 'question',
    turn: { ...emptyTurn, runId: requestId, text },
  });
  const end = (live: LiveTurn): LiveTurn => {
    const turn = { ...live.turn, status: 'finished', messageId: live.requestId } as const;
    return { ...live, phase: 'ended', turn };
  };
  const unsent: LiveTurn = { ...createSentTurn('unsent', { message: 'Now?' }), phase: 'lost' };
  const [second, third] = [write('second', 'It snows.'), write('third', 'It')];
  expect(show([question, answer], [second])).toEqual(['Weather?', 'It rains.']);
  expect(show([question], [second])).toEqual(['Weather?', 'It snows.']);
  expect(show([question], [end(second), third])).toEqual(['Weather?', 'It snows.']);
  expect(show([question], [{ ...end(second), isStored: true }, third])).toEqual(['Weather?', 'It']);
  expect(show([question], [unsent, second])).toEqual(['Weather?', 'It snows.', 'Now?']);
  const stored = { ...answer, id: 'second', requestId: 'second', content: 'It snows.' };
  expect(show([question, stored], [unsent, end(second)])).toEqual([
    'Weather?',
    'It snows.',
    'Now?',
  ]);
});
