import type { Response } from 'express';

/** A reader that left, or that takes nothing: no fault of the host. */
export class ReaderGone extends Error {
  override readonly name = 'ReaderGone';
}

/** Hands a reader more once it has taken what it got; rejects if it has gone or takes nothing for `stallMs`. */
export async function pacedWrite(
  response: Response,
  chunk: string,
  stallMs: number,
): Promise<void> {
  if (response.destroyed) throw new ReaderGone('The reader has gone');
  if (!response.write(chunk)) await drained(response, stallMs);
}

function drained(response: Response, stallMs: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const settle = (isDrained: boolean) => {
      clearTimeout(limit);
      response.off('drain', onDrain).off('close', onClose);
      if (isDrained) resolve();
      else reject(new ReaderGone('The reader takes nothing more'));
    };
    const onDrain = () => settle(true);
    const onClose = () => settle(false);
    const limit = setTimeout(onClose, stallMs);
    response.once('drain', onDrain).once('close', onClose);
  });
}
