import {
  type ClosingReason,
  type ReplyPart,
  type ServerEventName,
  serverEvents,
} from '@sibyl/protocol';
import type { z } from 'zod';

/** Identifies a session; a session of another owner does not exist for a caller. */
export interface SessionKey {
  readonly owner: string;
  readonly sessionId: string;
}

/** Never throws and never waits. */
export type Listener = (event: ServerEvent) => void;

/** Carries events to the sockets of a session, wherever those are. */
export interface EventBus {
  /** Tells the whole key, in the order of the calls. */
  publish(key: SessionKey, event: ServerEvent): void;
  /** Calls back on every event for the key until the returned function is called. */
  subscribe(key: SessionKey, listener: Listener): () => void;
}

/** Names an key; neither part may hold a space. */
export const formatSessionKey = ({ owner, sessionId }: SessionKey): string =>
  `${sessionId} ${owner}`;

/** Carries events within this process. */
export class MemoryEventBus implements EventBus {
  private readonly listeners = new Map<string, Set<Listener>>();

  publish(key: SessionKey, event: ServerEvent): void {
    for (const listener of this.listeners.get(formatSessionKey(key)) ?? []) listener(event);
  }

  subscribe(key: SessionKey, listener: Listener): () => void {
    const name = formatSessionKey(key);
    // A listener of its own, so that the same function may subscribe twice and leave once.
    const member: Listener = (event) => listener(event);
    const members = this.listeners.get(name) ?? new Set();
    this.listeners.set(name, members.add(member));
    return () => {
      members.delete(member);
      if (members.size === 0 && this.listeners.get(name) === members) this.listeners.delete(name);
    };
  }
}

type Payload<Name extends ServerEventName> = z.output<(typeof serverEvents)[Name]['payload']>;

/** What the clients of a session are told. */
export type ServerEvent<Name extends ServerEventName = ServerEventName> = {
  [N in Name]: {
    readonly event: N;
    readonly payload: Payload<N>;
    /** Of the run's frame that says the same, if one does. */
    readonly position?: Position;
  };
}[Name];

/** A frame as the session's sockets are told it; undefined for those that only a stream has. */
export function toServerEvent(part: ReplyPart, position: Position): ServerEvent | undefined {
  if (!Object.hasOwn(serverEvents, part.event)) return undefined;
  // Pages run whatever `action_call` they are sent, so how one ended is not sent (contract B5).
  if (part.event === 'action_call' && part.data.status !== 'isRunning') return undefined;
  return { event: part.event, payload: part.data, position } as ServerEvent;
}

/** What goes on the wire: the payload, or its envelope (contract B5). */
export function toWireForm({ event, payload }: ServerEvent): unknown {
  return serverEvents[event].wrapping === 'enveloped' ? { eventName: event, payload } : payload;
}

const messages: Readonly<Record<ClosingReason, string>> = {
  token_expired: 'The token has expired; connect again with a fresh one',
  token_revoked: 'The delegation of this connection was revoked; connect again with another proof',
  caller_not_allowed: 'The operator has removed you from the users of this oracle',
  session_deleted: 'The session was deleted',
  rate_limited: 'Too many events; wait a minute before you connect again',
  host_stopping: 'The host is stopping; connect again in a moment',
};

/** The last that a socket is told: why it ends. */
export function createClosingEvent(
  reason: ClosingReason,
  sessionId: string,
): ServerEvent<'closing'> {
  const timestamp = new Date().toISOString();
  return { event: 'closing', payload: { reason, message: messages[reason], sessionId, timestamp } };
}

/** Where a session's events stand: a frame of the run that is its `turn`. */
export interface Position {
  readonly turn: number;
  readonly seq: number;
}

/** Before the first event of a session. */
export const BEFORE_ALL: Position = { turn: 0, seq: 0 };

/** After all that a turn tells, however far a client was in it. */
export const endOfTurn = (turn: number): Position => ({ turn, seq: 10 ** 12 });

export const formatPosition = ({ turn, seq }: Position): string => `${turn}.${seq}`;

/** Reads what a client says it has seen; undefined for anything that no position looks like. */
export function parsePosition(text: unknown): Position | undefined {
  const [, turn, seq] = (typeof text === 'string' && /^(\d{1,15})\.(\d{1,15})$/.exec(text)) || [];
  return turn === undefined ? undefined : { turn: Number(turn), seq: Number(seq) };
}

export const isAfter = (a: Position, b: Position): boolean =>
  a.turn > b.turn || (a.turn === b.turn && a.seq > b.seq);
