import { addPart, emptyTurn, type ReplyPart, type Turn } from '@sibyl/client';

/** A stream that is read in the background, and its parts. */
export interface Reading {
  readonly parts: readonly ReplyPart[];
  readonly turn: Turn;
  /** Settles with the stream. */
  readonly ended: Promise<void>;
  /** Waits until the text of the turn is this. */
  waitForText(text: string): Promise<void>;
}

/** Reads a stream to its end in the background. */
export function read(stream: AsyncIterable<ReplyPart>): Reading {
  const parts: ReplyPart[] = [];
  let turn = emptyTurn;
  let wake = () => {};
  let changed = new Promise<void>((resolve) => {
    wake = resolve;
  });
  const ended = (async () => {
    for await (const part of stream) {
      parts.push(part);
      turn = addPart(turn, part);
      wake();
      changed = new Promise((resolve) => {
        wake = resolve;
      });
    }
  })();
  return {
    parts,
    get turn() {
      return turn;
    },
    ended,
    waitForText: async (text) => {
      const failed = ended.then(() => {
        if (turn.text !== text) throw new Error(`The stream ended with ${turn.text}`);
      });
      while (turn.text !== text) await Promise.race([changed, failed]);
    },
  };
}
