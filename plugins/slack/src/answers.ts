import { type Logger, OracleError, type PluginTurns } from '@sibyl/plugin-kit';
import type { ReplyPart } from '@sibyl/protocol';
import type { SlackMessage } from './delivery.js';
import { type Inbox, keyOf, type Waiting } from './inbox.js';
import { LiveReply, type SlackChannel } from './live-reply.js';
import { type Threads, userOf } from './threads.js';

const THINKING = '_Thinking…_';
/** Messages that are answered at the same time; the others wait in the inbox, not in memory. */
const MAX_RUNNING = 100;

interface AnswersParts {
  readonly inbox: Inbox;
  readonly threads: Threads;
  readonly turns: PluginTurns;
  readonly channel: SlackChannel;
  readonly logger: Logger;
  /** Least time between two changes of an answer that is being written. */
  readonly pauseMs: number;
}

/** Answers messages: each becomes a turn, whose reply is shown while it is written. */
export class Answers {
  readonly #parts: AnswersParts;
  readonly #underWay = new Set<Promise<void>>();
  /** Whether the inbox keeps messages that found no place here. */
  #hasMore = false;
  #isStopping = false;

  constructor(parts: AnswersParts) {
    this.#parts = parts;
  }

  /** Begins to answer a message that the inbox keeps, or leaves it there while there is no place for it. */
  begin(waiting: Waiting, attempts = 1): void {
    const isFull = this.#room <= 0;
    this.#hasMore ||= isFull;
    this.#track(isFull ? this.#leave(waiting) : this.#answerOrPostpone(waiting, attempts));
  }

  /** Begins to answer what the inbox keeps for anyone, as far as there is place. */
  async takeOver(): Promise<void> {
    const room = this.#room;
    if (room <= 0) return;
    const taken = await this.#parts.inbox.takeOver(room);
    this.#hasMore = taken.length === room;
    for (const { attempts, ...waiting } of taken) this.begin(waiting, attempts);
  }

  /** Takes no more messages, and settles once nothing is being answered. */
  async settled(): Promise<void> {
    this.#isStopping = true;
    while (this.#underWay.size > 0) await Promise.all(this.#underWay);
  }

  /** How many more messages may be answered now. */
  get #room(): number {
    return this.#isStopping ? 0 : MAX_RUNNING - this.#underWay.size;
  }

  #track(work: Promise<void>): void {
    this.#underWay.add(work);
    void work.finally(() => {
      this.#underWay.delete(work);
      if (this.#hasMore && this.#room > 0) this.#refill();
    });
  }

  #refill(): void {
    this.#hasMore = false;
    this.takeOver().catch((err) => {
      // The next round tries again.
      this.#parts.logger.warn({ err }, 'waiting messages from Slack cannot be read');
    });
  }

  /** Another process, or this one later, finds it at once. */
  async #leave({ message }: Waiting): Promise<void> {
    const { inbox, logger } = this.#parts;
    await inbox.release(message).catch((err) => {
      logger.error({ err, eventId: message.eventId }, 'the inbox cannot be written');
    });
  }

  async #answerOrPostpone(waiting: Waiting, attempts: number): Promise<void> {
    const { inbox, logger } = this.#parts;
    const { message } = waiting;
    try {
      await this.#answer(waiting);
      await inbox.finish(message);
    } catch (err) {
      const about = { err, eventId: message.eventId, channel: message.channel, attempts };
      logger.warn(about, 'a message from Slack is not answered');
      await inbox.postpone(message, attempts).catch((fault) => {
        // It stays this process's until the lease ends, then somebody takes it over.
        logger.error({ err: fault, eventId: message.eventId }, 'the inbox cannot be written');
      });
    }
  }

  async #answer({ message, replies }: Waiting): Promise<void> {
    const { inbox, channel, pauseMs } = this.#parts;
    const reply = new LiveReply({
      channel,
      place: message,
      replies,
      onPosted: (posted) => inbox.noteReplies(message, posted),
      pauseMs,
    });
    try {
      const parts = await this.#start(message);
      if (parts) await relay(parts, reply);
    } catch (error) {
      // What may be gone in a moment is worth another attempt, the rest is for the user to know.
      if (!(error instanceof OracleError) || error.status >= 500) throw error;
      await reply.finish(`:warning: ${error.message}`);
    }
  }

  /** The turn's reply; none where the message only ended the one at work. */
  async #start(message: SlackMessage): Promise<AsyncIterable<ReplyPart> | undefined> {
    const { threads, turns } = this.#parts;
    const sessionId = await threads.sessionOf(message);
    const user = userOf(message);
    if (isStop(message) && (await turns.abort({ user, sessionId }))) return undefined;
    const turn = { user, sessionId, message: message.text, client: 'slack' };
    try {
      return await turns.start({ ...turn, idempotencyKey: keyOf(message) });
    } catch (error) {
      if (!(error instanceof OracleError) || error.code !== 'session_not_found') throw error;
      await threads.forget(message, sessionId);
      const fresh = await threads.sessionOf(message);
      return turns.start({ ...turn, sessionId: fresh, idempotencyKey: keyOf(message) });
    }
  }
}

const isStop = ({ text }: SlackMessage) => /^stop[.!]*$/i.test(text);

/** Shows a reply while it is written, to its end. */
async function relay(parts: AsyncIterable<ReplyPart>, reply: LiveReply): Promise<void> {
  let text = '';
  let note = '';
  reply.show(THINKING);
  for await (const { event, data } of parts) {
    switch (event) {
      case 'message':
        text += data.content;
        reply.show(text);
        break;
      case 'error':
        note = `:warning: ${data.error}`;
        break;
      case 'done':
        text = data.partialText ?? text;
        note ||= ENDINGS[data.status] ?? '';
        break;
      default:
    }
  }
  await reply.finish([text, note].filter((part) => part.trim()).join('\n\n') || NOTHING);
}

const NOTHING = '_There is no answer._';

const ENDINGS: Readonly<Record<string, string>> = {
  aborted: '_Stopped._',
  interrupted: '_Interrupted. Ask again to get the whole answer._',
  failed: ':warning: _The answer failed._',
};
