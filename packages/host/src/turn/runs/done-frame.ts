import type { DoneFrame, ReplyPart } from '@sibyl/protocol';

interface Ending {
  readonly runId: string;
  readonly messageId: string | undefined;
  readonly status: DoneFrame['status'];
  /** The answer as far as it came. */
  readonly text: string;
}

/** The last frame of a run (contract B4). */
export function doneOf({ runId, messageId, status, text }: Ending) {
  const data: DoneFrame = {
    runId,
    ...(messageId !== undefined && { messageId }),
    status,
    ...(status !== 'finished' && { [status]: true, partialText: text }),
  };
  return { event: 'done', data } as const satisfies ReplyPart;
}
