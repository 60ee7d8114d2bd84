import type { ServerEvent } from './server-event.js';

/** Whoever listens to one session of one user. */
export interface Audience {
  readonly owner: string;
  readonly sessionId: string;
}

/** Never throws and never waits. */
export type Listener = (event: ServerEvent) => void;

/** Carries events to the sockets of a session, wherever those are. */
export interface EventBus {
  /** Tells the whole audience, in the order of the calls. */
  publish(audience: Audience, event: ServerEvent): void;
  /** Calls back on every event for the audience until the returned function is called. */
  subscribe(audience: Audience, listener: Listener): () => void;
}

/** Names an audience; neither part may hold a space. */
export const audienceName = ({ owner, sessionId }: Audience): string => `${sessionId} ${owner}`;
