import type { CallerTurns, NumberedPart } from './surface.js';

interface TurnReading {
  /** The run to begin with. */
  readonly runId: string;
  /** A number of a frame of this run; its later frames are read. */
  readonly after?: number;
  readonly signal: AbortSignal;
}

/** A frame of a turn, and the run that has written it. */
interface TurnPart {
  readonly runId: string;
  readonly part: NumberedPart;
}

/** The frames of a turn until it ends or waits, over all runs that continue it; only the last `done` is one of them. */
export async function* readTurn(
  turns: Pick<CallerTurns, 'listAttempts' | 'read'>,
  { runId: first, after = 0, signal }: TurnReading,
): AsyncGenerator<TurnPart> {
  let next: string | undefined = first;
  while (next !== undefined) {
    const runId: string = next;
    next = undefined;
    for await (const part of turns.read(runId, { after: runId === first ? after : 0, signal })) {
      if (part.event === 'done') next = await findNext(turns, runId);
      if (next !== undefined) break;
      yield { runId, part };
    }
  }
}

async function findNext(
  turns: Pick<CallerTurns, 'listAttempts'>,
  runId: string,
): Promise<string | undefined> {
  const attempts = await turns.listAttempts(runId);
  return attempts[attempts.findIndex((attempt) => attempt.runId === runId) + 1]?.runId;
}
