import {
  type Inbox,
  OracleError,
  type PendingQuestion,
  type PluginTurns,
  type ResultAddresses,
  type Waiting,
} from '@sibyl/plugin-kit';
import type { ReplyPart } from '@sibyl/protocol';
import type { MatrixChannel } from './chat-channel.js';
import { FILE_FIELD, type MatrixMessage, toOwner, toTransactionId } from './chat-events.js';
import type { ChatLinks } from './chat-links.js';
import { describeQuestion, readAnswer, readDenial, renderText } from './chat-render.js';
import type { ChatThreads } from './chat-threads.js';
import type { ChatUser, ChatUsers } from './chat-users.js';
import { MatrixError } from './homeserver.js';

/** Homeservers show a user as writing for half a minute. */
const TYPING_EVERY_MS = 20_000;
/** In front of the id of a run among the stored replies: the message has answered a question. */
const RUN_MARK = 'run ';

interface ChatAnswererDeps {
  readonly inbox: Pick<Inbox<MatrixMessage>, 'saveReplies' | 'isWaiting'>;
  readonly channel: MatrixChannel;
  readonly threads: ChatThreads;
  readonly users: ChatUsers;
  readonly links: ChatLinks;
  readonly results: ResultAddresses;
  readonly turns: PluginTurns;
  readonly isAllowed: (userId: string) => Promise<boolean>;
  readonly readAccount: () => Promise<string>;
  /** Where users approve calls. */
  readonly page: string;
}

/** Answers messages in rooms: each becomes a turn, whose reply is sent to the thread. */
export class ChatAnswerer {
  constructor(private readonly deps: ChatAnswererDeps) {}

  /** Throws if another attempt may succeed. */
  async answer(waiting: Waiting<MatrixMessage>): Promise<void> {
    const { message } = waiting;
    switch (message.kind) {
      case 'invite':
        return this.acceptInvite(message);
      case 'encrypted':
        return this.say(waiting, ENCRYPTED);
      case 'message':
        return this.answerMessage(waiting);
      default:
        message.kind satisfies never;
    }
  }

  private async acceptInvite({ roomId, sender }: MatrixMessage): Promise<void> {
    const { channel, isAllowed } = this.deps;
    try {
      await ((await isAllowed(sender)) ? channel.join(roomId) : channel.leave(roomId));
    } catch (error) {
      // The invitation was withdrawn, or the room does not exist any more.
      if (error instanceof MatrixError && [400, 403, 404].includes(error.status)) return;
      throw error;
    }
  }

  private async answerMessage(waiting: Waiting<MatrixMessage>): Promise<void> {
    const { message } = waiting;
    const command = await this.runCommand(message);
    if (command !== undefined) return this.say(waiting, command);
    const { user, ended } = await this.deps.users.find(message.sender);
    try {
      const started = await this.startOrAnswer(waiting, user);
      if (typeof started === 'string') return await this.say(waiting, started);
      await this.relay(waiting, user, started, ended);
    } catch (error) {
      // Server errors are worth another attempt; the user sees the others.
      if (!(error instanceof OracleError) || error.status >= 500) throw error;
      await this.say(waiting, `⚠️ ${error.message}`);
    }
  }

  private async runCommand(message: MatrixMessage): Promise<string | undefined> {
    const { links } = this.deps;
    const { text, sender } = message;
    const [, code] = /^!?link\s+([A-Z0-9]{4}-?[A-Z0-9]{4})$/i.exec(text) ?? [];
    if (code !== undefined) {
      const owner = await links.confirm(sender, code);
      return owner === undefined
        ? 'This code is not valid for your account, or has expired. Get another one with: sibyl matrix link'
        : `Your account is linked: I answer ${sender} as ${owner} from now on. "unlink" ends this.`;
    }
    if (!/^!?unlink[.!]*$/i.test(text)) return this.changeResults(message);
    const link = await links.find(sender);
    if (!link) return 'Your account is not linked.';
    await links.remove(link);
    return `Your account is no longer linked to ${link.owner}.`;
  }

  private async changeResults({ text, sender, roomId }: MatrixMessage) {
    const { results } = this.deps;
    const [, choice] = /^!?results (here|off)[.!]*$/i.exec(text) ?? [];
    const place = { owner: toOwner(sender), place: roomId };
    switch (choice?.toLowerCase()) {
      case 'here':
        return `Results of schedules are posted in this room if they are sent to this address: \`${await results.open(place)}\`\n\nAll who know it can have results posted here. "results off" closes it.`;
      case 'off':
        return (await results.close(place)) ? 'Closed.' : 'It is not open.';
      default:
        return undefined;
    }
  }

  /** The turn to show, or what to say instead. */
  private async startOrAnswer(
    { message, replies }: Waiting<MatrixMessage>,
    user: ChatUser,
  ): Promise<StartedTurn | string> {
    const { turns } = this.deps;
    const { owner } = user;
    const sessionId = await this.openSession(message, user);
    const [mark = ''] = replies;
    if (mark.startsWith(RUN_MARK)) {
      const runId = mark.slice(RUN_MARK.length);
      return { sessionId, mark: [mark], parts: await turns.join({ owner, runId }) };
    }
    if (isStop(message)) return (await user.abort(sessionId)) ? 'Stopped.' : 'Nothing is running.';
    const [question] = await turns.pending({ owner, sessionId });
    if (question) return this.answerQuestion(message, { owner, sessionId, question });
    return { sessionId, mark: [], parts: await this.startTurn(message, user, sessionId) };
  }

  /** Continues the turn that waits for the user. */
  private async answerQuestion(
    message: MatrixMessage,
    { owner, sessionId, question }: Asked,
  ): Promise<StartedTurn | string> {
    const { turns, inbox, page } = this.deps;
    const { id } = question;
    const denial = question.isApproval ? readDenial(message.text) : undefined;
    if (question.isApproval && !denial) return describeQuestion(question, page);
    const { runId, pending } = denial
      ? await turns.deny({ owner, id, ...denial })
      : await turns.answer({ owner, id, value: readAnswer(question, message.text) });
    const [next] = pending ? await turns.pending({ owner, sessionId }) : [];
    if (next) return describeQuestion(next, page);
    const mark = [`${RUN_MARK}${runId}`];
    await inbox.saveReplies(message, mark);
    return { sessionId, mark, parts: await turns.join({ owner, runId }) };
  }

  private async startTurn(message: MatrixMessage, user: ChatUser, sessionId: string) {
    const turn = {
      message: message.text,
      idempotencyKey: message.eventId,
      ...(message.file && { metadata: { [FILE_FIELD]: message.file } }),
    };
    try {
      return await user.start({ ...turn, sessionId });
    } catch (error) {
      if (!(error instanceof OracleError) || error.code !== 'session_not_found') throw error;
      await this.deps.threads.remove({ ...message, owner: user.owner }, sessionId);
      return user.start({ ...turn, sessionId: await this.openSession(message, user) });
    }
  }

  private async openSession(message: MatrixMessage, user: ChatUser): Promise<string> {
    const { threads } = this.deps;
    const key = { owner: user.owner, roomId: message.roomId, thread: message.thread };
    const known = await threads.find(key);
    return known ?? threads.add(key, message.sender, await user.openSession());
  }

  /** Sends the reply of a turn when it is complete: edits of a message stay in a room forever. */
  private async relay(
    waiting: Waiting<MatrixMessage>,
    { owner }: ChatUser,
    { sessionId, parts, mark }: StartedTurn,
    notice: string | undefined,
  ): Promise<void> {
    const { turns, page } = this.deps;
    const { message } = waiting;
    const { text, isPaused } = await this.whileTyping(message.roomId, () => readReply(parts));
    const questions = isPaused ? await turns.pending({ owner, sessionId }) : [];
    const asked = questions.map((question) => describeQuestion(question, page));
    const shown = [notice && `_${notice}_`, text, ...asked].filter(Boolean).join('\n\n');
    await this.say(
      { message, replies: waiting.replies.slice(mark.length) },
      shown || NOTHING,
      mark,
    );
  }

  /** Sends a text to the thread, without what an earlier attempt has sent. */
  private async say(
    { message, replies }: Waiting<MatrixMessage>,
    markdown: string,
    mark: readonly string[] = [],
  ): Promise<void> {
    const { inbox, channel } = this.deps;
    // Its sender has deleted it meanwhile.
    if (!(await inbox.isWaiting(message))) return;
    const sent = [...replies];
    for (const [i, content] of renderText(markdown).entries()) {
      if (sent[i] !== undefined) continue;
      sent.push(await channel.send(message, content, toTransactionId(message.eventId, `${i}`)));
      await inbox.saveReplies(message, [...mark, ...sent]);
    }
  }

  private async whileTyping<T>(roomId: string, work: () => Promise<T>): Promise<T> {
    const { channel, readAccount } = this.deps;
    const account = await readAccount();
    const show = () => void channel.showTyping(roomId, account, true);
    show();
    const timer = setInterval(show, TYPING_EVERY_MS);
    timer.unref();
    try {
      return await work();
    } finally {
      clearInterval(timer);
      void channel.showTyping(roomId, account, false);
    }
  }
}

interface StartedTurn {
  readonly sessionId: string;
  readonly parts: AsyncIterable<ReplyPart>;
  /** What the stored replies begin with. */
  readonly mark: readonly string[];
}

interface Asked {
  readonly owner: string;
  readonly sessionId: string;
  readonly question: PendingQuestion;
}

const isStop = ({ text }: MatrixMessage) => /^stop[.!]*$/i.test(text);

/** Reads a reply to its end; whether the turn waits for an answer of the user. */
async function readReply(
  parts: AsyncIterable<ReplyPart>,
): Promise<{ readonly text: string; readonly isPaused: boolean }> {
  let text = '';
  let note = '';
  let isPaused = false;
  for await (const { event, data } of parts) {
    if (event === 'message') text += data.content;
    if (event === 'error') note = `⚠️ ${data.error}`;
    if (event !== 'done') continue;
    text = data.partialText ?? text;
    isPaused = data.pending !== undefined && data.pending.length > 0;
    if (!isPaused) note ||= ENDINGS[data.status] ?? '';
  }
  return { text: [text, note].filter((part) => part.trim()).join('\n\n'), isPaused };
}

const NOTHING = '_No answer._';
const ENCRYPTED =
  '**This room is end-to-end encrypted, so I cannot read its messages.** Encryption of a room cannot be turned off: please invite me to a room without it.';

const ENDINGS: Readonly<Record<string, string>> = {
  aborted: '_Stopped._',
  interrupted: '_Interrupted. Ask again to get the whole answer._',
  failed: '⚠️ _The answer failed._',
};
