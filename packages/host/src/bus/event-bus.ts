import {
  type ClosingReason,
  type ReplyPart,
  type ServerEventName,
  serverEvents,
} from '@sibyl/protocol';
import { Listeners } from '@sibyl/server-kit';
import type { z } from 'zod';

/** Identifies a session; a session of another owner does not exist for a caller. */
export interface SessionKey {
  readonly owner: string;
  readonly sessionId: string;
}

/** Must not throw or block. */
export type Listener = (event: ServerEvent) => void;

/** Delivers events to the sockets of a session. */
export interface EventBus {
  /** Delivers an event to all listeners of the session, in the order of the calls. */
  publish(key: SessionKey, event: ServerEvent): void;
  /**
   * Calls the listener for every event of the session until the returned function is called. Calls `onGap` if events were
   * lost between hosts: they are in the log of the session's runs.
   */
  subscribe(key: SessionKey, listener: Listener, onGap: () => void): () => void;
  /** Stops its timers. */
  close(): void;
}

/** Formats a key as text; neither part may contain a space. */
export const formatSessionKey = ({ owner, sessionId }: SessionKey): string =>
  `${sessionId} ${owner}`;

export function parseSessionKey(text: string): SessionKey {
  const [sessionId = '', owner = ''] = text.split(' ');
  return { owner, sessionId };
}

/** Delivers events within this process. */
export class MemoryEventBus implements EventBus {
  private readonly listeners = new Listeners<string, ServerEvent>();

  close(): void {}

  publish(key: SessionKey, event: ServerEvent): void {
    this.listeners.call(formatSessionKey(key), event);
  }

  subscribe(key: SessionKey, listener: Listener): () => void {
    return this.listeners.add(formatSessionKey(key), listener);
  }
}

type Payload<Name extends ServerEventName> = z.output<(typeof serverEvents)[Name]['payload']>;

/** An event for the clients of a session. */
export type ServerEvent<Name extends ServerEventName = ServerEventName> = {
  [N in Name]: {
    readonly event: N;
    readonly payload: Payload<N>;
    /** The position of the run's frame with the same content, if there is one. */
    readonly position?: Position;
    /** The host that has sent it; undefined if there is only one. */
    readonly sender?: string | undefined;
    /** Sent once more, to a host whose sockets opened after it: of a call, a page may have received it. */
    readonly isRepeated?: boolean;
  };
}[Name];

/** The events that call a function of a page. */
export type CallEventName = 'browser_tool_call' | 'action_call';
export type CallEvent = ServerEvent<CallEventName>;

export const isCallEvent = (event: ServerEvent): event is CallEvent =>
  event.event === 'browser_tool_call' || event.event === 'action_call';

/** The answer of a page to a call. */
export interface ClientCallResult {
  readonly event: CallEventName;
  readonly toolCallId: string;
  readonly result: unknown;
  /** Why the call failed in the page. */
  readonly error?: string | undefined;
}

/** An event for the sockets of another host. */
export interface SocketEventMessage extends SessionKey {
  readonly event: ServerEvent;
  /** The position that the receiver was sent before; null at first. */
  readonly after: Position | null;
}

/** Converts a frame to a socket event; undefined for frames that only streams contain. */
export function toServerEvent(part: ReplyPart, position: Position): ServerEvent | undefined {
  if (!Object.hasOwn(serverEvents, part.event)) return undefined;
  // Pages run every `action_call` that they receive, so its end is not sent.
  if (part.event === 'action_call' && part.data.status !== 'isRunning') return undefined;
  return { event: part.event, payload: part.data, position } as ServerEvent;
}

/** Converts an event to its wire form: the payload, or its envelope. */
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

/** Creates the last event of a socket: why it closes. */
export function createClosingEvent(
  reason: ClosingReason,
  sessionId: string,
): ServerEvent<'closing'> {
  const timestamp = new Date().toISOString();
  return { event: 'closing', payload: { reason, message: messages[reason], sessionId, timestamp } };
}

/** The position of an event in a session: a turn and a frame of its run. */
export interface Position {
  readonly turn: number;
  readonly seq: number;
}

/** Larger than the number of any frame. */
const ATTEMPT_STEP = 10 ** 9;

/** The position of a frame; the frames of each attempt of a turn are numbered from 1. */
export const toPosition = (
  { turn, attempt }: { readonly turn: number; readonly attempt: number },
  seq: number,
): Position => ({ turn, seq: (attempt - 1) * ATTEMPT_STEP + seq });

/** The number of the last frame of a run that a client at a position has seen. */
export const seqIn = (
  { turn, attempt }: { readonly turn: number; readonly attempt: number },
  seen: Position,
): number => (seen.turn === turn ? Math.max(0, seen.seq - (attempt - 1) * ATTEMPT_STEP) : 0);

/** Before the first event of a session. */
export const BEFORE_ALL: Position = { turn: 0, seq: 0 };

/** After all events of a run, and before those of the next attempt of its turn. */
export const endOfRun = (run: { readonly turn: number; readonly attempt: number }): Position =>
  toPosition(run, ATTEMPT_STEP - 1);

export const formatPosition = ({ turn, seq }: Position): string => `${turn}.${seq}`;

/** Parses the position of a client; undefined if it is malformed. */
export function parsePosition(text: unknown): Position | undefined {
  const [, turn, seq] = (typeof text === 'string' && /^(\d{1,15})\.(\d{1,15})$/.exec(text)) || [];
  return turn === undefined ? undefined : { turn: Number(turn), seq: Number(seq) };
}

export const isAfter = (a: Position, b: Position): boolean =>
  a.turn > b.turn || (a.turn === b.turn && a.seq > b.seq);
