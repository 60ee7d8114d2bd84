import type { Feedback } from '@sibyl/protocol';
import type { SessionKey } from '../bus/event-bus.js';
import type { StoreContext } from './database.js';
import type { Message } from './message-store.js';
import type { RunReport, TokenUsage } from './schema/runs.js';
import { holdSession } from './session-store.js';

/** What belongs to an answer besides its parts. */
export interface AnswerDetails {
  /** The model that was asked first: that of the main agent. */
  readonly model?: string | undefined;
  /** Of all attempts of its turn, titles not included. */
  readonly usage?: TokenUsage | undefined;
  readonly feedback?: Feedback | undefined;
}

interface AnswerKey extends SessionKey {
  readonly messageId: string;
}

/** What users think of answers, and what their turns used. */
export class AnswerDetailsStore {
  constructor(private readonly context: StoreContext) {}

  /** Stores or replaces the feedback of a user. */
  async setFeedback(
    { owner, sessionId, messageId }: AnswerKey,
    { rating, comment }: Feedback,
  ): Promise<void> {
    const now = this.context.clock();
    const values = { rating, comment: comment ?? null, updated_at: now };
    const key = { owner, session_id: sessionId, message_id: messageId };
    const { database } = this.context;
    await database.write(async (tables) => {
      await holdSession(tables, database.engine, { owner, sessionId });
      await tables
        .insertInto('feedback')
        .values({ ...key, ...values, created_at: now })
        .onConflict((c) => c.columns(['owner', 'session_id', 'message_id']).doUpdateSet(values))
        .execute();
    });
  }

  /** False if there was none. */
  async deleteFeedback({ owner, sessionId, messageId }: AnswerKey): Promise<boolean> {
    return this.context.database.write(async (tables) => {
      const { numDeletedRows } = await tables
        .deleteFrom('feedback')
        .where('owner', '=', owner)
        .where('session_id', '=', sessionId)
        .where('message_id', '=', messageId)
        .executeTakeFirstOrThrow();
      return numDeletedRows > 0n;
    });
  }

  /** The details of the answers among messages of one session, by message id. */
  async read(messages: readonly Message[]): Promise<ReadonlyMap<string, AnswerDetails>> {
    const answers = messages.filter(({ type }) => type === 'ai');
    const [first] = answers;
    if (!first) return new Map();
    const [feedback, runs] = await Promise.all([
      this.readFeedback(first, answers),
      this.readRuns(first, answers),
    ]);
    return new Map(
      answers.map(({ id }) => [id, { ...runs.get(id), feedback: feedback.get(id) }] as const),
    );
  }

  private async readFeedback(
    { owner, sessionId }: Message,
    answers: readonly Message[],
  ): Promise<ReadonlyMap<string, Feedback>> {
    const rows = await this.context.database.tables
      .selectFrom('feedback')
      .select(['message_id', 'rating', 'comment'])
      .where('owner', '=', owner)
      .where('session_id', '=', sessionId)
      .where(
        'message_id',
        'in',
        answers.map(({ id }) => id),
      )
      .execute();
    return new Map(
      rows.map(({ message_id: id, rating, comment }) => [
        id,
        { rating, ...(comment !== null && { comment }) },
      ]),
    );
  }

  /** A turn that was paused or interrupted has several runs. */
  private async readRuns(
    { owner, sessionId }: Message,
    answers: readonly Message[],
  ): Promise<ReadonlyMap<string, AnswerDetails>> {
    // Not all between the first and the last: on a branch, these may be all turns of a long session.
    const turns = new Set(answers.map(({ turn }) => turn));
    const rows = await this.context.database.tables
      .selectFrom('runs')
      .select(['message_id', 'input_tokens', 'output_tokens', 'cached_tokens', 'usage', 'report'])
      .where('owner', '=', owner)
      .where('session_id', '=', sessionId)
      .where('turn', 'in', [...turns])
      .orderBy('turn')
      .orderBy('attempt')
      .execute();
    const details = new Map<string, AnswerDetails>();
    for (const row of rows) {
      if (row.message_id === null) continue;
      const known = details.get(row.message_id);
      const usage = addUsage(known?.usage, {
        input: row.input_tokens,
        output: row.output_tokens,
        cached: row.cached_tokens,
        cost: readCost(row.report),
      });
      details.set(row.message_id, { usage, model: known?.model ?? readModel(row.usage) });
    }
    return details;
  }
}

function addUsage(a: TokenUsage | undefined, b: TokenUsage): TokenUsage {
  if (!a) return b;
  const cost = a.cost === undefined && b.cost === undefined ? {} : { cost: sum(a.cost, b.cost) };
  return {
    input: a.input + b.input,
    output: a.output + b.output,
    cached: a.cached + b.cached,
    ...cost,
  };
}

const sum = (a = 0, b = 0): number => a + b;

/** Without the title of the session, whose cost is added to that of the run. */
const readCost = (report: string | null): number | undefined =>
  report === null ? undefined : (JSON.parse(report) as RunReport).cost;

const readModel = (usage: string | null): string | undefined =>
  usage === null ? undefined : (JSON.parse(usage) as { readonly model: string }[])[0]?.model;
