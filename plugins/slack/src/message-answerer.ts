import { type Logger, OracleError, type PluginTurns } from '@sibyl/plugin-kit';
import type { ReplyPart } from '@sibyl/protocol';
import type { SlackMessage } from './delivery.js';
import { FILES_FIELD } from './files.js';
import { getMessageKey, getOwner, type Inbox, type Waiting } from './inbox.js';
import { LiveReply, MAX_LENGTH, type ReplyPlace, type SlackChannel } from './live-reply.js';
import { splitMessage, toMrkdwn } from './mrkdwn.js';
import { getUserId, type Threads } from './threads.js';
import { type Block, renderQuestion, stopButton } from './views.js';

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
    let turn: StartedTurn | undefined;
    try {
      turn = await this.startTurn(message);
    } catch (error) {
      // Server errors are worth another attempt; the user sees the others.
      if (!(error instanceof OracleError) || error.status >= 500) throw error;
      return this.createReply({ message, replies }).finish(`:warning: ${error.message}`);
    }
    if (!turn) return;
    const { sessionId } = turn;
    const reply = this.createReply({ message, replies }, stopButton(sessionId));
    const isPaused = await relay(turn.parts, reply);
    if (isPaused) await this.ask(message, sessionId);
  }

  private createReply({ message, replies }: Waiting, buttons?: Block): Reply {
    const { inbox, channel, pauseMs } = this.deps;
    const onPosted = (posted: readonly string[]) => inbox.saveReplies(message, posted);
    const { responseUrl } = message;
    if (responseUrl) return new PrivateReply({ channel, message, responseUrl, replies, onPosted });
    return new LiveReply({ channel, place: message, replies, onPosted, pauseMs, buttons });
  }

  /** Shows what the turn wants to know. */
  private async ask(message: SlackMessage, sessionId: string): Promise<void> {
    const { turns, channel } = this.deps;
    const place = await findPlace(message, channel);
    for (const question of await turns.pending({ owner: getOwner(message), sessionId })) {
      const [text, buttons] = renderQuestion(question, sessionId);
      await channel.post(place, { text, buttons });
    }
  }

  /** The turn's reply; none if the message only stopped the running turn. */
  private async startTurn(message: SlackMessage): Promise<StartedTurn | undefined> {
    const { threads, turns } = this.deps;
    const sessionId = await threads.openSession(message);
    const { files, runId } = message;
    if (runId) {
      const run = { owner: getOwner(message), runId };
      return { sessionId, parts: await turns.join(run) };
    }
    const user = getUserId(message);
    if (isStop(message) && (await turns.abort({ user, sessionId }))) return undefined;
    const turn = {
      user,
      message: message.text,
      client: 'slack',
      idempotencyKey: getMessageKey(message),
      ...(files && { metadata: { [FILES_FIELD]: files } }),
    };
    try {
      return { sessionId, parts: await turns.start({ ...turn, sessionId }) };
    } catch (error) {
      if (!(error instanceof OracleError) || error.code !== 'session_not_found') throw error;
      await threads.remove(message, sessionId);
      const fresh = await threads.openSession(message);
      return { sessionId: fresh, parts: await turns.start({ ...turn, sessionId: fresh }) };
    }
  }
}

interface StartedTurn {
  readonly sessionId: string;
  readonly parts: AsyncIterable<ReplyPart>;
}

/** Where to post for a message: its thread, or the direct conversation if only its user may see it. */
async function findPlace(message: SlackMessage, channel: SlackChannel): Promise<ReplyPlace> {
  if (!message.responseUrl) return message;
  return { channel: await channel.openDirect(message.user) };
}

/** An answer in Slack. */
interface Reply {
  /** Shows a part of it. */
  show(markdown: string): void;
  finish(markdown: string): Promise<void>;
}

/** Slack accepts five answers to a command. */
const MAX_RESPONSES = 4;

interface PrivateReplyDeps {
  readonly channel: SlackChannel;
  readonly message: SlackMessage;
  readonly responseUrl: string;
  readonly replies: readonly string[];
  readonly onPosted: (replies: readonly string[]) => Promise<void>;
}

/** The answer to a slash command, which only its user sees: as a whole, since Slack limits how often it may change. */
class PrivateReply implements Reply {
  constructor(private readonly deps: PrivateReplyDeps) {}

  show(): void {}

  async finish(markdown: string): Promise<void> {
    const { channel, responseUrl, message, onPosted } = this.deps;
    const texts = splitMessage(toMrkdwn(markdown), MAX_LENGTH);
    const posted = [...this.deps.replies];
    const respond = async (text: string) => {
      const body = { response_type: 'ephemeral', replace_original: false, text };
      await channel.respond(responseUrl, body);
    };
    const direct = texts.length > MAX_RESPONSES ? undefined : respond;
    const post = await this.choose(direct, message.user);
    for (const [i, text] of texts.entries()) {
      // An earlier attempt has sent it.
      if (posted[i] !== undefined) continue;
      await post(text);
      posted.push(String(i));
      await onPosted(posted);
    }
  }

  /** In the direct conversation if the answer is too long. */
  private async choose(
    respond: ((text: string) => Promise<void>) | undefined,
    user: string,
  ): Promise<(text: string) => Promise<void>> {
    const { channel } = this.deps;
    let place: ReplyPlace | undefined;
    const postDirectly = async (text: string) => {
      place ??= { channel: await channel.openDirect(user) };
      await channel.post(place, { text });
    };
    if (!respond) return postDirectly;
    // The address expires after half an hour.
    return (text) => respond(text).catch(() => postDirectly(text));
  }
}

const isStop = ({ text }: SlackMessage) => /^stop[.!]*$/i.test(text);

/** Shows a reply while it streams; whether the turn waits for an answer of the user. */
async function relay(parts: AsyncIterable<ReplyPart>, reply: Reply): Promise<boolean> {
  let text = '';
  let note = '';
  let isPaused = false;
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
        isPaused = (data.pending ?? []).length > 0;
        note ||= isPaused ? PAUSED : (ENDINGS[data.status] ?? '');
        break;
      default:
    }
  }
  await reply.finish([text, note].filter((part) => part.trim()).join('\n\n') || NOTHING);
  return isPaused;
}

const NOTHING = '_No answer._';
const PAUSED = '_I have a question._';

const ENDINGS: Readonly<Record<string, string>> = {
  aborted: '_Stopped._',
  interrupted: '_Interrupted. Ask again to get the whole answer._',
  failed: ':warning: _The answer failed._',
};
