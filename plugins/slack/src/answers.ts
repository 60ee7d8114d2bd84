import { type Logger, OracleError, type PluginTurns } from '@sibyl/plugin-kit';
import type { ReplyPart } from '@sibyl/protocol';
import { LiveReply } from './replies/live-reply.js';
import type { SlackChannel } from './replies/slack-channel.js';
import type { SlackMessage } from './requests/slack-message.js';
import { type Inbox, keyOf, type Waiting } from './store/inbox.js';
import { type Threads, userOf } from './store/threads.js';

const THINKING = '_Thinking…_';

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

  constructor(parts: AnswersParts) {
    this.#parts = parts;
  }

  /** Begins to answer a message that the inbox keeps. */
  begin(waiting: Waiting, attempts = 1): void {
    const work = this.#answerOrPostpone(waiting, attempts);
    this.#underWay.add(work);
    void work.finally(() => this.#underWay.delete(work));
  }

  /** Settles once nothing is being answered. */
  async settled(): Promise<void> {
    while (this.#underWay.size > 0) await Promise.all(this.#underWay);
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
