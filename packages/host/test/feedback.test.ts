import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { type ControlledModel, startControlledModel } from './support/controlled-model.js';
import { startHost, type TestHost } from './support/host.js';
import { type OtlpReceiver, startOtlpReceiver } from './support/otlp-receiver.js';
import { openSession } from './support/stream.js';
import { createTestDatabase, type TestDatabase } from './support/test-database.js';
import { TestUser } from './support/user.js';

const MODEL = 'openai-compatible/controlled';
const TIMEOUT = { timeout: 60_000 };

describe.each(['sqlite', 'postgres'] as const)(
  'feedback and details of answers on %s',
  (engine) => {
    let database: TestDatabase;
    let model: ControlledModel;
    let host: TestHost;
    let receiver: OtlpReceiver;
    beforeAll(async () => {
      database = await createTestDatabase(engine);
      model = await startControlledModel();
      receiver = await startOtlpReceiver();
      const otel = { OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url };
      const prices = { input: 1_000_000, output: 2_000_000 };
      const MODEL_SETTINGS = JSON.stringify({ [MODEL]: { prices } });
      host = await startHost({ env: { ...database.env, ...model.env, ...otel, MODEL_SETTINGS } });
    }, 120_000);
    afterAll(async () => {
      await host?.close();
      model?.close();
      receiver?.close();
      await database?.drop();
    });

    /** A session with one answer. */
    async function converse(user: TestUser) {
      const sessionId = await openSession(user);
      const sending = user.request('POST', `/messages/${sessionId}`, {
        body: { message: 'Hello' },
      });
      (await model.next()).answer('Hello to you');
      const { body } = await sending;
      const path = `/messages/${sessionId}/${body.message.id}/feedback`;
      const read = async () => (await user.request('GET', `/messages/${sessionId}`)).body.messages;
      return { sessionId, path, read };
    }

    it('PUT /messages/:sessionId/:messageId/feedback is stored, replaced and withdrawn', async () => {
      const alice = new TestUser(host);
      const { sessionId, path, read } = await converse(alice);
      const put = (body: object) => alice.request('PUT', path, { body });
      expect((await read())[1].feedback).toBeUndefined();
      expect((await put({ rating: 'up' })).body).toEqual({ rating: 'up' });
      expect((await read())[1].feedback).toEqual({ rating: 'up' });
      await put({ rating: 'down', comment: ' Too short ' });
      const stored = { rating: 'down', comment: 'Too short' };
      expect((await read())[1].feedback).toEqual(stored);
      const page = await alice.request('GET', `/sessions/${sessionId}/messages`);
      expect(page.body.messages[1].feedback).toEqual(stored);
      expect((await alice.request('DELETE', path)).body).toEqual({ ok: true });
      expect((await read())[1].feedback).toBeUndefined();
      expect((await alice.request('DELETE', path)).status).toBe(200);
    });

    it('PUT feedback is refused for questions, unknown messages, other users and bad bodies', async () => {
      const alice = new TestUser(host);
      const { sessionId, path, read } = await converse(alice);
      const [question] = await read();
      const body = { rating: 'up' };
      const onQuestion = `/messages/${sessionId}/${question.id}/feedback`;
      expect((await alice.request('PUT', onQuestion, { body })).status).toBe(400);
      const unknown = path.replace(/[\w-]+\/feedback$/, `${crypto.randomUUID()}/feedback`);
      expect((await alice.request('PUT', unknown, { body })).body.code).toBe('message_not_found');
      const other = await openSession(alice);
      const elsewhere = path.replace(sessionId, other);
      expect((await alice.request('PUT', elsewhere, { body })).body.code).toBe('message_not_found');
      const mallory = new TestUser(host);
      expect((await mallory.request('PUT', path, { body })).body.code).toBe('message_not_found');
      expect((await mallory.request('DELETE', path)).body.code).toBe('message_not_found');
      for (const bad of [{}, { rating: 'ok' }, { rating: 'up', comment: 'x'.repeat(2001) }])
        expect((await alice.request('PUT', path, { body: bad })).status).toBe(400);
      expect((await read())[1].feedback).toBeUndefined();
    });

    it('GET /messages/:sessionId has the model, tokens and cost of answers, and only of answers', async () => {
      const alice = new TestUser(host);
      const { read } = await converse(alice);
      const [question, answer] = await read();
      expect(question).not.toHaveProperty('usage');
      expect(answer.model).toBe(MODEL);
      const { inputTokens, outputTokens, cost } = answer.usage;
      expect(outputTokens).toBeGreaterThan(0);
      expect(cost).toBe(inputTokens + 2 * outputTokens);
    });

    it('feedback is deleted with its session', async () => {
      const alice = new TestUser(host);
      const { sessionId, path } = await converse(alice);
      await alice.request('PUT', path, { body: { rating: 'up' } });
      expect((await alice.request('DELETE', `/sessions/${sessionId}`)).status).toBe(200);
      expect((await alice.request('PUT', path, { body: { rating: 'up' } })).status).toBe(404);
    });

    it('feedback is a span in the trace of the turn, without its comment', TIMEOUT, async () => {
      const alice = new TestUser(host);
      const { path } = await converse(alice);
      await alice.request('PUT', path, { body: { rating: 'down', comment: 'my private words' } });
      await alice.request('DELETE', path);
      const find = (name: string) =>
        receiver.spans.find(
          (span) => span.name === name && JSON.stringify(span).includes(alice.did),
        );
      await vi.waitFor(() => expect(find('feedback withdrawn')).toBeDefined(), TIMEOUT);
      const span = find('feedback down');
      expect(span?.attributes['gen_ai.evaluation.score.label']).toBe('down');
      const turn = receiver.spans.find(
        ({ name, traceId }) => name.startsWith('invoke_agent') && traceId === span?.traceId,
      );
      expect(turn).toBeDefined();
      expect(JSON.stringify(receiver.spans)).not.toContain('my private words');
    });
  },
);
