import type { ClientEventName, ServerEventName, serverEvents } from '@sibyl/protocol';

/** Maps event names to payloads, without the envelope that some events have on the wire. */
export type ServerEvents = {
  [Name in ServerEventName]: (typeof serverEvents)[Name]['payload']['_zod']['output'];
};

/** Any server event. */
export type ServerEvent = {
  [Name in ServerEventName]: { readonly name: Name; readonly payload: ServerEvents[Name] };
}[ServerEventName];

export type ConnectionState = 'connecting' | 'connected' | 'disconnected';

/** Live events of a session. All subscribers of a session share one socket. */
export interface SessionEvents {
  readonly sessionId: string;
  /** `disconnected` is final: the oracle rejected the session. A lost network is `connecting`. */
  readonly state: ConnectionState;
  /** Calls the listener on every event of that name; returns a function that removes it. */
  on<Name extends ServerEventName>(
    name: Name,
    listener: (payload: ServerEvents[Name]) => void,
  ): () => void;
  onAny(listener: (event: ServerEvent) => void): () => void;
  onState(listener: (state: ConnectionState) => void): () => void;
  /** Resolves when connected; rejects when the oracle rejects the connection. */
  ready(): Promise<void>;
  /** Sends an event; events sent while offline are sent on reconnect. */
  emit(name: ClientEventName, payload?: unknown): void;
  ping(): Promise<ServerEvents['pong']>;
  status(): Promise<ServerEvents['status']>;
  /** Lists all events of the oracle. */
  catalog(): Promise<ServerEvents['available-events']>;
  close(): void;
}
