import { OracleError } from '@sibyl/plugin-kit';
import type {
  Inbox,
  OpenInterrupt,
  PluginTurns,
  ResultAddresses,
  Waiting,
} from '@sibyl/plugin-kit/chat';
import type { ReplyPart } from '@sibyl/protocol';
import type { MatrixChannel } from './chat-channel.js';
import {
  FILE_FIELD,
  type MatrixMessage,
  toContinuation,
  toOwner,
  toTransactionId,
} from './chat-events.js';
import type { ChatLinks } from './chat-links.js';
import {
  Answer,
  describeEnds,
  describeQuestion,
  ENCRYPTED,
  readAnswer,
  readDenial,
  readReply,
  renderText,
} from './chat-render.js';
import type { ChatThreads, ChatUser, ChatUsers } from './chat-threads.js';
import { MatrixError } from './homeserver.js';

/** Homeservers show a user as writing for half a minute. */
const TYPING_EVERY_MS = 20_000;
/** In front of an answer among the stored replies: the message has answered a question. */
const ANSWER_MARK = 'answer ';
/** In front of the run to show among the stored replies: the turn may have another one by now. */
const RUN_MARK = 'run ';
const readMark = (mark: string): Answer => Answer.parse(JSON.parse(mark.slice(ANSWER_MARK.length)));
const isMark = (reply: string) => reply.startsWith(ANSWER_MARK) || reply.startsWith(RUN_MARK);

interface ChatAnswererDeps {
  readonly inbox: Pick<Inbox<MatrixMessage>, 'saveReplies' | 'isWaiting'>;
  readonly channel: MatrixChannel;
  readonly threads: ChatThreads;
  readonly users: ChatUsers;
  readonly links: ChatLinks;
  readonly results: ResultAddresses;
  readonly turns: PluginTurns;
  /** Stores a message that waits for a paused turn. */
  readonly follow: (message: MatrixMessage) => Promise<void>;
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
      case 'continued':
        return this.showContinuation(waiting);
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
      if (started) await this.relay(waiting, started, ended && `_${ended}_`);
    } catch (error) {
      await this.report(waiting, error);
    }
  }

  /** Server errors are worth another attempt; the user sees the others. */
  private async report(waiting: Waiting<MatrixMessage>, error: unknown): Promise<void> {
    if (!(error instanceof OracleError) || error.status >= 500) throw error;
    await this.say(waiting, `⚠️ ${error.message}`);
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

  /** The turn to show, or what to say instead; nothing if the message has continued a turn. */
  private async startOrAnswer(
    waiting: Waiting<MatrixMessage>,
    user: ChatUser,
  ): Promise<StartedTurn | string | undefined> {
    const { turns } = this.deps;
    const { message } = waiting;
    const { owner } = user;
    const sessionId = await this.openSession(message, user);
    const [mark = ''] = waiting.replies;
    if (mark.startsWith(RUN_MARK)) {
      const runId = mark.slice(RUN_MARK.length);
      return { owner, sessionId, parts: await turns.join({ owner, runId }) };
    }
    if (mark.startsWith(ANSWER_MARK)) return this.sendAnswer(waiting, readMark(mark));
    if (isStop(message)) return (await user.abort(sessionId)) ? 'Stopped.' : 'Nothing is running.';
    const [question] = await turns.pending({ owner, sessionId });
    if (question) return this.answerQuestion(message, { owner, sessionId, question });
    return { owner, sessionId, parts: await this.startTurn(message, user, sessionId) };
  }

  /** Continues the turn that waits for the user. The answer is stored first: a repeated attempt must not answer the next question. */
  private async answerQuestion(
    message: MatrixMessage,
    { owner, sessionId, question }: Asked,
  ): Promise<string | undefined> {
    const { inbox, follow, page } = this.deps;
    const { id, runId, isApproval } = question;
    const denial = isApproval ? readDenial(message.text) : undefined;
    if (isApproval && !denial) return describeQuestion(question, page);
    const value = denial ? undefined : readAnswer(question, message.text);
    const answer = { owner, sessionId, runId, id, denial, value };
    // Known already, except if the host has died.
    await follow(toContinuation(message, { owner, sessionId, runId }));
    const replies = [`${ANSWER_MARK}${JSON.stringify(answer)}`];
    await inbox.saveReplies(message, replies);
    return this.sendAnswer({ message, replies }, answer);
  }

  /** Asks what the turn still wants to know; the rest of the turn is shown once it continues. */
  private async sendAnswer(waiting: Waiting<MatrixMessage>, answer: Answer): Promise<undefined> {
    const { turns, page } = this.deps;
    const { owner, sessionId, runId, id, denial, value } = answer;
    try {
      await (denial ? turns.deny({ owner, id, ...denial }) : turns.answer({ owner, id, value }));
      const pending = await turns.pending({ owner, sessionId });
      const next = pending.find((question) => question.runId === runId);
      if (next) await this.say(waiting, describeQuestion(next, page));
    } catch (error) {
      await this.report(waiting, error);
    }
  }

  /** Shows how a turn continues that has waited for its user, wherever the user has answered. */
  private async showContinuation(waiting: Waiting<MatrixMessage>): Promise<void> {
    const { turns, users } = this.deps;
    const { paused, sender } = waiting.message;
    if (!paused) return;
    const { user, ended } = await users.find(sender);
    const { owner, sessionId } = paused;
    // The room does not see what belongs to an account that was unlinked meanwhile.
    if (user.owner !== owner) return ended ? this.say(waiting, `_${ended}_`) : undefined;
    const continuation = await turns.continuation(paused);
    if (!continuation) throw new Error('the turn still waits for its user');
    const { runId, isStopped, interrupts } = continuation;
    const ends = describeEnds(interrupts);
    if (runId === undefined) return ends && !isStopped ? this.say(waiting, ends) : undefined;
    const parts = await turns.join({ owner, runId });
    await this.relay(waiting, { owner, sessionId, parts }, ends);
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
    { owner, sessionId, parts }: StartedTurn,
    notice: string | undefined,
  ): Promise<void> {
    const { turns, page, follow, inbox } = this.deps;
    const { message } = waiting;
    const { text, pausedRun } = await this.whileTyping(message.roomId, () => readReply(parts));
    const pending = pausedRun === undefined ? [] : await turns.pending({ owner, sessionId });
    const asked = pending
      .filter(({ runId }) => runId === pausedRun)
      .map((question) => describeQuestion(question, page));
    const shown = [notice, text, ...asked].filter(Boolean).join('\n\n');
    if (pausedRun === undefined) return this.say(waiting, shown || NOTHING);
    const replies = [`${RUN_MARK}${pausedRun}`, ...waiting.replies.filter((one) => !isMark(one))];
    await inbox.saveReplies(message, replies);
    // If there is nothing to ask, the turn has continued meanwhile and is shown next.
    if (shown) await this.say({ message, replies }, shown);
    await follow(toContinuation(message, { owner, sessionId, runId: pausedRun }));
  }

  /** Sends a text to the thread, without what an earlier attempt has sent. */
  private async say({ message, replies }: Waiting<MatrixMessage>, markdown: string): Promise<void> {
    const { inbox, channel } = this.deps;
    // Its sender has deleted it meanwhile.
    if (!(await inbox.isWaiting(message))) return;
    const marks = replies.filter(isMark);
    const sent = replies.filter((reply) => !isMark(reply));
    for (const content of renderText(markdown, sent.length)) {
      const transactionId = toTransactionId(message.eventId, `${sent.length}`);
      sent.push(await channel.send(message, content, transactionId));
      await inbox.saveReplies(message, [...marks, ...sent]);
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
  readonly owner: string;
  readonly sessionId: string;
  readonly parts: AsyncIterable<ReplyPart>;
}

interface Asked {
  readonly owner: string;
  readonly sessionId: string;
  readonly question: OpenInterrupt;
}

const isStop = ({ text }: MatrixMessage) => /^stop[.!]*$/i.test(text);

const NOTHING = '_No answer._';
