import { expect, it } from 'vitest';
import { MessageParts } from './message-parts.js';

const ids = { sessionId: 'session', requestId: 'request' };
const timestamp = '2030-01-01T00:00:00.000Z';
const call = { id: 'c1', name: 'add', args: { a: 1 }, status: 'done', output: '"2"' } as const;
const text = (content: string) => ['message', { content, timestamp }] as const;
const reasoning = (said: string) =>
  ['reasoning', { ...ids, reasoning: said, isComplete: false, timestamp }] as const;

function collect(frames: readonly (readonly [event: string, data: unknown])[]) {
  const parts = new MessageParts();
  for (const [event, data] of frames) parts.addFrame(event, data);
  return parts.toMessage();
}

it('MessageParts joins texts and reasoning, and keeps each call where it began', () => {
  const parts = new MessageParts();
  parts.addReasoning('Let me ');
  parts.addReasoning('see.');
  parts.addText('I ');
  parts.addText('look.');
  parts.startCall({ id: 'c1', name: 'add', args: { a: 1 } });
  parts.startCall({ id: 'c2', name: 'wait', args: {} });
  parts.addText(' Done.');
  parts.endCall(call);
  expect(parts.toMessage()).toEqual({
    content: 'I look. Done.',
    parts: [
      { type: 'reasoning', text: 'Let me see.' },
      { type: 'text', text: 'I look.' },
      { type: 'tool-call', call },
      {
        type: 'tool-call',
        call: {
          ...{ id: 'c2', name: 'wait', args: {}, status: 'error' },
          output: '"interrupted: the outcome is unknown"',
        },
      },
      { type: 'text', text: ' Done.' },
    ],
  });
});

it('MessageParts.toMessage has no parts if the message is only its text', () => {
  expect(new MessageParts().toMessage()).toEqual({ content: '' });
  expect(collect([text('a'), text('b')])).toEqual({ content: 'ab' });
});

it('MessageParts.addFrame reads the answer from the frames of a run', () => {
  const tool = { ...ids, eventId: 'c1', toolName: 'add', args: { a: 1 } };
  const action = { ...ids, toolCallId: 'c2', toolName: 'show', args: {}, status: 'isRunning' };
  const component = { ...ids, eventId: 'e', componentName: 'chart', args: { x: 1 } };
  const message = collect([
    ['run', { runId: 'r', ...ids }],
    reasoning('hm'),
    ['tool_call', { ...tool, status: 'isRunning' }],
    ['render_component', { ...component, args: {}, status: 'isRunning' }],
    text('It is '),
    ['tool_call', { ...tool, status: 'isRunning', output: '"50 %"' }],
    ['tool_call', { ...tool, status: 'done', output: '"2"' }],
    ['action_call', action],
    ['render_component', { ...component, status: 'done' }],
    text('2.'),
    ['message', { content: 7 }],
    ['router_update', { ...ids, step: 'call' }],
  ]);
  expect(message).toMatchObject({
    content: 'It is 2.',
    parts: [
      { type: 'reasoning', text: 'hm' },
      { type: 'tool-call', call },
      { type: 'component', component: { id: 'e', name: 'chart', args: { x: 1 } } },
      { type: 'text', text: 'It is ' },
      { type: 'tool-call', call: { id: 'c2', status: 'error' } },
      { type: 'text', text: '2.' },
    ],
  });
});
