import type { Reply } from '@sibyl/protocol';
import type { Response } from 'express';
import type { Logger } from 'pino';
import type { Message } from '../store/messages/message.js';
import type { MessageStore } from '../store/messages/message-store.js';
import type { SessionKey } from '../store/sessions/session-store.js';
import { sendList } from '../transport/send-list.js';
import { sendSse } from '../transport/sse.js';
import { messageView } from '../turn/message-view.js';
import type { RunKey, RunReader } from '../turn/runs/run-reader.js';
import type { StreamPlaces } from './stream-places.js';

interface ReplySenderParts {
  readonly reader: RunReader;
  readonly messages: MessageStore;
  readonly places: StreamPlaces;
  readonly streamStallMs: number;
  readonly logger: Logger;
}

/** Gives a run's answer to whoever asked for it, as a stream or whole. */
export class ReplySender {
  constructor(private readonly parts: ReplySenderParts) {}

  /** Runs the work of one reader in a place of its user; throws before any of it if the user has none left. */
  async withPlace(owner: string, work: () => Promise<void>): Promise<void> {
    const release = this.parts.places.take(owner);
    try {
      await work();
    } finally {
      release();
    }
  }

  async stream(key: RunKey, after: number, response: Response): Promise<void> {
    const { reader, streamStallMs, logger } = this.parts;
    const run = await reader.find(key);
    await sendSse(response, {
      runId: run.id,
      stallMs: streamStallMs,
      frames: (gone) => reader.read(run, after, gone),
      onFault: (err) => logger.error({ err, runId: run.id, did: run.owner }, 'stream broke off'),
    });
  }

  /**
   * Waits for the end of the run; one cut short answers with what had come. A message that got no answer
   * is an error, unless its own user has stopped it. Undefined as soon as the client has left.
   */
  async whole(key: RunKey, response: Response): Promise<Reply | undefined> {
    const run = await this.parts.reader.find(key);
    const ended = await this.parts.reader.outcome(run, closeSignal(response));
    if (!ended) return undefined;
    const { status, messageId, text, error, ...outcome } = ended;
    if (error && text === '') throw error;
    const failure =
      status === 'failed' && error ? [{ code: error.code, message: error.message }] : [];
    const warnings = [...outcome.warnings, ...failure];
    const { sessionId, requestId } = run;
    return {
      message: { type: 'ai', content: text, id: messageId ?? '' },
      sessionId,
      requestId,
      status,
      ...(warnings.length > 0 && { warnings }),
    };
  }

  /** Sends all messages of a session, oldest first, beside what else the answer says. */
  async transcript(key: SessionKey, response: Response, fields: object = {}): Promise<void> {
    const { messages, streamStallMs: stallMs, logger } = this.parts;
    const pages = viewsOf(messages.pages(key));
    const onFault = (err: unknown) =>
      logger.error({ err, sessionId: key.sessionId, did: key.owner }, 'list of messages broke off');
    await sendList(response, { fields, name: 'messages', pages, stallMs, onFault });
  }
}

/** Fires when the connection of a response has closed. */
function closeSignal(response: Response): AbortSignal {
  const closed = new AbortController();
  if (response.destroyed) closed.abort();
  else response.once('close', () => closed.abort());
  return closed.signal;
}

async function* viewsOf(pages: AsyncIterable<readonly Message[]>) {
  for await (const page of pages) yield page.map(messageView);
}
