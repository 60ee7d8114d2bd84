import { type FaultKind, OracleError, type Reply } from '@sibyl/protocol';
import type { Response } from 'express';
import type { Message } from '../store/messages/message.js';
import type { MessageStore } from '../store/messages/message-store.js';
import type { SessionKey } from '../store/sessions/session-store.js';
import { sendList } from '../transport/send-list.js';
import { sendSse } from '../transport/sse.js';
import { messageView } from '../turn/message-view.js';
import type { RunOutcome } from '../turn/runs/run-outcome.js';
import type { RunKey, RunReader } from '../turn/runs/run-reader.js';

interface ReplySenderParts {
  readonly reader: RunReader;
  readonly messages: MessageStore;
  readonly streamStallMs: number;
}

/** Gives a run's answer to whoever asked for it, as a stream or whole. */
export class ReplySender {
  constructor(private readonly parts: ReplySenderParts) {}

  async stream(key: RunKey, after: number, response: Response): Promise<void> {
    const { reader, streamStallMs } = this.parts;
    const run = await reader.find(key);
    await sendSse(response, {
      runId: run.id,
      stallMs: streamStallMs,
      frames: (gone) => reader.read(run, after, gone),
    });
  }

  /** Waits for the end of the run; one cut short answers with what had come. */
  async whole(key: RunKey): Promise<Reply> {
    const run = await this.parts.reader.find(key);
    const { status, messageId, text, fault } = await this.parts.reader.outcome(run);
    if (fault?.refusal) throw fault.refusal;
    if (status === 'failed') throw toError(fault);
    const { sessionId, requestId } = run;
    return {
      message: { type: 'ai', content: text, id: messageId ?? '' },
      sessionId,
      requestId,
    };
  }

  /** Sends all messages of a session, oldest first, beside what else the answer says. */
  async transcript(key: SessionKey, response: Response, fields: object = {}): Promise<void> {
    const { messages, streamStallMs: stallMs } = this.parts;
    const pages = viewsOf(messages.pages(key));
    await sendList(response, { fields, name: 'messages', pages, stallMs });
  }
}

const RETRY_SECONDS = 5;
const passingKinds: ReadonlySet<FaultKind> = new Set([
  'rate_limit',
  'timeout',
  'server',
  'network',
]);

/** The error of a failed turn: without Retry-After if the same message would fail again, as with a refused key. */
function toError(fault: RunOutcome['fault']): OracleError {
  const isPassing = !fault || (fault.retryable ?? passingKinds.has(fault.kind));
  return new OracleError('model_unavailable', {
    message: fault?.message ?? 'The turn failed',
    ...(isPassing && { retryAfterSeconds: RETRY_SECONDS }),
  });
}

async function* viewsOf(pages: AsyncIterable<readonly Message[]>) {
  for await (const page of pages) yield page.map(messageView);
}
