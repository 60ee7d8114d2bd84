import { describe, expect, it } from 'vitest';
import { allMessages } from '../../test/support/all-messages.js';
import { engines, newOwner, useStore } from '../../test/support/test-database.js';
import { finishTestRun, openTestSession, startTestRun } from '../../test/support/test-runs.js';

describe.each(engines)('AnswerDetailsStore on %s', (engine) => {
  const test = useStore(engine);

  /** A session with two answers, which used 10 and 20 tokens. */
  async function openAnswered() {
    const { store } = test;
    const session = await openTestSession(store);
    for (const input of [10, 20]) {
      const { key } = await startTestRun(store, session);
      const models = [{ model: `model-${input}`, input, output: 1, cached: 0 }];
      const usage = { input, output: 1, cached: 0, models };
      await finishTestRun(store.runs, key, { content: 'answer', usage, report: { cost: input } });
    }
    const messages = await allMessages(store, session);
    const [first = '', second = ''] = messages
      .filter(({ type }) => type === 'ai')
      .map(({ id }) => id);
    return { session, messages, first, second };
  }

  it('AnswerDetailsStore.read returns model, usage and feedback of each answer', async () => {
    const { answerDetails } = test.store;
    const { session, messages, first, second } = await openAnswered();
    await answerDetails.setFeedback(
      { ...session, messageId: second },
      { rating: 'down', comment: 'wrong' },
    );
    const details = await answerDetails.read(messages);
    expect([...details.keys()]).toEqual([first, second]);
    expect(details.get(first)).toEqual({
      model: 'model-10',
      usage: { input: 10, output: 1, cached: 0, cost: 10 },
      feedback: undefined,
    });
    expect(details.get(second)).toEqual({
      model: 'model-20',
      usage: { input: 20, output: 1, cached: 0, cost: 20 },
      feedback: { rating: 'down', comment: 'wrong' },
    });
  });

  it('AnswerDetailsStore.deleteFeedback deletes that of one answer of the user, once', async () => {
    const { answerDetails } = test.store;
    const { session, messages, first, second } = await openAnswered();
    const key = { ...session, messageId: first };
    for (const messageId of [first, second])
      await answerDetails.setFeedback({ ...session, messageId }, { rating: 'up' });
    expect(await answerDetails.deleteFeedback({ ...key, owner: newOwner() })).toBe(false);
    expect(await answerDetails.deleteFeedback({ ...key, sessionId: 'another' })).toBe(false);
    expect(await answerDetails.deleteFeedback(key)).toBe(true);
    expect(await answerDetails.deleteFeedback(key)).toBe(false);
    const details = await answerDetails.read(messages);
    expect(details.get(first)?.feedback).toBeUndefined();
    expect(details.get(second)?.feedback).toEqual({ rating: 'up' });
  });
});
