import { expect, it } from 'vitest';
import { readTurn } from './read-turn.js';
import type { CallerTurns, NumberedPart, SurfaceRun } from './surface.js';

const RUNS = ['first', 'second', 'third'];
const { signal } = new AbortController();

/** Turns of which each run has two texts and an end; only the first `known` runs have begun. */
function createTurns(known = RUNS.length) {
  const begun = RUNS.slice(0, known);
  const reads: string[] = [];
  const turns = {
    listAttempts: async () => begun.map((runId) => ({ runId }) as SurfaceRun),
    async *read(runId, { after = 0 }) {
      reads.push(`${runId} after ${after}`);
      const events = ['message', 'message', 'done'] as const;
      for (const [i, event] of events.entries())
        if (i >= after) yield { event, seq: i + 1, data: {} } as NumberedPart;
    },
  } satisfies Pick<CallerTurns, 'listAttempts' | 'read'>;
  return { turns, reads };
}

async function list(parts: ReturnType<typeof readTurn>): Promise<string[]> {
  const found: string[] = [];
  for await (const { runId, part } of parts) found.push(`${runId} ${part.event} ${part.seq}`);
  return found;
}

it('readTurn reads the runs that continue a turn, and leaves out where one was interrupted', async () => {
  const { turns, reads } = createTurns();
  expect(await list(readTurn(turns, { runId: 'second', after: 1, signal }))).toEqual([
    'second message 2',
    'third message 1',
    'third message 2',
    'third done 3',
  ]);
  expect(reads).toEqual(['second after 1', 'third after 0']);
});

it('readTurn ends with the `done` of the last run', async () => {
  const { turns } = createTurns(1);
  expect(await list(readTurn(turns, { runId: 'first', after: 2, signal }))).toEqual([
    'first done 3',
  ]);
});
