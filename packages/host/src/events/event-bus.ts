import type { ServerEvent } from './server-event.js';

/** Whoever listens to one session of one user. */
export interface Room {
  readonly owner: string;
  readonly sessionId: string;
}

/** Never throws and never waits. */
export type Listener = (event: ServerEvent) => void;

/** Carries events to the sockets of a session, wherever those are. */
export interface EventBus {
  /** Tells everybody in the room, in the order of the calls. */
  publish(room: Room, event: ServerEvent): void;
  /** Calls back on every event of the room until the returned function is called. */
  subscribe(room: Room, listener: Listener): () => void;
}

/** What the bus is injected by. */
export const EVENT_BUS = Symbol('event bus');

/** Names a room; neither part may hold a space. */
export const roomName = ({ owner, sessionId }: Room): string => `${sessionId} ${owner}`;
