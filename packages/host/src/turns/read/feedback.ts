import { type Feedback, OracleError } from '@sibyl/protocol';
import type { EventBus, SessionKey } from '../../bus/event-bus.js';
import { startTurnSpan } from '../../observability/spans.js';
import type { Message } from '../../store/message-store.js';
import type { Store } from '../../store/store.js';
import { buildCacheInvalidation } from '../run/run-log.js';

interface FeedbackDeps {
  readonly store: Pick<Store, 'messages' | 'answerDetails' | 'runs'>;
  readonly events: EventBus;
}

interface AnswerKey extends SessionKey {
  readonly messageId: string;
}

/** What users think of answers: stored, shown in all their clients, and added to the trace of the turn. */
export class FeedbackService {
  constructor(private readonly deps: FeedbackDeps) {}

  async set(key: AnswerKey, feedback: Feedback): Promise<void> {
    const answer = await this.getAnswer(key);
    await this.deps.store.answerDetails.setFeedback(key, feedback);
    await this.report(answer, feedback);
  }

  /** Also succeeds if there was no feedback. */
  async withdraw(key: AnswerKey): Promise<void> {
    const answer = await this.getAnswer(key);
    if (await this.deps.store.answerDetails.deleteFeedback(key))
      await this.report(answer, { rating: 'withdrawn' });
  }

  private async getAnswer({ owner, sessionId, messageId }: AnswerKey): Promise<Message> {
    const message = await this.deps.store.messages.find({ owner, messageId });
    if (message?.sessionId !== sessionId) throw new OracleError('message_not_found');
    if (message.type === 'ai') return message;
    throw new OracleError('validation_failed', { message: ['messageId: must be an answer'] });
  }

  private async report(
    { owner, sessionId, requestId, runId, id: messageId }: Message,
    { rating, comment }: { readonly rating: string; readonly comment?: string | undefined },
  ): Promise<void> {
    const { store, events } = this.deps;
    const { event, data: payload } = buildCacheInvalidation({ sessionId, requestId }, messageId);
    events.publish({ owner, sessionId }, { event, payload });
    // An imported answer has no turn.
    const run = runId && (await store.runs.find({ owner, runId }));
    if (!run) return;
    const facts = { messageId, evaluation: 'user_feedback', rating };
    const span = startTurnSpan(run, { kind: 'feedback', name: rating, facts });
    span?.end(span.capturesContent ? { facts: { comment } } : {});
  }
}
