import type { Response } from 'express';
import { pacedWrite, ReaderGone } from './paced-write.js';

export interface ListAnswer {
  /** What the answer says beside the list. */
  readonly fields: object;
  /** The name of the list, which comes last. */
  readonly name: string;
  readonly pages: AsyncIterable<readonly unknown[]>;
  /** How long a reader may take nothing before it is dropped. */
  readonly stallMs: number;
  /** Called with what broke the list off: it is too late for an error reply. */
  readonly onFault?: ((error: unknown) => void) | undefined;
}

/** Answers with a JSON object that holds a list of any length, of which a page is in memory at a time. */
export async function sendList(response: Response, answer: ListAnswer): Promise<void> {
  response.type('json');
  if (response.req.method === 'HEAD') return void response.end();
  try {
    for await (const text of textOf(answer)) {
      await pacedWrite(response, text, answer.stallMs);
    }
    response.end();
  } catch (error) {
    if (!response.headersSent) throw error;
    if (!(error instanceof ReaderGone)) answer.onFault?.(error);
    // The status line is out, so all that is left is to hang up.
    response.destroy();
  }
}

async function* textOf({ fields, name, pages }: ListAnswer): AsyncGenerator<string> {
  const before = JSON.stringify({ ...fields, [name]: [] }).slice(0, -']}'.length);
  let lead = before;
  for await (const page of pages) {
    if (page.length === 0) continue;
    yield lead + page.map((item) => JSON.stringify(item)).join(',');
    lead = ',';
  }
  yield lead === before ? `${before}]}` : ']}';
}
