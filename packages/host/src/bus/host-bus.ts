import { randomBytes } from 'node:crypto';
import type { OutgoingHttpHeaders } from 'node:http';
import type { SessionChange } from '@sibyl/protocol';
import { Listeners } from '@sibyl/server-kit';
import type { Logger } from 'pino';
import type { BusFigures } from '../observability/metrics.js';
import type { Position, SessionKey, SocketEventMessage } from './event-bus.js';

/**
 * The messages between hosts, by topic; payloads are JSON. Each message is a hint that may be lost: what it reports is
 * also in the store, where a host that missed it finds it a little later.
 */
export interface HostTopics {
  /** A run of the receiver was promoted and has to be started. */
  'run-promoted': { readonly owner: string; readonly runId: string };
  /** Queued runs have no host any more. */
  'run-available': null;
  /** The sender has readers of a run of the receiver. */
  'run-watch': { readonly runId: string };
  /** Frames of a run that the receiver watches. */
  'run-frames': { readonly runId: string; readonly frames: readonly WireFrame[] };
  /** A run that the receiver watches was canceled; storing its end may take a while. */
  'run-ending': { readonly runId: string };
  /** The run changed in the store: its readers should read it again. */
  'run-changed': { readonly owner: string; readonly runId: string };
  /** A queued run of the receiver was withdrawn. */
  'run-withdrawn': { readonly owner: string; readonly runId: string };
  'run-canceled': { readonly runId: string; readonly reason: 'aborted' | 'interrupted' };
  'host-joined': { readonly hostId: string };
  /** A host seems to have ended; check at once. */
  'host-lost': { readonly hostId: string };
  /** What a host has counted since its last message: costs by key, for each kind of limit. */
  limits: Readonly<Record<string, readonly (readonly [key: string, cost: number])[]>>;
  /** These delegations were revoked. */
  revoked: { readonly cids: readonly string[] };
  /** A user has changed the rules that this key names. */
  'rules-changed': { readonly key: string };
  /** An invited caller was removed. */
  'caller-removed': { readonly did: string };
  /** An operator has blocked a caller. */
  'caller-blocked': { readonly did: string };
  /** A user was erased. */
  'user-erased': { readonly did: string };
  /** A socket of a session has opened at the sender. */
  'sockets-opened': SessionKey;
  'socket-event': SocketEventMessage;
  /** An event for the sockets of the receiver is too large for a message; it is in the store. */
  'socket-gap': SessionKey & { readonly position: Position };
  /** Lists of sessions have changed at the sender. */
  'sessions-changed': readonly WireChange[];
  /** From a plugin to itself. */
  'plugin-message': { readonly plugin: string; readonly message: unknown };
  /** A page has answered a call of the receiver; the answer is in the database. */
  'page-answered': SessionKey & { readonly toolCallId: string };
  /** A call of the sender to pages has ended. */
  'page-call-ended': SessionKey & { readonly toolCallId: string };
  /** A client polls the sender for a connection of the receiver. */
  polled: PolledPiece<PolledRequest>;
  'poll-answered': PolledPiece<PolledAnswer>;
  /** The sender no longer waits for the answer, or cannot give it. */
  'poll-ended': { readonly id: string };
}

/** What hosts need of the request of a client that polls, besides its body. */
export interface PolledRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Of the peer: the client, or a proxy. */
  readonly address: string;
}

export interface PolledAnswer {
  readonly status: number;
  readonly headers: OutgoingHttpHeaders;
}

/** A piece of a request or of an answer. */
export interface PolledPiece<Head> {
  readonly id: string;
  readonly index: number;
  /** In the first one. */
  readonly head?: Head;
  /** Of the body. */
  readonly text: string;
  readonly isLast: boolean;
}

/** A change of a session; its id is empty if it is not known which ones changed. */
export type WireChange = readonly [owner: string, sessionId: string, change: SessionChange];

/** A frame of a run: number, event, data. */
export type WireFrame = readonly [number, string, string];

export type HostTopic = keyof HostTopics;

/** The id of a host, or all hosts except the sender. */
export type HostAddress = string | 'others';

export type HostMessageListener<Topic extends HostTopic> = (
  payload: HostTopics[Topic],
  /** The host that sent it. */
  from: string,
) => void;

/** Carries messages between the hosts that share a database. */
export interface HostBus {
  /** Identifies this host until the process ends. */
  readonly hostId: string;
  /** Whether other hosts may use the database. */
  readonly isShared: boolean;
  /**
   * Sends a message as soon as possible, after earlier ones to the same hosts. Never throws or blocks. A message to this
   * host itself is delivered without the database. False if the message is too large, so that no host will receive it.
   */
  send<Topic extends HostTopic>(to: HostAddress, topic: Topic, payload: HostTopics[Topic]): boolean;
  /** Resolves once few messages wait, so that a large one in parts does not displace others. */
  room(): Promise<void>;
  /** Calls the listener for every message of a topic until the returned function is called. */
  on<Topic extends HostTopic>(topic: Topic, listener: HostMessageListener<Topic>): () => void;
  /** Calls the listener each time this host was disconnected and may have missed messages. */
  onMissed(listener: () => void): () => void;
  readonly figures: BusFigures;
}

/** 12 hex digits, different for each process. */
export const createHostId = (): string => randomBytes(6).toString('hex');

export const isHostId = (text: string): boolean => /^[0-9a-f]{12}$/.test(text);

interface HostMessage {
  readonly payload: HostTopics[HostTopic];
  readonly from: string;
}

/** Calls the listeners of messages. */
export class MessageListeners {
  private readonly listeners = new Listeners<HostTopic, HostMessage>();
  private readonly logger: Pick<Logger, 'error'>;

  constructor(logger: Pick<Logger, 'error'>) {
    this.logger = logger;
  }

  add<Topic extends HostTopic>(topic: Topic, listener: HostMessageListener<Topic>): () => void {
    return this.listeners.add(topic, ({ payload, from }) => {
      try {
        listener(payload as HostTopics[Topic], from);
      } catch (err) {
        this.logger.error({ err, topic }, 'a listener of messages between hosts failed');
      }
    });
  }

  /** An error of one listener does not keep the message from the others. */
  call(topic: HostTopic, payload: HostTopics[HostTopic], from: string): void {
    this.listeners.call(topic, { payload, from });
  }
}

/** The bus of a host that has its database for itself. */
export class MemoryHostBus implements HostBus {
  readonly hostId: string;
  readonly isShared = false;
  readonly figures: BusFigures = {
    sent: 0,
    received: 0,
    dropped: 0,
    batches: 0,
    bytes: 0,
    lagMs: 0,
  };
  private readonly listeners: MessageListeners;

  constructor(hostId: string, logger: Pick<Logger, 'error'>) {
    this.hostId = hostId;
    this.listeners = new MessageListeners(logger);
  }

  send<Topic extends HostTopic>(
    to: HostAddress,
    topic: Topic,
    payload: HostTopics[Topic],
  ): boolean {
    if (to === this.hostId) queueMicrotask(() => this.listeners.call(topic, payload, this.hostId));
    return true;
  }

  async room(): Promise<void> {}

  on<Topic extends HostTopic>(topic: Topic, listener: HostMessageListener<Topic>): () => void {
    return this.listeners.add(topic, listener);
  }

  onMissed(): () => void {
    return () => {};
  }
}

/** Which hosts are running, decided by the database. */
export interface HostLiveness {
  readonly hostId: string;
  /**
   * Whether the other hosts see this one as running. While false, others may close its runs or execute its queued turns,
   * so it must not write for them.
   */
  readonly isAlive: boolean;
  /** When the database last answered, on the monotonic clock. */
  readonly lastSeen: number;
  /** Running hosts, this one included. */
  readonly hostCount: number;
  /** Whether another host was running when last seen. */
  isRunning(hostId: string): boolean;
  /** Those of the given hosts that have ended or are disconnected; none while this host cannot know. */
  findDeadHosts(candidates: readonly string[]): Promise<readonly string[]>;
  /** Calls the listener once for each host that ends or is disconnected; at once if it is killed. */
  onHostLost(listener: (hostId: string) => void): () => void;
  /** Calls the listener when `isAlive` becomes false. */
  onLost(listener: () => void): () => void;
  /** Calls the listener when `isAlive` becomes true again. */
  onRegained(listener: () => void): () => void;
}

/** For a host that has its database for itself: all others have ended. */
export class SoleHost implements HostLiveness {
  readonly hostId: string;
  readonly isAlive = true;
  readonly lastSeen = Number.POSITIVE_INFINITY;
  readonly hostCount = 1;

  constructor(hostId: string) {
    this.hostId = hostId;
  }

  isRunning(): boolean {
    return false;
  }

  async findDeadHosts(candidates: readonly string[]): Promise<readonly string[]> {
    return candidates.filter((id) => id !== this.hostId);
  }

  onHostLost(): () => void {
    return () => {};
  }

  onLost(): () => void {
    return () => {};
  }

  onRegained(): () => void {
    return () => {};
  }
}
