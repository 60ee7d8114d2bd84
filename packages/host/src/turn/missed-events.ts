import type { ReplyPart } from '@sibyl/protocol';
import type { Room } from '../events/event-bus.js';
import { BEFORE_ALL, type Position } from '../events/position.js';
import { type ServerEvent, toServerEvent } from '../events/server-event.js';
import type { Frame } from '../store/runs/frames.js';
import type { Run } from '../store/runs/run.js';
import type { RunStore } from '../store/runs/run-store.js';
import type { Turns } from './turns.js';

/** Finds in the logs of a session's runs what its sockets were told while a client was away. */
export class MissedEvents {
  constructor(
    private readonly turns: Turns,
    private readonly runs: RunStore,
  ) {}

  /** Where the session stands now. */
  async latest(room: Room): Promise<Position> {
    const run = await this.runs.current(room);
    if (!run) return BEFORE_ALL;
    const live = this.turns.live({ owner: run.owner, runId: run.id });
    return { turn: run.turn, seq: live?.log.lastSeq ?? run.lastSeq };
  }

  /** Yields what was told after a position, oldest first, up to now. */
  async *after(room: Room, seen: Position): AsyncGenerator<ServerEvent> {
    let runs = await this.runs.list({ ...room, fromTurn: seen.turn });
    while (runs.length > 0) {
      for (const run of runs) yield* this.toldIn(run, run.turn === seen.turn ? seen.seq : 0);
      runs = await this.runs.list({ ...room, fromTurn: (runs.at(-1)?.turn ?? 0) + 1 });
    }
  }

  private async *toldIn(run: Run, after: number): AsyncGenerator<ServerEvent> {
    for (const { seq, event, data } of await this.framesOf(run, after)) {
      const part = { event, data: JSON.parse(data) } as ReplyPart;
      const told = toServerEvent(part, { turn: run.turn, seq });
      if (told) yield told;
    }
  }

  private async framesOf({ owner, id: runId }: Run, after: number): Promise<readonly Frame[]> {
    const live = this.turns.live({ owner, runId });
    return live ? live.log.since(after) : this.runs.frames({ owner, runId, after });
  }
}
