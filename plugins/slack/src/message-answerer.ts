import { OracleError, type PluginTurns, type Waiting } from '@sibyl/plugin-kit';
import type { ReplyPart } from '@sibyl/protocol';
import type { SlackMessage } from './delivery.js';
import { FILES_FIELD } from './files.js';
import { getMessageKey, getOwner, type SlackInbox } from './inbox.js';
import { LiveReply, MAX_LENGTH, type ReplyPlace, type SlackChannel } from './live-reply.js';
import { splitMessage, toMrkdwn } from './mrkdwn.js';
import { getUserId, type Threads } from './threads.js';
import { type Block, renderQuestion, stopButton } from './views.js';

const THINKING = '_Thinking…_';

interface MessageAnswererDeps {
  readonly inbox: Pick<SlackInbox, 'saveReplies'>;
  readonly threads: Threads;
  readonly turns: PluginTurns;
  readonly channel: SlackChannel;
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
  async answer({ message, replies }: Waiting<SlackMessage>): Promise<void> {
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

  private createReply({ message, replies }: Waiting<SlackMessage>, buttons?: Block): Reply {
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
    const { files, runId } = message;
    const sessionId = message.sessionId ?? (await threads.openSession(message));
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
