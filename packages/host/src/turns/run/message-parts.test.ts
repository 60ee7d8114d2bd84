import { type Attachment, type MessagePart, Message as MessageView } from '@sibyl/protocol';
import { describe, expect, it } from 'vitest';
import { useStore } from '../../../test/support/test-database.js';
import { finishTestRun, startTestRun } from '../../../test/support/test-runs.js';
import type { Message } from '../../store/message-store.js';
import { messages, type StoredMessage } from '../../store/schema/messages.js';
import { MessageParts, toMessageView, toMessageViews } from './message-parts.js';

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

const MESSAGE: Message = {
  id: 'm1',
  owner: 'did:key:zAlice',
  sessionId: 's1',
  turn: 1,
  seq: 2,
  branch: 0,
  type: 'ai',
  content: 'Hello',
  requestId: 'r1',
  runId: 'run1',
  metadata: { secret: true },
  isComplete: true,
  createdAt: Date.UTC(2026, 0, 2),
};

const VIEW = {
  id: 'm1',
  type: 'ai',
  content: 'Hello',
  createdAt: '2026-01-02T00:00:00.000Z',
  requestId: 'r1',
  isComplete: true,
};

describe('toMessageView', () => {
  it('shows a message that is only its text, and nothing internal', () => {
    expect(toMessageView(MESSAGE)).toEqual(VIEW);
    expect(Object.keys(toMessageView(MESSAGE)).toSorted()).toEqual(Object.keys(VIEW).toSorted());
  });

  it('shows parts in their order, and what is in them also by kind', () => {
    const call = { id: 'c1', name: 'add', args: {}, status: 'done', output: '2' } as const;
    const file: Attachment = { fileId: 'f1', filename: 'a.txt', mimetype: 'text/plain' };
    const parts: MessagePart[] = [
      { type: 'reasoning', text: 'Well, ' },
      { type: 'tool-call', call },
      { type: 'reasoning', text: 'so.' },
      { type: 'file', file },
      { type: 'text', text: 'Hello' },
    ];
    expect(toMessageView({ ...MESSAGE, parts })).toEqual({
      ...VIEW,
      parts,
      toolCalls: [call],
      reasoning: 'Well, so.',
      attachments: [file],
    });
  });

  it('leaves out the kinds that no part has', () => {
    const parts: MessagePart[] = [{ type: 'text', text: 'Hello' }];
    const view = toMessageView({ ...MESSAGE, parts });
    expect(Object.keys(view).toSorted()).toEqual([...Object.keys(VIEW), 'parts'].toSorted());
  });

  it('shows the place of a message among others', () => {
    const siblings = ['m1', 'm2'];
    const view = toMessageView({ ...MESSAGE, parent: 'm0', siblings });
    expect(view).toEqual({ ...VIEW, parentId: 'm0', siblings });
  });

  it('shows why an answer is not complete', () => {
    const error = { status: 'failed', code: 'model_unavailable', message: 'Away' } as const;
    const partial = { ...MESSAGE, isComplete: false };
    const { status, ...shown } = error;
    const view = toMessageView({ ...partial, error });
    expect(view).toEqual({ ...VIEW, isComplete: false, status, error: shown });
    expect(view.error).not.toHaveProperty('kind');
    const withKind = toMessageView({ ...partial, error: { ...error, kind: 'provider' as never } });
    expect(withKind.error).toEqual({ ...shown, kind: 'provider' });
  });

  it('shows model, usage and feedback of an answer', () => {
    const usage = { input: 3, output: 2, cached: 1, cost: 0.5 };
    const feedback = { rating: 'down', comment: 'Too short' } as const;
    expect(toMessageView(MESSAGE, { model: 'small', usage, feedback })).toEqual({
      ...VIEW,
      model: 'small',
      usage: { inputTokens: 3, outputTokens: 2, cachedTokens: 1, cost: 0.5 },
      feedback,
    });
  });
});

it('toMessageView shows every field that a message has for clients', () => {
  const call = { id: 'c1', name: 'add', args: {}, status: 'done', output: '2' } as const;
  const file: Attachment = { fileId: 'f1', filename: 'a.txt', mimetype: 'text/plain' };
  const whole: Required<StoredMessage> = {
    ...{ id: 'm1', owner: 'did:key:zAlice', sessionId: 's1', turn: 1, seq: 1, branch: 0 },
    ...{ parent: 'm0', type: 'ai', content: 'Hello', metadata: {}, requestId: 'r1', runId: 'run' },
    ...{ isComplete: false, createdAt: 0 },
    parts: [
      { type: 'reasoning', text: 'Well' },
      { type: 'tool-call', call },
      { type: 'file', file },
    ],
    error: { status: 'failed', code: 'model_unavailable', message: 'Away', kind: 'server' },
  };
  expect(Object.keys(messages.toRow(whole))).toEqual(messages.columnNames);
  const details = {
    model: 'small',
    usage: { input: 3, output: 2, cached: 1, cost: 0.5 },
    feedback: { rating: 'up' },
  } as const;
  const view = toMessageView({ ...whole, siblings: ['m1', 'm2'] }, details);
  expect(Object.keys(view).toSorted()).toEqual(Object.keys(MessageView.shape).toSorted());
});

describe('toMessageViews', () => {
  const test = useStore('sqlite');

  it('adds to each answer what is stored about it', async () => {
    const { key, session } = await startTestRun(test.store);
    const answer = (await finishTestRun(test.store.runs, key, { content: 'Hello' }))?.message;
    const { messages, answerDetails } = test.store;
    const question = answer && (await messages.findQuestion({ ...session, messageId: answer.id }));
    if (!answer || !question) throw new Error('no messages');
    const feedback = { rating: 'up' } as const;
    await answerDetails.setFeedback({ ...session, messageId: answer.id }, feedback);
    const views = await toMessageViews([question, answer], answerDetails);
    expect(views).toMatchObject([
      { id: question.id, type: 'human', content: 'hi' },
      { id: answer.id, type: 'ai', content: 'Hello', parentId: question.id, feedback },
    ]);
    expect(views[0]).not.toHaveProperty('feedback');
    expect(await toMessageViews([], answerDetails)).toEqual([]);
  });
});
