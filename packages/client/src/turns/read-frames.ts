import type { ReplyPart } from '@sibyl/protocol';
import { OracleClientError } from '../oracle-client-error.js';
import { type SseEvent, SseParser } from './sse-parser.js';

/** A part of a reply and its number within the run. */
export interface NumberedPart {
  readonly seq: number;
  readonly part: ReplyPart;
}

/** Reads the frames of a stream as they come; `onSign` is called on every sign of life. */
export async function* readFrames(
  body: ReadableStream<Uint8Array>,
  onSign: () => void,
): AsyncGenerator<NumberedPart, void> {
  const decoder = new TextDecoder();
  const parser = new SseParser();
  const reader = body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      onSign();
      for (const event of parser.push(decoder.decode(value, { stream: true }))) {
        yield numbered(event);
      }
    }
  } finally {
    // A body that has failed already cannot be cancelled, and need not be.
    await reader.cancel().catch(() => undefined);
  }
}

function numbered({ event, id, data }: SseEvent): NumberedPart {
  const seq = Number(id);
  try {
    const part = { event, data: JSON.parse(data) } as ReplyPart;
    if (seq > 0) return { seq, part };
  } catch {
    // Told below.
  }
  throw new OracleClientError('invalid_reply', 'The stream holds something that is no frame');
}
