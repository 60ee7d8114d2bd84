import type { Attachment, MessagePart } from '@sibyl/protocol';
import { describe, expect, it } from 'vitest';
import { useStore } from '../../test/support/test-database.js';
import { finishTestRun, startTestRun } from '../../test/support/test-runs.js';
import type { Message } from '../store/message.js';
import { toMessageView, toMessageViews } from './message-view.js';

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
