import type { Attachment, Message } from '@sibyl/protocol';
import type { OracleClientError } from '../errors.js';
import type { MessageToSend } from '../oracle-client.js';
import { emptyTurn, type Turn } from '../turns/turn.js';

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
    const isOn = isOnPath(live, history);
    const last = history.at(-1);
    const isAgain = isOn && last?.type === 'human' && last.requestId !== requestId;
    this.put({ ...live, isElsewhere: !isOn, ...(isAgain && { answersAgain: last.id }) });
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
  /** Set if this client sent the message. */
  readonly question?: { readonly content: string; readonly attachments: readonly Attachment[] };
  readonly turn: Turn;
  /** Why it is `lost`. */
  readonly error?: OracleClientError;
  /** Set once it was in the history: if it is not any more, another path is active. */
  readonly isStored?: boolean;
  /** Set while another path is active than that of the turn. */
  readonly isElsewhere?: boolean;
  /** The id of the question, which another turn has asked; known once the turn was on the active path. */
  readonly answersAgain?: string;
  /** `lost` when reading failed: without a run it was never sent; otherwise it continues on the server. */
  readonly phase: 'open' | 'rejoining' | 'ended' | 'lost';
}

export function createSentTurn(
  requestId: string,
  message: Exclude<MessageToSend, string>,
): LiveTurn {
  const { message: content, attachments = [] } = message;
  if (content === undefined) return createFollowedTurn(requestId);
  const named = attachments.map(({ filename = 'file', mimetype = '', ...file }) => ({
    ...file,
    filename,
    mimetype,
  }));
  return { ...createFollowedTurn(requestId), question: { content, attachments: named } };
}

/** A turn that another client has sent. */
export function createFollowedTurn(requestId: string): LiveTurn {
  return { requestId, startedAt: new Date().toISOString(), turn: emptyTurn, phase: 'open' };
}

/** Whether more parts may arrive. */
export const isOpen = ({ phase }: LiveTurn): boolean => phase === 'open' || phase === 'rejoining';

/** Whether an open turn is part of a path: with its question, as another answer to the last one, or below a later one. */
export function isOnPath(live: LiveTurn, path: readonly Message[]): boolean {
  const { requestId, question, answersAgain, turn } = live;
  const last = path.at(-1);
  const isPart = (message: Message) =>
    message.requestId === requestId ||
    (turn.runId !== undefined && message.parentId === turn.runId);
  const isAgain =
    !question && last?.type === 'human' && (answersAgain === undefined || answersAgain === last.id);
  return isAgain || path.some(isPart);
}
