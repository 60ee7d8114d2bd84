import type { CallEvent, ClientCallResult, SessionKey } from './event-bus.js';

/** How many sockets of a session this host holds. */
export interface SocketCount extends SessionKey {
  readonly sockets: number;
}

/** A call to a page that waits for an answer, on any host. */
export interface SharedCall {
  readonly call: CallEvent;
  /** The host of the turn. */
  readonly hostId: string;
  /** Whether a page at another host has received it. */
  readonly isDelivered: boolean;
}

/** What hosts that share a database must find out about each other's sockets and calls to pages. */
export interface SocketDirectory {
  /** Records how many sockets of these sessions this host holds. */
  setCounts(counts: readonly SocketCount[]): Promise<void>;
  /** The other hosts that hold sockets of a session. */
  findHosts(key: SessionKey): Promise<readonly string[]>;
  /** How many sockets of a user other hosts hold. */
  countElsewhere(owner: string): Promise<number>;
  /** The sessions with sockets at this host that had a turn at another host in the last minute. */
  findSessionsWithTurnsElsewhere(): Promise<readonly SessionKey[]>;
  /** All hosts that have recorded something. */
  listHosts(): Promise<readonly string[]>;
  /** Removes what a host that has ended had recorded. */
  removeHost(hostId: string): Promise<void>;

  addCall(key: SessionKey, call: CallEvent): Promise<void>;
  removeCall(key: SessionKey, callId: string): Promise<void>;
  /** The calls of a session without an answer. */
  listCalls(key: SessionKey): Promise<readonly SharedCall[]>;
  /** Records that a page at this host has received a call. */
  markDelivered(key: SessionKey, callId: string): Promise<void>;
  /** Stores the answer to a call of another host; false if there was one. */
  answerCall(key: SessionKey, hostId: string, answer: ClientCallResult): Promise<boolean>;
  findAnswer(key: SessionKey, callId: string): Promise<ClientCallResult | undefined>;
}
