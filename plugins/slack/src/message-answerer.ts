import { type Logger, OracleError } from '@sibyl/plugin-kit';
import type { PluginTurns, Waiting } from '@sibyl/plugin-kit/chat';
import type { ReplyPart } from '@sibyl/protocol';
import type { SlackMessage } from './delivery.js';
import { CLIENT, FILES_FIELD } from './files.js';
import { getMessageKey, getOwner, type SlackInbox, toContinuation } from './inbox.js';
import { LiveReply, MAX_LENGTH, type ReplyPlace, type SlackChannel } from './live-reply.js';
import { splitMessage, toMrkdwn } from './mrkdwn.js';
import { getUserId, type Threads } from './threads.js';
import { type Block, renderEnded, renderQuestion, stopButton } from './views.js';

const THINKING = '_Thinking…_';
/** In front of the id and the post of a question among the stored replies. */
const QUESTION_MARK = 'question ';
/** In front of the run among the stored replies that was shown until it paused: the turn may have another one by now. */
const RUN_MARK = 'run ';

interface MessageAnswererDeps {
  readonly inbox: Pick<SlackInbox, 'saveReplies'>;
  readonly threads: Threads;
  readonly turns: PluginTurns;
  readonly channel: SlackChannel;
  /** Stores a message that waits for a paused turn. */
  readonly follow: (message: SlackMessage) => Promise<void>;
  readonly logger: Logger;
  /** Minimum time between two updates of an answer. */
  readonly pauseMs: number;
}

/** Answers messages: each becomes a turn, whose reply Slack shows while it streams. */
export class MessageAnswerer {
  private readonly deps: MessageAnswererDeps;

  constructor(deps: MessageAnswererDeps) {
    this.deps = deps;
  }

  /** Shows the answer to a message; throws if another attempt may succeed. */
  async answer(waiting: Waiting<SlackMessage>): Promise<void> {
    const { message } = waiting;
    const shown = readShown(waiting.replies);
    let turn: StartedTurn | undefined;
    try {
      turn = await this.startTurn(message, shown);
    } catch (error) {
      // Server errors are worth another attempt; the user sees the others.
      if (!(error instanceof OracleError) || error.status >= 500) throw error;
      return this.createReply(message, shown).finish(`:warning: ${error.message}`);
    }
    if (!turn) return;
    const { sessionId } = turn;
    const reply = this.createReply(message, shown, stopButton(sessionId));
    const paused = await relay(turn.parts, reply);
    if (paused) await this.ask({ ...message, sessionId }, shown, paused);
  }

  private createReply(message: SlackMessage, shown: Shown, buttons?: Block): Reply {
    const { channel, pauseMs } = this.deps;
    const { replies } = shown;
    const onPosted = (posted: readonly string[]) => {
      shown.replies = [...posted];
      return this.save(message, shown);
    };
    const { responseUrl } = message;
    if (responseUrl) return new PrivateReply({ channel, message, responseUrl, replies, onPosted });
    return new LiveReply({ channel, place: message, replies, onPosted, pauseMs, buttons });
  }

  private save(message: SlackMessage, { replies, runId, questions }: Shown): Promise<void> {
    const run = runId === undefined ? [] : [`${RUN_MARK}${runId}`];
    const marks = questions.map(({ id, ts }) => `${QUESTION_MARK}${id} ${ts}`);
    return this.deps.inbox.saveReplies(message, [...replies, ...run, ...marks]);
  }

  /** Shows what the turn wants to know, except what an earlier attempt has shown, and waits until it continues. */
  private async ask(
    message: SlackMessage & { readonly sessionId: string },
    shown: Shown,
    { runId }: PausedRun,
  ): Promise<void> {
    const { turns, channel, follow } = this.deps;
    const { team, user, sessionId } = message;
    shown.runId = runId;
    await this.save(message, shown);
    const place = await findPlace(message, channel);
    const pending = await turns.pending({ owner: getOwner(message), sessionId });
    for (const question of pending.filter((one) => one.runId === runId)) {
      const { id } = question;
      if (shown.questions.some((one) => one.id === id)) continue;
      const [text, buttons] = renderQuestion(question, sessionId);
      shown.questions.push({ id, ts: await channel.post(place, { text, buttons }) });
      await this.save(message, shown);
    }
    const { channel: id, thread } = place;
    const continued = { team, user, channel: id, thread, sessionId };
    await follow(toContinuation(continued, { runId, questions: shown.questions }));
  }

  /** Finds what continues a paused turn; none if the turn has ended instead. Its questions cannot be answered any more. */
  private async findContinuation(message: SlackMessage): Promise<string | undefined> {
    const { turns, channel, logger } = this.deps;
    const { runId = '', questions: posted = [] } = message.paused ?? {};
    const continuation = await turns.continuation({ owner: getOwner(message), runId });
    if (!continuation) throw new Error('the turn still waits for its user');
    for (const { id, ts } of posted) {
      const text = renderEnded(continuation.interrupts.find((one) => one.id === id));
      // Workspaces may forbid to change old messages. The answer is posted all the same.
      await channel
        .update(message, ts, { text })
        .catch((err) => logger.warn({ err }, 'cannot change a question in Slack'));
    }
    return continuation.runId;
  }

  /** The turn's reply; none if the message only stopped the running turn. */
  private async startTurn(message: SlackMessage, shown: Shown): Promise<StartedTurn | undefined> {
    const { threads, turns } = this.deps;
    const { files, paused } = message;
    const sessionId = message.sessionId ?? (await threads.openSession(message));
    const known = message.runId ?? shown.runId;
    const runId = paused ? await this.findContinuation(message) : known;
    if (runId) {
      const run = { owner: getOwner(message), runId };
      return { sessionId, parts: await turns.join(run) };
    }
    if (paused) return undefined;
    const user = getUserId(message);
    if (isStop(message) && (await turns.abort({ user, sessionId }))) return undefined;
    const turn = {
      user,
      message: message.text,
      client: CLIENT,
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

/** What Slack shows for a message: the posts of its answer, and those of questions. */
interface Shown {
  replies: readonly string[];
  runId: string | undefined;
  readonly questions: { readonly id: string; readonly ts: string }[];
}

function readShown(stored: readonly string[]): Shown {
  const isQuestion = (reply: string) => reply.startsWith(QUESTION_MARK);
  const isRun = (reply: string) => reply.startsWith(RUN_MARK);
  const questions = stored.filter(isQuestion).map((mark) => {
    const [, id = '', ts = ''] = mark.split(' ');
    return { id, ts };
  });
  const replies = stored.filter((reply) => !isQuestion(reply) && !isRun(reply));
  return { replies, runId: stored.find(isRun)?.slice(RUN_MARK.length), questions };
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

interface PausedRun {
  readonly runId: string;
}

/** Shows a reply while it streams; returns the run if it waits for an answer of the user. */
async function relay(
  parts: AsyncIterable<ReplyPart>,
  reply: Reply,
): Promise<PausedRun | undefined> {
  let text = '';
  let note = '';
  let paused: PausedRun | undefined;
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
        paused = data.pending?.length ? { runId: data.runId } : undefined;
        note ||= paused ? PAUSED : (ENDINGS[data.status] ?? '');
        break;
      default:
    }
  }
  await reply.finish([text, note].filter((part) => part.trim()).join('\n\n') || NOTHING);
  return paused;
}

const NOTHING = '_No answer._';
const PAUSED = '_I have a question._';

const ENDINGS: Readonly<Record<string, string>> = {
  aborted: '_Stopped._',
  interrupted: '_Interrupted. Ask again to get the whole answer._',
  failed: ':warning: _The answer failed._',
};
