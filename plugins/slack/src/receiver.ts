import { type Logger, OracleError, type RoomPlace, sharedKey } from '@sibyl/plugin-kit';
import type { InboxWorker, PluginTurns, ResultAddresses } from '@sibyl/plugin-kit/chat';
import { describeIssues, PreferencesPatch, type UserPreferences } from '@sibyl/protocol';
import { z } from 'zod';
import { type Delivery, parseMessage, type SlackMessage } from './delivery.js';
import { getOwner, type SlackInbox, toContinuation } from './inbox.js';
import type { SlackAction, SlackCommand, SlackSubmission } from './interactions.js';
import type { SlackChannel } from './live-reply.js';
import { COMMANDS, getUserId, type Threads } from './threads.js';
import {
  ANSWER,
  AnswerValue,
  actions,
  ModalPlace,
  OPEN_QUESTION,
  PREFERENCE_FIELDS,
  PREFERENCES,
  QuestionPlace,
  readAnswer,
  renderPreferences,
  renderQuestionModal,
  STOP,
  section,
} from './views.js';

/** What the plugin `user-preferences` shares. */
interface PreferenceStore {
  read(place: RoomPlace): Promise<UserPreferences>;
  change(place: RoomPlace, patch: PreferencesPatch): Promise<UserPreferences>;
}
export const PREFERENCE_STORE = sharedKey<PreferenceStore>('preferenceStore');

/** Reply of `POST /slack/events`, which Slack shows or acts upon. */
export const SlackReply = z
  .object({
    ok: z.literal(true).optional(),
    challenge: z.string().optional().describe('If Slack verifies the URL'),
    response_type: z.literal('ephemeral').optional().describe('For a command'),
    text: z.string().optional(),
    blocks: z.array(z.record(z.string(), z.unknown())).optional(),
    response_action: z.enum(['clear', 'errors']).optional().describe('For a modal'),
    errors: z.record(z.string(), z.string()).optional().describe('By field of the modal'),
  })
  .meta({ id: 'SlackReply' });
export type SlackReply = z.infer<typeof SlackReply>;

interface ReceiverDeps {
  readonly inbox: SlackInbox;
  readonly worker: Pick<InboxWorker<SlackMessage>, 'start' | 'follow'>;
  readonly threads: Threads;
  readonly turns: PluginTurns;
  readonly channel: SlackChannel;
  readonly preferences: PreferenceStore | undefined;
  readonly results: ResultAddresses;
  readonly logger: Logger;
}

const OK: SlackReply = { ok: true };

/** Receives what Slack delivers. It replies at once, since Slack waits for at most three seconds. */
export class Receiver {
  constructor(private readonly deps: ReceiverDeps) {}

  async receive(delivery: Delivery): Promise<SlackReply> {
    switch (delivery.kind) {
      case 'challenge':
        return { ok: true, challenge: delivery.challenge };
      case 'event': {
        const message = parseMessage(delivery.callback);
        if (message) await this.accept(message);
        return OK;
      }
      case 'command':
        return this.runCommand(delivery);
      case 'action':
        return this.press(delivery);
      case 'submission':
        return this.submit(delivery);
      case 'other':
        return OK;
    }
  }

  private async accept(message: SlackMessage): Promise<void> {
    const { inbox, worker } = this.deps;
    if (await inbox.accept(message)) worker.start({ message, replies: [] });
  }

  private async runCommand(command: SlackCommand): Promise<SlackReply> {
    const { text, triggerId, team, user, channel, responseUrl } = command;
    const place = { team, user, channel, ...(!command.isDirect && { thread: COMMANDS }) };
    switch (text.toLowerCase()) {
      case '':
      case 'help':
        return this.help(command);
      case 'preferences':
        if (!this.deps.preferences) return sayPrivately('Preferences are switched off here.');
        void this.openPreferences(command);
        return sayPrivately('Opening your preferences…');
      case 'results':
        return sayPrivately(describeAddress(await this.openResults(command)));
      case 'results off':
        return sayPrivately((await this.closeResults(command)) ? 'Closed.' : 'It is not open.');
      case 'stop':
        return sayPrivately((await this.stop(place)) ? 'Stopped.' : 'Nothing is running.');
      case 'new':
        await this.forget(place);
        return sayPrivately('Your next question starts a new conversation.');
      default:
    }
    const id = { eventId: `command ${triggerId}`, ts: triggerId };
    await this.accept({ ...id, ...place, text, responseUrl });
    return sayPrivately('_Thinking…_');
  }

  private help({ command }: SlackCommand): SlackReply {
    const text = [
      `\`${command} <question>\` asks me; only you see the answer`,
      `\`${command} preferences\` changes how I answer you`,
      `\`${command} new\` starts a new conversation`,
      `\`${command} stop\` stops the current answer`,
      `\`${command} results\` opens this conversation for results of schedules, \`${command} results off\` closes it`,
    ].join('\n');
    const button = { action: PREFERENCES, label: 'Preferences' };
    const buttons = this.deps.preferences ? [actions([button])] : [];
    return { ...sayPrivately(text), blocks: [section(text), ...buttons] };
  }

  private openResults(command: SlackCommand): Promise<string> {
    return this.deps.results.open({ owner: getOwner(command), place: command.channel });
  }

  private closeResults(command: SlackCommand): Promise<boolean> {
    return this.deps.results.close({ owner: getOwner(command), place: command.channel });
  }

  private async stop(place: Parameters<Threads['findSession']>[0]): Promise<boolean> {
    const { threads, turns } = this.deps;
    const sessionId = await threads.findSession(place);
    return sessionId !== undefined && turns.abort({ user: getUserId(place), sessionId });
  }

  private async forget(place: Parameters<Threads['findSession']>[0]): Promise<void> {
    const { threads } = this.deps;
    const sessionId = await threads.findSession(place);
    if (sessionId !== undefined) await threads.remove(place, sessionId);
  }

  private async press(action: SlackAction): Promise<SlackReply> {
    const { turns } = this.deps;
    const { actionId, value } = action;
    if (actionId === STOP) await turns.abort({ user: getUserId(action), sessionId: value });
    else if (actionId === PREFERENCES) void this.openPreferences(action);
    else if (actionId === OPEN_QUESTION) void this.openQuestion(action);
    else if (actionId.startsWith(`${ANSWER}:`)) await this.answerByButton(action);
    return OK;
  }

  /** Answers a question of the user's paused turn; one of another user does not exist for them. */
  private async answerByButton(action: SlackAction): Promise<void> {
    const { channel, thread, ts, responseUrl } = action;
    const { data: answer } = AnswerValue.safeParse(parseJson(action.value));
    if (!answer || channel === undefined) return;
    try {
      await this.answer(action, { channel, thread, ts, answer });
      const text = `:white_check_mark: ${describeAnswer(answer)}`;
      this.respond(responseUrl, { replace_original: true, text });
    } catch (error) {
      if (!(error instanceof OracleError) || error.status >= 500) throw error;
      this.respond(responseUrl, { ...sayPrivately(describe(error)), replace_original: false });
    }
  }

  /** Continues the turn; the inbox shows the rest of it. */
  private async answer(
    { team, user }: Pick<SlackAction, 'team' | 'user'>,
    { answer, ts, channel, thread }: AnswerPlace,
  ): Promise<void> {
    const { turns, worker } = this.deps;
    const owner = getOwner({ team, user });
    const { id, sessionId, value, isDenial } = answer;
    const asked = (await turns.pending({ owner, sessionId })).find((one) => one.id === id);
    // Known already, except if the host has died.
    const place = { team, user, channel, thread, sessionId };
    const questions = ts === undefined ? [] : [{ id, ts }];
    if (asked) await worker.follow(toContinuation(place, { runId: asked.runId, questions }));
    await (isDenial ? turns.deny({ owner, id }) : turns.answer({ owner, id, value }));
  }

  private async submit(submission: SlackSubmission): Promise<SlackReply> {
    const { callbackId, metadata, fields } = submission;
    if (callbackId === PREFERENCES) return this.savePreferences(submission);
    const { data: place } = ModalPlace.safeParse(parseJson(metadata));
    if (callbackId !== ANSWER || !place) return { response_action: 'clear' };
    try {
      const { id, sessionId } = place;
      const answer = { id, sessionId, value: readAnswer(fields, place) };
      await this.answer(submission, { ...place, answer });
      return { response_action: 'clear' };
    } catch (error) {
      if (!(error instanceof OracleError) || error.status >= 500) throw error;
      const [field = 'answer'] = Object.keys(place.types);
      return { response_action: 'errors', errors: { [field]: describe(error) } };
    }
  }

  private async savePreferences(submission: SlackSubmission): Promise<SlackReply> {
    const { fields } = submission;
    const given = PREFERENCE_FIELDS.map((name) => [name, fields[name] ?? null]);
    const { data: patch, error } = PreferencesPatch.safeParse(Object.fromEntries(given));
    if (error) {
      const errors = error.issues.map((issue) => [
        String(issue.path[0] ?? PREFERENCE_FIELDS[0]),
        describeIssues([issue], 'value').join(),
      ]);
      return { response_action: 'errors', errors: Object.fromEntries(errors) };
    }
    await this.deps.preferences?.change({ owner: getOwner(submission) }, patch);
    return { response_action: 'clear' };
  }

  private async openPreferences(who: SlackCommand | SlackAction): Promise<void> {
    const { preferences, channel, logger } = this.deps;
    try {
      const current = await preferences?.read({ owner: getOwner(who) });
      await channel.openView(who.triggerId, renderPreferences(current ?? {}));
    } catch (err) {
      logger.warn({ err }, 'cannot open a modal in Slack');
    }
  }

  private async openQuestion(action: SlackAction): Promise<void> {
    const { turns, channel, logger } = this.deps;
    try {
      const { id, sessionId } = QuestionPlace.parse(parseJson(action.value));
      const questions = await turns.pending({ owner: getOwner(action), sessionId });
      const question = questions.find((one) => one.id === id);
      if (!question) return this.respond(action.responseUrl, sayPrivately(GONE));
      const { channel: shownIn = '', thread, ts } = action;
      const place = { channel: shownIn, thread, ts, id, sessionId };
      await channel.openView(action.triggerId, renderQuestionModal(question, place));
    } catch (err) {
      logger.warn({ err }, 'cannot open a modal in Slack');
    }
  }

  /** In the background: Slack waits for the acknowledgment. */
  private respond(url: string | undefined, body: object): void {
    if (!url) return;
    this.deps.channel
      .respond(url, body)
      .catch((err) => this.deps.logger.warn({ err }, 'cannot answer in Slack'));
  }
}

interface AnswerPlace {
  readonly channel: string;
  readonly thread?: string | undefined;
  /** The post with the question. */
  readonly ts?: string | undefined;
  readonly answer: z.infer<typeof AnswerValue>;
}

function describeAnswer({ value, isDenial }: z.infer<typeof AnswerValue>): string {
  if (isDenial) return 'Denied';
  return typeof value === 'boolean' ? (value ? 'Yes' : 'No') : String(value);
}

const describeAddress = (address: string) =>
  `Results of schedules are posted here if they are sent to this address: \`${address}\`\nAll who know it can have results posted here.`;

const GONE = 'This question is for another user, or was answered already.';

const sayPrivately = (text: string): SlackReply => ({ response_type: 'ephemeral', text });

const describe = (error: OracleError): string =>
  error.status === 404 || error.status === 409 ? GONE : error.message;

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
