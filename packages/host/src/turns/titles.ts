import type { Logger } from 'pino';
import type { Meter } from '../agent/agent.js';
import { askModel } from '../agent/ask-model.js';
import type { Model } from '../models/model.js';
import { type Session, type SessionStore, UNTITLED } from '../store/session-store.js';
import { settlesWithin } from './hooks.js';

const MAX_LENGTH = 60;
const PATIENCE_MS = 30_000;
const SAMPLE_LENGTH = 2000;
/** No title is longer; reading on would only cost. */
const MAX_ANSWER = 200;
/** Titles the model is asked for at once; further sessions are named by their first words. */
const MAX_ASKED = 100;

const INSTRUCTION =
  'Write a title for this conversation: at most six words, in its language, no quotes, no full stop. Answer with the title alone.';

interface Exchange {
  readonly question: string;
  readonly answer: string;
}

interface TitlesParts {
  readonly sessions: SessionStore;
  readonly model: Model;
  readonly logger: Logger;
}

/** Names sessions after what was talked about, in the background. */
export class Titles {
  private readonly parts: TitlesParts;
  private readonly closing = new AbortController();
  private readonly underWay = new Set<Promise<void>>();

  constructor(parts: TitlesParts) {
    this.parts = parts;
  }

  /** Names a session, unless it has a name already; never rejects. */
  async nameAfter(session: Session, exchange: Exchange, meter: Meter): Promise<void> {
    if (session.title !== UNTITLED) return;
    const naming = this.name(session, exchange, meter).catch((err) => {
      this.parts.logger.warn({ err, sessionId: session.id }, 'session not named');
    });
    this.underWay.add(naming);
    await naming;
    this.underWay.delete(naming);
  }

  /** Falls back to the first words for titles in progress, and waits until that is stored, for at most `limitMs`. */
  async close(limitMs: number): Promise<void> {
    this.closing.abort();
    if (!(await settlesWithin(limitMs, Promise.all(this.underWay))))
      this.parts.logger.warn({ sessions: this.underWay.size }, 'sessions not named');
  }

  private async name(session: Session, exchange: Exchange, meter: Meter): Promise<void> {
    const asked = this.underWay.size < MAX_ASKED ? await this.ask(exchange, meter) : '';
    const title = asked || firstWords(exchange.question);
    const { owner, id: sessionId } = session;
    await this.parts.sessions.nameOnce({ owner, sessionId, title });
  }

  private async ask({ question, answer }: Exchange, meter: Meter): Promise<string> {
    const prompt = `User: ${question.slice(0, SAMPLE_LENGTH)}\n\nAssistant: ${answer.slice(0, SAMPLE_LENGTH)}`;
    const { model, logger } = this.parts;
    const signal = AbortSignal.any([AbortSignal.timeout(PATIENCE_MS), this.closing.signal]);
    const enough = MAX_ANSWER;
    try {
      const { text } = await askModel({
        model,
        system: INSTRUCTION,
        prompt,
        meter,
        signal,
        enough,
      });
      return cleaned(text);
    } catch (err) {
      logger.info({ err }, 'no title from the model; using the first words');
      return '';
    }
  }
}

function cleaned(text: string): string {
  const line = text.slice(0, MAX_ANSWER).trim().split('\n', 1)[0] ?? '';
  return cut(line.replaceAll(/^["'«“#\s]+|["'»”.\s]+$/g, ''));
}

const firstWords = (text: string) =>
  cut(text.trim().split(/\s+/).slice(0, 8).join(' ')) || UNTITLED;

function cut(text: string): string {
  const characters = [...text];
  return characters.length <= MAX_LENGTH
    ? text
    : `${characters.slice(0, MAX_LENGTH - 1).join('')}…`;
}
