import type { DoneFrame } from '@sibyl/protocol';
import type { CallerTurns, NumberedPart, SurfaceRun } from './surface.js';

type ReadableTurns = Pick<CallerTurns, 'listAttempts' | 'read'>;

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
export function readTurn(turns: ReadableTurns, reading: TurnReading): AsyncGenerator<TurnPart> {
  return readRuns(turns, reading, async (runId) => (await findAttempts(turns, runId)).next);
}

/** A frame of an answer. */
export interface AnswerPart extends TurnPart {
  /** Its number rises over all runs. The text of a `message` is what a client that cannot take back any text appends. */
  readonly part: NumberedPart;
  /** What the answer says until now, without what a host that crashed has sent in vain. */
  readonly text: string;
}

/**
 * The frames of an answer until it ends or waits, from the first run that a pause does not precede: if a host crashes, another one
 * continues the answer in another run. That run may write again what was sent already: as long as it repeats it, nothing is sent,
 * and if it says something else, that follows after an empty line.
 */
export async function* readAnswer(
  turns: ReadableTurns,
  run: SurfaceRun,
  signal: AbortSignal = new AbortController().signal,
): AsyncGenerator<AnswerPart> {
  const [{ runId: first }] = await listAnswerRuns(turns, run);
  const written = new WrittenText();
  let [current, offset] = [first, 0];
  for await (const { runId, part } of readRuns(turns, { runId: first, signal }, findNext)) {
    if (runId !== current) offset += MAX_FRAMES;
    current = runId;
    const seq = offset + part.seq;
    if (part.event === 'run') written.keep(part.data.partialLength);
    if (part.event !== 'message') yield { runId, part: { ...part, seq }, text: written.text };
    else {
      const content = written.add(part.data.content);
      const data = { ...part.data, content };
      if (content) yield { runId, part: { ...part, seq, data }, text: written.text };
    }
  }

  async function findNext(runId: string, { status, pending = [] }: DoneFrame) {
    if (status !== 'interrupted' || pending.length > 0) return undefined;
    const { attempt, next } = await findAttempts(turns, runId);
    return attempt?.hasCrashed ? next : undefined;
  }
}

/** More than a run has. */
const MAX_FRAMES = 100_000_000;

/** The runs that write the answer of a run, oldest first: all those around it between two pauses. */
export async function listAnswerRuns(
  turns: Pick<CallerTurns, 'listAttempts'>,
  run: SurfaceRun,
): Promise<readonly [SurfaceRun, ...SurfaceRun[]]> {
  if (run.attempt === 1 && !run.hasCrashed) return [run];
  const attempts = await turns.listAttempts(run.runId);
  const index = attempts.findIndex(({ runId }) => runId === run.runId);
  const begin = attempts.findLastIndex(({ hasCrashed }, i) => i < index && !hasCrashed) + 1;
  const end = attempts.findIndex(({ hasCrashed }, i) => i >= index && !hasCrashed) + 1;
  const [first = run, ...others] = attempts.slice(begin, end || undefined);
  return [first, ...others];
}

async function* readRuns(
  turns: ReadableTurns,
  { runId: first, after = 0, signal }: TurnReading,
  findNext: (runId: string, done: DoneFrame) => Promise<string | undefined>,
): AsyncGenerator<TurnPart> {
  let next: string | undefined = first;
  while (next !== undefined) {
    const runId: string = next;
    next = undefined;
    for await (const part of turns.read(runId, { after: runId === first ? after : 0, signal })) {
      if (part.event === 'done') next = await findNext(runId, part.data);
      if (next !== undefined) break;
      yield { runId, part };
    }
  }
}

/** A run, and the id of the one that continues its turn. */
async function findAttempts(turns: Pick<CallerTurns, 'listAttempts'>, runId: string) {
  const attempts = await turns.listAttempts(runId);
  const index = attempts.findIndex((attempt) => attempt.runId === runId);
  return { attempt: attempts[index], next: attempts[index + 1]?.runId };
}

/** The text of an answer, for clients that cannot take back any. */
class WrittenText {
  text = '';
  /** The length of what earlier answers of the turn have written. */
  private earlier: number | undefined;
  /** The length of what the run that writes now has found. */
  private kept = 0;
  /** What clients have after `text`, which may be written again. */
  private ahead = '';

  /** Continues after this length of the text of the turn. */
  keep(length = 0): void {
    this.earlier ??= length;
    this.kept = Math.max(0, length - this.earlier);
    this.ahead = (this.text + this.ahead).slice(this.kept);
    this.text = this.text.slice(0, this.kept);
  }

  /** Returns what clients have to append. */
  add(content: string): string {
    this.text += content;
    const { ahead } = this;
    if (ahead.startsWith(content)) {
      this.ahead = ahead.slice(content.length);
      return '';
    }
    this.ahead = '';
    if (content.startsWith(ahead)) return content.slice(ahead.length);
    return `\n\n${this.text.slice(this.kept).replace(/^\n+/, '')}`;
  }
}
