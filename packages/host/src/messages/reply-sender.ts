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

interface ReplySenderParts {
  readonly reader: RunReader;
  readonly messages: MessageStore;
  readonly streamStallMs: number;
  readonly logger: Logger;
}

/** Gives a run's answer to whoever asked for it, as a stream or whole. */
export class ReplySender {
  constructor(private readonly parts: ReplySenderParts) {}

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
   * is an error, unless its own user has stopped it.
   */
  async whole(key: RunKey): Promise<Reply> {
    const run = await this.parts.reader.find(key);
    const { status, messageId, text, error, ...outcome } = await this.parts.reader.outcome(run);
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

async function* viewsOf(pages: AsyncIterable<readonly Message[]>) {
  for await (const page of pages) yield page.map(messageView);
}
