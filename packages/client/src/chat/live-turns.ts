import type { Attachment, Message } from '@sibyl/protocol';
import type { MessageToSend } from '../oracle-client.js';
import { emptyTurn, type Turn } from '../turns/turn.js';

/** Turns that have ended and are still kept: events of their run may come in a little later than its stream. */
const KEPT_AFTER_END = 5;

/** The turns of an open chat that are not only in the history: running, just ended, or never sent. */
export class LiveTurns {
  private readonly turns = new Map<string, LiveTurn>();

  get(requestId: string): LiveTurn | undefined {
    return this.turns.get(requestId);
  }

  /** In the order they began. */
  list(): readonly LiveTurn[] {
    return [...this.turns.values()];
  }

  put(live: LiveTurn): void {
    this.turns.set(live.requestId, live);
  }

  /** Drops turns that have ended and are in the history, except for the latest. */
  dropStored(history: readonly Message[]): void {
    const stored = new Set(history.map(({ requestId }) => requestId));
    const ended = this.list().filter(
      ({ phase, requestId }) => phase === 'ended' && stored.has(requestId),
    );
    for (const { requestId } of ended.slice(0, -KEPT_AFTER_END)) this.turns.delete(requestId);
  }
}

/** A turn that this client has sent or follows, from its beginning on. */
export interface LiveTurn {
  readonly requestId: string;
  readonly startedAt: string;
  /** What was sent from here. */
  readonly question?: { readonly content: string; readonly attachments: readonly Attachment[] };
  readonly turn: Turn;
  /** `lost` when reading it failed: before it had a run it was never sent, after that it goes on. */
  readonly phase: 'open' | 'rejoining' | 'ended' | 'lost';
}

/** A turn about to be sent. */
export function createSentTurn(
  requestId: string,
  message: Exclude<MessageToSend, string>,
): LiveTurn {
  const { message: content, attachments = [] } = message;
  return { ...createFollowedTurn(requestId), question: { content, attachments } };
}

/** A turn that somebody else has sent. */
export function createFollowedTurn(requestId: string): LiveTurn {
  return { requestId, startedAt: new Date().toISOString(), turn: emptyTurn, phase: 'open' };
}

/** Whether more of it may come. */
export const isOpen = ({ phase }: LiveTurn): boolean => phase === 'open' || phase === 'rejoining';
