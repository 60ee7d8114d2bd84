import { settlesWithin } from '@sibyl/server-kit';
import type { Logger } from 'pino';
import type { Meter } from '../../agent/agent.js';
import { generateText } from '../../agent/model-call.js';
import type { SessionChanges } from '../../bus/session-changes.js';
import type { Model } from '../../models/model.js';
import { type Session, type SessionStore, UNTITLED } from '../../store/session-store.js';

const MAX_LENGTH = 60;
const TIMEOUT_MS = 30_000;
const SAMPLE_LENGTH = 2000;
/** Stops reading an answer that is too long for a title. */
const MAX_ANSWER = 200;
/** Titles generated at a time; further sessions are named by their first words. */
const MAX_IN_PROGRESS = 100;

const INSTRUCTION =
  'Write a title for this conversation: at most six words, in its language, no quotes, no full stop. Answer with the title alone.';

interface FirstExchange {
  readonly question: string;
  readonly answer: string;
}

interface TitlesDeps {
  readonly sessions: SessionStore;
  readonly changes: Pick<SessionChanges, 'publish'>;
  readonly model: Model;
  readonly logger: Logger;
}

/** Names sessions by their first message and answer, in the background. */
export class Titles {
  private readonly closing = new AbortController();
  private readonly inProgress = new Set<Promise<void>>();

  constructor(private readonly deps: TitlesDeps) {}

  /** Names a session that has no title; never rejects. */
  async nameSession(session: Session, exchange: FirstExchange, meter: Meter): Promise<void> {
    if (session.title !== UNTITLED) return;
    const naming = this.name(session, exchange, meter).catch((err) => {
      this.deps.logger.warn({ err, sessionId: session.sessionId }, 'session not named');
    });
    this.inProgress.add(naming);
    await naming;
    this.inProgress.delete(naming);
  }

  /** Falls back to the first words for titles in progress, and waits until they are stored, for at most `timeoutMs`. */
  async close(timeoutMs: number): Promise<void> {
    this.closing.abort();
    if (!(await settlesWithin(timeoutMs, Promise.all(this.inProgress))))
      this.deps.logger.warn({ sessions: this.inProgress.size }, 'sessions not named');
  }

  private async name(session: Session, exchange: FirstExchange, meter: Meter): Promise<void> {
    const asked =
      this.inProgress.size < MAX_IN_PROGRESS ? await this.generate(exchange, meter) : '';
    const title = asked || firstWords(exchange.question);
    const { owner, sessionId } = session;
    if (await this.deps.sessions.nameOnce({ owner, sessionId, title }))
      this.deps.changes.publish({ owner, sessionId }, 'titled');
  }

  private async generate({ question, answer }: FirstExchange, meter: Meter): Promise<string> {
    const prompt = `User: ${question.slice(0, SAMPLE_LENGTH)}\n\nAssistant: ${answer.slice(0, SAMPLE_LENGTH)}`;
    const { model, logger } = this.deps;
    const signal = AbortSignal.any([AbortSignal.timeout(TIMEOUT_MS), this.closing.signal]);
    try {
      const { text } = await generateText({
        model,
        system: INSTRUCTION,
        prompt,
        meter,
        signal,
        maxLength: MAX_ANSWER,
      });
      return cleanTitle(text);
    } catch (err) {
      logger.info({ err }, 'model returned no title; using the first words');
      return '';
    }
  }
}

function cleanTitle(text: string): string {
  const line = text.slice(0, MAX_ANSWER).trim().split('\n', 1)[0] ?? '';
  return truncate(line.replaceAll(/^["'«“#\s]+|["'»”.\s]+$/g, ''));
}

/** Without a comma or dash after the last of them. */
function firstWords(text: string): string {
  const words = text.trim().split(/\s+/).slice(0, 8).join(' ');
  return truncate(words).replace(/[\s,;:–—-]+$/, '') || UNTITLED;
}

function truncate(text: string): string {
  const characters = [...text];
  return characters.length <= MAX_LENGTH
    ? text
    : `${characters.slice(0, MAX_LENGTH - 1).join('')}…`;
}
