import type { ClientEventName, ServerEventName, serverEvents } from '@sibyl/protocol';

/** Event name → its payload, free of the envelope some travel in (contract B5). */
export type ServerEvents = {
  [Name in ServerEventName]: (typeof serverEvents)[Name]['payload']['_zod']['output'];
};

/** Any event, for those who want all of them. */
export type ServerEvent = {
  [Name in ServerEventName]: { readonly name: Name; readonly payload: ServerEvents[Name] };
}[ServerEventName];

export type ConnectionState = 'connecting' | 'connected' | 'disconnected';

/** What happens in a session, live. One socket serves everybody who listens to the same session. */
export interface SessionEvents {
  readonly sessionId: string;
  /** `disconnected` for good: the host refuses this session. A network that went is `connecting`. */
  readonly state: ConnectionState;
  /** Calls back on every event of that name; returns what ends it. */
  on<Name extends ServerEventName>(
    name: Name,
    listener: (payload: ServerEvents[Name]) => void,
  ): () => void;
  onAny(listener: (event: ServerEvent) => void): () => void;
  onState(listener: (state: ConnectionState) => void): () => void;
  /** Resolves when connected; rejects when the host refuses. */
  ready(): Promise<void>;
  /** Sends an event; one sent while the network is gone goes out when it is back. */
  emit(name: ClientEventName, payload?: unknown): void;
  ping(): Promise<ServerEvents['pong']>;
  status(): Promise<ServerEvents['status']>;
  /** Every event the host knows. */
  catalog(): Promise<ServerEvents['available-events']>;
  close(): void;
}
