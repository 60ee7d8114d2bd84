import type { ReplyPart } from '@sibyl/protocol';
import { describe, expect, it } from 'vitest';
import { listAnswerRuns, readAnswer, readTurn } from './read-turn.js';
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

const run = (partialLength?: number) =>
  ({
    event: 'run',
    data: { ...(partialLength !== undefined && { resumed: true, partialLength }) },
  }) as ReplyPart;
const say = (content: string) => ({ event: 'message', data: { content } }) as ReplyPart;
const done = (status = 'finished', pending?: readonly object[]) =>
  ({ event: 'done', data: { status, ...(pending && { pending }) } }) as ReplyPart;

/** A turn with these frames in its runs; all but the last one were continued, after a crash if they wait for nothing. */
function createAttempts(...logs: readonly (readonly ReplyPart[])[]) {
  const runs = logs.map((log, i) => {
    const end = log.findLast(({ event }) => event === 'done');
    const isPaused = end?.event === 'done' && end.data.pending !== undefined;
    const isLast = i === logs.length - 1;
    return { runId: `r${i + 1}`, attempt: i + 1, hasCrashed: !isLast && !isPaused } as SurfaceRun;
  });
  const asked: string[] = [];
  const turns = {
    listAttempts: async (runId) => {
      asked.push(runId);
      return runs;
    },
    async *read(runId) {
      const log = logs[runs.findIndex((each) => each.runId === runId)] ?? [];
      for (const [i, part] of log.entries()) yield { ...part, seq: i + 1 };
    },
  } satisfies Pick<CallerTurns, 'listAttempts' | 'read'>;
  return { turns, runs, asked };
}

/** What a client that appends shows, and what the answer says, of the answer of this run. */
async function read({ turns, runs }: ReturnType<typeof createAttempts>, from = 0) {
  const read = { shown: '', text: '', ends: [] as string[], seqs: [] as number[] };
  for await (const { runId, part, text } of readAnswer(turns, runs[from] as SurfaceRun, signal)) {
    if (part.event === 'message') read.shown += part.data.content;
    if (part.event === 'done') read.ends.push(`${runId} ${part.data.status}`);
    read.text = text;
    read.seqs.push(part.seq);
  }
  return read;
}

const crash = (kept: number) => [run(kept), done('interrupted')];

describe('readAnswer', () => {
  it('reads the run that continues after a crash, and sends nothing that it repeats', async () => {
    const turn = createAttempts(
      [run(), say('I will act. '), say('It '), say('is '), ...crash(12)],
      [run(12), say('It i'), say('s do'), say('ne'), done()],
    );
    expect(await read(turn)).toMatchObject({
      shown: 'I will act. It is done',
      text: 'I will act. It is done',
      ends: ['r2 finished'],
    });
  });

  it('begins again after an empty line if that run says something else', async () => {
    const turn = createAttempts(
      [run(), say('I will act. '), say('It is '), ...crash(12)],
      [run(12), say('\n\nIt '), say('failed'), done()],
    );
    expect(await read(turn)).toMatchObject({
      shown: 'I will act. It is \n\nIt failed',
      text: 'I will act. \n\nIt failed',
    });
  });

  it('reads over several crashes, with numbers that rise', async () => {
    const turn = createAttempts(
      [run(), say('One '), say('two '), say('three '), ...crash(0)],
      [run(0), say('One '), say('two'), ...crash(0)],
      [run(0), say('One two three four'), done()],
    );
    const { shown, seqs, ends } = await read(turn);
    expect({ shown, ends }).toEqual({ shown: 'One two three four', ends: ['r3 finished'] });
    expect(seqs).toEqual(seqs.toSorted((a, b) => a - b));
    expect(new Set(seqs).size).toBe(seqs.length);
  });

  it('begins with the first run also if it is asked for a later one', async () => {
    const turn = createAttempts([run(), say('One '), ...crash(4)], [run(4), say('two'), done()]);
    expect(await read(turn, 1)).toEqual(await read(turn));
    expect((await read(turn, 1)).text).toBe('One two');
  });

  it('ends with a pause, also if the question is answered; what follows is another answer', async () => {
    const pending = [{ id: 'q', kind: 'tool_call' }];
    const turn = createAttempts(
      [run(), say('One '), ...crash(4)],
      [run(4), say('two '), done('interrupted', pending)],
      [run(8), say('three '), say('fou'), ...crash(14)],
      [run(14), say('four'), done()],
    );
    for (const from of [0, 1])
      expect(await read(turn, from)).toMatchObject({ text: 'One two ', ends: ['r2 interrupted'] });
    for (const from of [2, 3])
      expect(await read(turn, from)).toMatchObject({
        shown: 'three four',
        text: 'three four',
        ends: ['r4 finished'],
      });
    const lists = turn.runs.map((each) => listAnswerRuns(turn.turns, each));
    expect((await Promise.all(lists)).map((list) => list.map(({ runId }) => runId))).toEqual([
      ['r1', 'r2'],
      ['r1', 'r2'],
      ['r3', 'r4'],
      ['r3', 'r4'],
    ]);
  });

  it('reports a crash that no host continues, without what was not stored', async () => {
    const turn = createAttempts([run(), say('One '), say('two'), ...crash(4)]);
    expect(await read(turn)).toMatchObject({
      shown: 'One two',
      text: 'One ',
      ends: ['r1 interrupted'],
    });
  });

  it('asks for no other runs of a turn that finishes in its first one', async () => {
    const turn = createAttempts([run(), say('One'), done()]);
    expect(await read(turn)).toMatchObject({ text: 'One' });
    expect(turn.asked).toEqual([]);
  });

  it('shows an answer once whose frames are not stored any more', async () => {
    const whole = [run(0), say('One two')];
    const turn = createAttempts([...whole, done('interrupted')], [...whole, done()]);
    expect(await read(turn)).toMatchObject({ shown: 'One two', text: 'One two' });
  });
});
