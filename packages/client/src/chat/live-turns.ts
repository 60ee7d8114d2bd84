import type { Attachment, Message } from '@sibyl/protocol';
import type { OracleClientError } from '../errors.js';
import { emptyTurn, type Turn } from '../turns/turn.js';
import type { MessageToSend } from '../turns/turns.js';

/** Ended turns that are kept, since socket events may arrive later than the stream. */
const KEPT_AFTER_END = 5;

/** The turns of an open chat that are running, just ended, or never sent. */
export class LiveTurns {
  private readonly turns = new Map<string, LiveTurn>();

  get(requestId: string): LiveTurn | undefined {
    return this.turns.get(requestId);
  }

  /** In the order they started. */
  list(): readonly LiveTurn[] {
    return [...this.turns.values()];
  }

  put(live: LiveTurn): void {
    this.turns.set(live.requestId, live);
  }

  /** Puts the turn that is being answered before those that wait for it. */
  putRunning(live: LiveTurn): void {
    const waiting = this.list().filter((each) => isOpen(each) && each.requestId !== live.requestId);
    this.put(live);
    for (const each of waiting) {
      this.turns.delete(each.requestId);
      this.put(each);
    }
  }

  /** Drops a message that the server has not accepted; returns whether it was one. */
  discard(requestId: string): boolean {
    const live = this.turns.get(requestId);
    return live !== undefined && !live.turn.runId && this.turns.delete(requestId);
  }

  /** A message that was withdrawn leaves nothing behind. */
  dropWithdrawn(requestId: string): void {
    const { status, messageId } = this.turns.get(requestId)?.turn ?? {};
    if (status === 'aborted' && messageId === undefined) this.turns.delete(requestId);
  }

  /** The turn that is being answered, once the server has accepted it. */
  findRunning(): LiveTurn | undefined {
    const first = this.list().find(isOpen);
    return first?.turn.runId ? first : undefined;
  }

  /** Remembers whether a turn is on the path of a history that was loaded after the server had accepted it. */
  place(requestId: string, history: readonly Message[]): void {
    const live = this.turns.get(requestId);
    if (!live) return;
    this.put({ ...live, isElsewhere: !isOnPath(live, history) });
  }

  /** Ended turns whose answer the server has stored. */
  listAnswered(): readonly string[] {
    const isAnswered = ({ phase, turn }: LiveTurn) => phase === 'ended' && turn.messageId;
    return this.list()
      .filter(isAnswered)
      .map(({ requestId }) => requestId);
  }

  /**
   * Drops turns that have ended and are in the history, except for the latest. Those of `answered` were stored before
   * it was loaded: if they are not in it, another path is active.
   */
  dropStored(history: readonly Message[], answered: readonly string[] = []): void {
    const stored = new Set([...answered, ...history.map(({ requestId }) => requestId)]);
    const ended = this.list().filter(
      ({ phase, requestId }) => phase === 'ended' && stored.has(requestId),
    );
    for (const { requestId } of ended.slice(0, -KEPT_AFTER_END)) this.turns.delete(requestId);
    for (const live of ended.slice(-KEPT_AFTER_END))
      if (!live.isStored) this.put({ ...live, isStored: true });
  }
}

/** A turn that this client has sent or follows. */
export interface LiveTurn {
  readonly requestId: string;
  readonly startedAt: string;
  /** Set if this client started it. */
  readonly isSent?: boolean;
  /** Set if this client sent the message. */
  readonly question?: { readonly content: string; readonly attachments: readonly Attachment[] };
  readonly turn: Turn;
  /** Why it is `lost`. */
  readonly error?: OracleClientError;
  /** Set once it was in the history: if it is not any more, another path is active. */
  readonly isStored?: boolean;
  /** Set while another path is active than that of the turn. */
  readonly isElsewhere?: boolean;
  /** The question, if another turn has asked it. */
  readonly questionId?: string | undefined;
  /** `lost` when reading failed: without a run it was never sent; otherwise it continues on the server. */
  readonly phase: 'open' | 'rejoining' | 'ended' | 'lost';
}

export function createSentTurn(
  requestId: string,
  message: Exclude<MessageToSend, string>,
): LiveTurn {
  const { message: content, attachments = [] } = message;
  const sent = { ...createFollowedTurn(requestId), isSent: true };
  if (content === undefined) return sent;
  const named = attachments.map(({ filename = 'file', mimetype = '', ...file }) => ({
    ...file,
    filename,
    mimetype,
  }));
  return { ...sent, question: { content, attachments: named } };
}

/** A turn that another client has sent. */
export function createFollowedTurn(requestId: string): LiveTurn {
  return { requestId, startedAt: new Date().toISOString(), turn: emptyTurn, phase: 'open' };
}

/** Whether more parts may arrive. */
export const isOpen = ({ phase }: LiveTurn): boolean => phase === 'open' || phase === 'rejoining';

/** Whether an open turn is part of a path: with its question, which has no other answer there. */
export function isOnPath({ requestId, questionId }: LiveTurn, path: readonly Message[]): boolean {
  if (path.some((message) => message.requestId === requestId)) return true;
  const asked = path.findIndex(({ id }) => id === questionId);
  return asked >= 0 && path[asked + 1]?.type !== 'ai';
}

/** Whether a turn is shown with a history, which may be older than a message of this client. */
export function isShown(live: LiveTurn, history: readonly Message[]): boolean {
  const { requestId, question, questionId, isSent, isStored, isElsewhere } = live;
  if (isStored || isElsewhere) return history.some((message) => message.requestId === requestId);
  const isNewer = question !== undefined || (isSent === true && questionId === undefined);
  return isNewer || isOnPath(live, history);
}

/** Whether an earlier answer to the same question is shown until the history is read again. */
export function isAfterAnswer(
  { requestId, questionId }: LiveTurn,
  history: readonly Message[],
  live: readonly LiveTurn[],
): boolean {
  const question = history.find(({ id }) => id === questionId);
  if (!question || history.some((message) => message.requestId === requestId)) return false;
  const earlier = live.slice(
    0,
    live.findIndex((each) => each.requestId === requestId),
  );
  return earlier.some(
    ({ isStored, phase, turn, ...each }) =>
      (each.questionId === questionId || each.requestId === question.requestId) &&
      !isStored &&
      (phase === 'ended' ? turn.messageId !== undefined : phase !== 'lost'),
  );
}
