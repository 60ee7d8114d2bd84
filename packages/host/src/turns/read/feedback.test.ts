import { type ReadableSpan, TracerProvider } from '@opentelemetry/sdk-trace';
import { describe, expect, it } from 'vitest';
import { newOwner, useStore } from '../../../test/support/test-database.js';
import { finishTestRun, startTestRun } from '../../../test/support/test-runs.js';
import { MemoryEventBus } from '../../bus/event-bus.js';
import { runInScope, Scope } from '../../observability/spans.js';
import { FeedbackService } from './feedback.js';

const TRACE_ID = 'a'.repeat(32);

/** Runs work as a host does that exports spans; returns the names and attributes of those that ended. */
async function trace(work: () => Promise<void>, capturesContent = false) {
  const ended: ReadableSpan[] = [];
  const processor = {
    onStart: () => undefined,
    onEnd: (span: ReadableSpan) => void ended.push(span),
    forceFlush: async () => undefined,
    shutdown: async () => undefined,
  };
  const tracer = new TracerProvider({ spanProcessors: [processor] }).getTracer('test');
  const exporter = { tracer, capturesContent, close: async () => undefined };
  await runInScope(new Scope({ exporter }), work);
  return ended.map((span) => ({
    name: span.name,
    traceId: span.spanContext().traceId,
    attributes: span.attributes,
  }));
}

describe('FeedbackService', () => {
  const test = useStore('sqlite');

  /** A session with one answer, and the events of its clients. */
  async function converse() {
    const traceparent = `00-${TRACE_ID}-${'b'.repeat(16)}-01`;
    const { run, key, session } = await startTestRun(test.store, { traceparent });
    const answer = (await finishTestRun(test.store.runs, key, { content: 'Hello' }))?.message;
    if (!answer?.parent) throw new Error('no answer');
    const events = new MemoryEventBus();
    const seen: unknown[] = [];
    events.subscribe(session, (event) => seen.push(event));
    const service = new FeedbackService({ store: test.store, events });
    const messageId = answer.id;
    const read = async () => (await test.store.answerDetails.read([answer])).get(messageId);
    return { service, run, session, answer, seen, read, messageKey: { ...session, messageId } };
  }

  /** What makes the clients of the session read an answer again. */
  const invalidate = (sessionId: string, messageId: string) => ({
    event: 'message_cache_invalidation',
    payload: { sessionId, requestId: 'request', messageIds: [messageId], status: 'done' },
  });

  it('set stores what the user thinks, and shows it in all clients', async () => {
    const { service, messageKey, read, seen } = await converse();
    await service.set(messageKey, { rating: 'up' });
    expect(await read()).toMatchObject({ feedback: { rating: 'up' } });
    await service.set(messageKey, { rating: 'down', comment: 'Too short' });
    expect(await read()).toMatchObject({ feedback: { rating: 'down', comment: 'Too short' } });
    const { sessionId, messageId } = messageKey;
    const event = invalidate(sessionId, messageId);
    expect(seen).toEqual([event, event]);
  });

  it('withdraw deletes it; without any, it reports nothing', async () => {
    const { service, messageKey, read, seen } = await converse();
    const withdrawn = async () => {
      seen.splice(0);
      const spans = await trace(() => service.withdraw(messageKey));
      return [seen.length, spans.map(({ name }) => name)];
    };
    expect(await withdrawn()).toEqual([0, []]);
    await service.set(messageKey, { rating: 'up' });
    expect(await withdrawn()).toEqual([1, ['feedback withdrawn']]);
    expect((await read())?.feedback).toBeUndefined();
  });

  it('refuses a message of another user or session, and a question', async () => {
    const { service, messageKey, answer, read, seen } = await converse();
    const other = await converse();
    const { owner, sessionId } = other.session;
    const unknown = { code: 'message_not_found' };
    for (const key of [
      { ...messageKey, owner },
      { ...messageKey, sessionId },
      { ...messageKey, owner: newOwner() },
      { ...messageKey, messageId: 'm9' },
    ]) {
      await expect(service.set(key, { rating: 'up' })).rejects.toMatchObject(unknown);
      await expect(service.withdraw(key)).rejects.toMatchObject(unknown);
    }
    const question = { ...messageKey, messageId: answer.parent ?? '' };
    const refused = service.set(question, { rating: 'up' });
    await expect(refused).rejects.toMatchObject({
      code: 'validation_failed',
      lines: [expect.stringContaining('messageId')],
    });
    expect((await read())?.feedback).toBeUndefined();
    expect(seen).toEqual([]);
  });

  it.each([
    [false, undefined],
    [true, 'Too short'],
  ])('is part of the trace of the turn; with its comment: %s', async (captures, comment) => {
    const { service, messageKey, run } = await converse();
    const feedback = { rating: 'down', comment: 'Too short' } as const;
    const [span, ...more] = await trace(() => service.set(messageKey, feedback), captures);
    expect(span).toMatchObject({ name: 'feedback down', traceId: TRACE_ID });
    expect(span?.attributes).toMatchObject({
      'sibyl.message.id': messageKey.messageId,
      'gen_ai.evaluation.name': 'user_feedback',
      'gen_ai.evaluation.score.label': 'down',
    });
    expect(Object.values(span?.attributes ?? {})).toContain(run.runId);
    expect(span?.attributes['gen_ai.evaluation.explanation']).toBe(comment);
    expect(more).toEqual([]);
  });

  it('is stored for an imported answer, which has no turn', async () => {
    const { service, session, seen } = await converse();
    const said = { ...session, content: 'x', requestId: 'request', isComplete: true } as const;
    const imported = await test.store.messages.append({ ...said, type: 'ai' });
    const messageId = imported?.id ?? '';
    const set = () => service.set({ ...session, messageId }, { rating: 'up' });
    expect(await trace(set)).toEqual([]);
    expect(seen).toEqual([invalidate(session.sessionId, messageId)]);
  });
});
