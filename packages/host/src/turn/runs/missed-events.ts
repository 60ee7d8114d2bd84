import type { ReplyPart } from '@sibyl/protocol';
import type { Audience } from '../../events/event-bus.js';
import { BEFORE_ALL, endOf, type Position } from '../../events/position.js';
import { type ServerEvent, toServerEvent } from '../../events/server-event.js';
import type { Frame } from '../../store/runs/frames.js';
import { hasEnded, type Run } from '../../store/runs/run.js';
import type { RunStore } from '../../store/runs/run-store.js';
import type { Turns } from '../turns.js';

/** Finds in the logs of a session's runs what its sockets were told while a client was away. */
export class MissedEvents {
  constructor(
    private readonly turns: Turns,
    private readonly runs: RunStore,
  ) {}

  /** Where the session stands now. */
  async latest(audience: Audience): Promise<Position> {
    const run = await this.runs.current(audience);
    if (!run) return BEFORE_ALL;
    const live = this.turns.live({ owner: run.owner, runId: run.id });
    if (live) return { turn: run.turn, seq: live.log.lastSeq };
    return hasEnded(run) ? endOf(run.turn) : { turn: run.turn, seq: run.lastSeq };
  }

  /** Yields what was told after a position, oldest first, up to now. */
  async *after(audience: Audience, seen: Position): AsyncGenerator<ServerEvent> {
    let runs = await this.runs.list({ ...audience, fromTurn: seen.turn });
    while (runs.length > 0) {
      for (const run of runs) yield* this.toldIn(run, run.turn === seen.turn ? seen.seq : 0);
      runs = await this.runs.list({ ...audience, fromTurn: (runs.at(-1)?.turn ?? 0) + 1 });
    }
  }

  private async *toldIn(run: Run, after: number): AsyncGenerator<ServerEvent> {
    for (const frame of await this.framesOf(run, after)) {
      const told = toServerEvent(partOf(frame), { turn: run.turn, seq: frame.seq });
      if (told && !isRepair(run, frame)) yield told;
    }
    if (after < endOf(run.turn).seq) yield* this.repairOf(run);
  }

  /** A crash may have taken what the client saw last, and its numbers were given anew. */
  private async *repairOf(run: Run): AsyncGenerator<ServerEvent> {
    if (run.status !== 'interrupted') return;
    const [frame] = await this.framesOf(run, run.lastSeq - 2);
    if (!frame || !isRepair(run, frame)) return;
    const told = toServerEvent(partOf(frame), endOf(run.turn));
    if (told) yield told;
  }

  private async framesOf({ owner, id: runId }: Run, after: number): Promise<readonly Frame[]> {
    const live = this.turns.live({ owner, runId });
    return live ? live.log.since(after) : this.runs.frames({ owner, runId, after });
  }
}

const partOf = ({ event, data }: Frame) => ({ event, data: JSON.parse(data) }) as ReplyPart;

/** Whether a frame is what the end of a run that was left behind begins with. */
const isRepair = ({ status, lastSeq }: Run, { seq, event }: Frame) =>
  status === 'interrupted' && seq === lastSeq - 1 && event === 'message_cache_invalidation';
