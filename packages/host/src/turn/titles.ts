import type { Logger } from 'pino';
import type { Model } from '../agent/model/model.js';
import { type Session, UNTITLED } from '../store/sessions/session.js';
import type { SessionStore } from '../store/sessions/session-store.js';

const MAX_LENGTH = 60;
const PATIENCE_MS = 30_000;
const SAMPLE_LENGTH = 2000;
/** No title is longer; reading on would only cost. */
const MAX_ANSWER = 200;

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
  readonly #parts: TitlesParts;
  readonly #closing = new AbortController();
  readonly #underWay = new Set<Promise<void>>();

  constructor(parts: TitlesParts) {
    this.#parts = parts;
  }

  /** Starts naming a session, unless it has a name already. */
  nameAfter(session: Session, exchange: Exchange): void {
    if (session.title !== UNTITLED) return;
    const naming = this.#name(session, exchange).catch((err) => {
      this.#parts.logger.warn({ err, sessionId: session.id }, 'session not named');
    });
    this.#underWay.add(naming);
    void naming.finally(() => this.#underWay.delete(naming));
  }

  /** Falls back to the first words for what is under way, and waits until that is stored. */
  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.all(this.#underWay);
  }

  async #name(session: Session, exchange: Exchange): Promise<void> {
    const title = (await this.#ask(exchange)) || firstWords(exchange.question);
    const { owner, id: sessionId } = session;
    await this.#parts.sessions.nameOnce({ owner, sessionId, title });
  }

  async #ask({ question, answer }: Exchange): Promise<string> {
    const sample = `User: ${question.slice(0, SAMPLE_LENGTH)}\n\nAssistant: ${answer.slice(0, SAMPLE_LENGTH)}`;
    let text = '';
    try {
      const parts = this.#parts.model.stream({
        system: INSTRUCTION,
        messages: [{ role: 'user', content: sample }],
        tools: [],
        signal: AbortSignal.any([AbortSignal.timeout(PATIENCE_MS), this.#closing.signal]),
      });
      for await (const part of parts) {
        if (part.type === 'text') text += part.text;
        if (text.length > MAX_ANSWER) break;
      }
    } catch (err) {
      this.#parts.logger.info({ err }, 'no title from the model; using the first words');
    }
    return cleaned(text);
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
