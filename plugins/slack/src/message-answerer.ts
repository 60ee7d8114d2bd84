import { type Logger, OracleError, type PluginTurns } from '@sibyl/plugin-kit';
import type { ReplyPart } from '@sibyl/protocol';
import type { SlackMessage } from './delivery.js';
import { getMessageKey, type Inbox, type Waiting } from './inbox.js';
import { LiveReply, type SlackChannel } from './live-reply.js';
import { getUserId, type Threads } from './threads.js';

const THINKING = '_Thinking…_';
/** Messages that are answered at the same time; the others wait in the database. */
const MAX_RUNNING = 100;

interface MessageAnswererDeps {
  readonly inbox: Inbox;
  readonly threads: Threads;
  readonly turns: PluginTurns;
  readonly channel: SlackChannel;
  readonly logger: Logger;
  /** Minimum time between two updates of an answer. */
  readonly pauseMs: number;
}

/** Answers messages: each becomes a turn, whose reply Slack shows while it streams. */
export class MessageAnswerer {
  private readonly deps: MessageAnswererDeps;
  private readonly running = new Set<Promise<void>>();
  /** Whether messages wait in the inbox because the limit was reached. */
  private hasMore = false;
  private isStopping = false;

  constructor(deps: MessageAnswererDeps) {
    this.deps = deps;
  }

  /** Starts to answer a message of the inbox, or leaves it there while the limit is reached. */
  start(waiting: Waiting, attempts = 1): void {
    const isFull = this.free <= 0;
    this.hasMore ||= isFull;
    this.track(isFull ? this.leave(waiting) : this.answerOrPostpone(waiting, attempts));
  }

  /** Starts to answer unclaimed messages of the inbox, up to the limit. */
  async takeOver(): Promise<void> {
    const free = this.free;
    if (free <= 0) return;
    const taken = await this.deps.inbox.takeOver(free);
    this.hasMore = taken.length === free;
    for (const { attempts, ...waiting } of taken) this.start(waiting, attempts);
  }

  /** Starts no more answers; resolves once the running ones have ended. */
  async close(): Promise<void> {
    this.isStopping = true;
    while (this.running.size > 0) await Promise.all(this.running);
  }

  /** How many more messages may be answered now. */
  private get free(): number {
    return this.isStopping ? 0 : MAX_RUNNING - this.running.size;
  }

  private track(work: Promise<void>): void {
    this.running.add(work);
    void work.finally(() => {
      this.running.delete(work);
      if (this.hasMore && this.free > 0) this.refill();
    });
  }

  private refill(): void {
    this.hasMore = false;
    this.takeOver().catch((err) => {
      // The next round tries again.
      this.deps.logger.warn({ err }, 'cannot read waiting messages from Slack');
    });
  }

  /** Another process, or this one later, can take it over immediately. */
  private async leave({ message }: Waiting): Promise<void> {
    const { inbox, logger } = this.deps;
    await inbox.release(message).catch((err) => {
      logger.error({ err, eventId: message.eventId }, 'cannot write to the inbox');
    });
  }

  private async answerOrPostpone(waiting: Waiting, attempts: number): Promise<void> {
    const { inbox, logger } = this.deps;
    const { message } = waiting;
    try {
      await this.answer(waiting);
      await inbox.finish(message);
    } catch (err) {
      const about = { err, eventId: message.eventId, channel: message.channel, attempts };
      logger.warn(about, 'a message from Slack was not answered');
      await inbox.postpone(message, attempts).catch((error) => {
        // After its lease ends, it can be taken over.
        logger.error({ err: error, eventId: message.eventId }, 'cannot write to the inbox');
      });
    }
  }

  private async answer({ message, replies }: Waiting): Promise<void> {
    const { inbox, channel, pauseMs } = this.deps;
    const reply = new LiveReply({
      channel,
      place: message,
      replies,
      onPosted: (posted) => inbox.saveReplies(message, posted),
      pauseMs,
    });
    try {
      const parts = await this.startTurn(message);
      if (parts) await relay(parts, reply);
    } catch (error) {
      // Server errors are worth another attempt; the user sees the others.
      if (!(error instanceof OracleError) || error.status >= 500) throw error;
      await reply.finish(`:warning: ${error.message}`);
    }
  }

  /** The turn's reply; none if the message only stopped the running turn. */
  private async startTurn(message: SlackMessage): Promise<AsyncIterable<ReplyPart> | undefined> {
    const { threads, turns } = this.deps;
    const sessionId = await threads.openSession(message);
    const user = getUserId(message);
    if (isStop(message) && (await turns.abort({ user, sessionId }))) return undefined;
    const turn = { user, sessionId, message: message.text, client: 'slack' };
    try {
      return await turns.start({ ...turn, idempotencyKey: getMessageKey(message) });
    } catch (error) {
      if (!(error instanceof OracleError) || error.code !== 'session_not_found') throw error;
      await threads.remove(message, sessionId);
      const fresh = await threads.openSession(message);
      return turns.start({ ...turn, sessionId: fresh, idempotencyKey: getMessageKey(message) });
    }
  }
}

const isStop = ({ text }: SlackMessage) => /^stop[.!]*$/i.test(text);

/** Shows a reply while it streams. */
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

const NOTHING = '_No answer._';

const ENDINGS: Readonly<Record<string, string>> = {
  aborted: '_Stopped._',
  interrupted: '_Interrupted. Ask again to get the whole answer._',
  failed: ':warning: _The answer failed._',
};
