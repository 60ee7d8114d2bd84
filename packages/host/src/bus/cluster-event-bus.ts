import { Listeners, LruMap, textBytes } from '@sibyl/server-kit';
import type { Logger } from 'pino';
import {
  type CallEvent,
  type EventBus,
  formatSessionKey,
  isAfter,
  isCallEvent,
  type Listener,
  MemoryEventBus,
  type Position,
  parseSessionKey,
  type ServerEvent,
  type SessionKey,
  type SocketEventMessage,
} from './event-bus.js';
import type { HostBus, HostLiveness, HostTopics } from './host-bus.js';
import type { SocketDirectory } from './socket-presence.js';

/** How long the hosts of a session are remembered, in case the message about another one is lost. */
const ROUTE_MS = 1_000;
const MAX_ROUTES = 10_000;
const RETRY_MS = 1_000;
/** Events that wait while the hosts of their session are looked up. */
const MAX_WAITING = 1_000;
/** Longer than it takes to store an event. */
const STORED_MS = 500;
/** Longer than a turn continues without its database: a socket that opens reads older events from there. */
const RECENT_MS = 15_000;
const RECENT_MAX_BYTES = 8 * 1024 * 1024;
const SILENCE_CHECK_MS = 5_000;
/** The bus is considered silent if a message takes longer. */
const SILENT_MS = 3_000;

/** Where the events of a session go. */
interface Route {
  readonly key: SessionKey;
  hosts: readonly string[];
  /** When the hosts were read; undefined before and while they are read. */
  readAt: number | undefined;
  isLoading: boolean;
  /** Events in their order, until the hosts are known. */
  waiting: ServerEvent[];
  /** The position that each host has been sent last. */
  readonly sent: Map<string, Position>;
}

interface ClusterEventBusDeps {
  readonly directory: SocketDirectory;
  readonly bus: HostBus;
  readonly liveness: Pick<HostLiveness, 'onHostLost'>;
  /** Receives the calls to pages of turns on other hosts. */
  readonly onRemoteCall: (key: SessionKey, call: CallEvent, hostId: string) => void;
  /** Whether a call of this host has not ended. */
  readonly isCallOpen: (key: SessionKey, callId: string) => boolean;
  readonly logger: Pick<Logger, 'warn'>;
}

/** Delivers events to the sockets of a session at this host, and to the other hosts that hold sockets of it. */
export class ClusterEventBus implements EventBus {
  private readonly deps: ClusterEventBusDeps;
  private readonly local = new MemoryEventBus();
  private readonly routes = new LruMap<string, Route>({
    maxBytes: Number.POSITIVE_INFINITY,
    maxEntries: MAX_ROUTES,
    measure: (_, name) => textBytes(name),
  });
  /** By sender and session: the position that has arrived last. */
  private readonly arrived = new LruMap<string, Position>({
    maxBytes: Number.POSITIVE_INFINITY,
    maxEntries: MAX_ROUTES,
    measure: (_, name) => textBytes(name),
  });
  private readonly published = new RecentEvents();
  private readonly received = new RecentEvents();
  /** By session; at most as many as open sockets. */
  private readonly gapListeners = new Listeners<string>();
  private readonly silenceCheck: NodeJS.Timeout;

  constructor(deps: ClusterEventBusDeps) {
    this.deps = deps;
    const { bus, liveness } = deps;
    bus.on('socket-event', (message, from) => this.receive(message, from));
    bus.on('socket-gap', (message, from) => this.receiveGap(message, from));
    bus.on('sockets-opened', (key, from) => this.addHost(key, from));
    // It may have ended before it sent its last events.
    liveness.onHostLost((hostId) => this.reportMissed(hostId));
    bus.onMissed(() => this.reportMissed());
    this.silenceCheck = setInterval(() => {
      if (this.gapListeners.size > 0 && bus.figures.lagMs > SILENT_MS) this.reportMissed();
    }, SILENCE_CHECK_MS).unref();
  }

  publish({ owner, sessionId }: SessionKey, event: ServerEvent): void {
    const key = { owner, sessionId };
    this.local.publish(key, { ...event, sender: this.deps.bus.hostId });
    this.published.add(formatSessionKey(key), event);
    const route = this.getRoute(key);
    const isFresh = route.readAt !== undefined && performance.now() - route.readAt < ROUTE_MS;
    if (isFresh && !route.isLoading) {
      this.send(route, event);
      return;
    }
    if (route.waiting.push(event) > MAX_WAITING) route.waiting.shift();
    void this.load(route);
  }

  subscribe(key: SessionKey, listener: Listener, onGap: () => void): () => void {
    const name = formatSessionKey(key);
    const stopListening = this.gapListeners.add(name, onGap);
    const unsubscribe = this.local.subscribe(key, listener);
    // They may not be stored yet. An open call is sent to a new socket only if no page has received it.
    for (const event of this.received.list(name)) if (!isCallEvent(event)) listener(event);
    return () => {
      unsubscribe();
      stopListening();
    };
  }

  close(): void {
    clearInterval(this.silenceCheck);
  }

  private getRoute(key: SessionKey): Route {
    const name = formatSessionKey(key);
    const known = this.routes.get(name);
    if (known) return known;
    const empty = { hosts: [], readAt: undefined, isLoading: false, waiting: [], sent: new Map() };
    const route: Route = { key, ...empty };
    this.routes.set(name, route);
    return route;
  }

  private async load(route: Route): Promise<void> {
    if (route.isLoading) return;
    route.isLoading = true;
    const before = route.hosts;
    try {
      const hosts = await this.deps.directory.findHosts(route.key);
      // A host may have announced a socket after the query.
      const added = route.hosts.filter((id) => !before.includes(id));
      route.hosts = [...new Set([...hosts, ...added])];
      for (const id of route.sent.keys()) if (!route.hosts.includes(id)) route.sent.delete(id);
    } catch (err) {
      this.deps.logger.warn({ err }, 'cannot find the sockets of a session at other hosts');
      route.isLoading = false;
      // The events wait: a host that is not known would not notice that it missed them.
      setTimeout(() => void this.load(route), RETRY_MS).unref();
      return;
    }
    route.isLoading = false;
    route.readAt = performance.now();
    const { waiting } = route;
    route.waiting = [];
    for (const event of waiting) this.send(route, event);
  }

  private send(route: Route, event: ServerEvent): void {
    for (const hostId of route.hosts) this.sendTo(hostId, route, event);
  }

  private sendTo(hostId: string, { key, sent }: Route, event: ServerEvent): void {
    const after = sent.get(hostId) ?? null;
    const { bus } = this.deps;
    const { position } = event;
    if (position) sent.set(hostId, position);
    const isSent = bus.send(hostId, 'socket-event', { ...key, event, after });
    if (isSent || !position) return;
    setTimeout(() => bus.send(hostId, 'socket-gap', { ...key, position }), STORED_MS).unref();
  }

  /** A socket opened at another host: sends what it cannot find in the store yet. */
  private addHost({ owner, sessionId }: SessionKey, hostId: string): void {
    const name = formatSessionKey({ owner, sessionId });
    const recent = this.published.list(name);
    const route =
      this.routes.get(name) ?? (recent.length > 0 && this.getRoute({ owner, sessionId }));
    if (!route || route.hosts.includes(hostId)) return;
    route.hosts = [...route.hosts, hostId];
    // Events that wait for the hosts are sent then.
    for (const event of recent) {
      const isOver =
        isCallEvent(event) && !this.deps.isCallOpen(route.key, event.payload.toolCallId);
      if (!isOver && !route.waiting.includes(event))
        this.sendTo(hostId, route, { ...event, isRepeated: true });
    }
  }

  private receiveGap({ owner, sessionId, position }: HostTopics['socket-gap'], from: string): void {
    const name = formatSessionKey({ owner, sessionId });
    const link = `${from} ${name}`;
    const last = this.arrived.get(link);
    // The event after it has shown the gap already.
    if (last && !isAfter(position, last)) return;
    this.arrived.set(link, position);
    this.reportGap(name);
  }

  private receive(message: SocketEventMessage, sender: string): void {
    const { owner, sessionId, after } = message;
    const event = { ...message.event, sender };
    const key = { owner, sessionId };
    const name = formatSessionKey(key);
    const link = `${sender} ${name}`;
    const last = this.arrived.get(link);
    if (event.position) {
      if (last && !isAfter(event.position, last)) return;
      this.arrived.set(link, event.position);
    }
    if (isCallEvent(event)) this.deps.onRemoteCall(key, event, sender);
    this.received.add(name, event);
    const isGap = after !== null && (!last || isAfter(after, last));
    if (isGap) this.reportGap(name);
    else this.local.publish(key, event);
  }

  /** Clients of the session reconnect, and receive what they missed from the store. */
  private reportGap(name: string): void {
    this.gapListeners.call(name);
  }

  /** Events of one host, or of any, may not have arrived. */
  private reportMissed(from?: string): void {
    const open = this.gapListeners.list().map(parseSessionKey);
    this.deps.directory.findTurnsElsewhere(open, from).then(
      (keys) => {
        for (const key of keys) this.reportGap(formatSessionKey(key));
      },
      (err) => {
        this.deps.logger.warn({ err }, 'cannot find turns at other hosts');
        for (const name of this.gapListeners.list()) this.reportGap(name);
      },
    );
  }
}

interface RecentEvent {
  readonly name: string;
  readonly event: ServerEvent;
  readonly bytes: number;
  readonly at: number;
}

/** The events of the last seconds, of all sessions and of each: a socket that opens must not read those of all others. */
class RecentEvents {
  private readonly all = new Set<RecentEvent>();
  private readonly bySession = new Map<string, Set<RecentEvent>>();
  private bytes = 0;

  add(name: string, event: ServerEvent): void {
    if (!event.position) return;
    const bytes = textBytes(name) + textBytes(JSON.stringify(event.payload));
    const entry = { name, event, bytes, at: performance.now() };
    this.all.add(entry);
    const own = this.bySession.get(name) ?? new Set();
    this.bySession.set(name, own.add(entry));
    this.bytes += bytes;
    this.prune();
  }

  list(name: string): readonly ServerEvent[] {
    this.prune();
    return [...(this.bySession.get(name) ?? [])].map(({ event }) => event);
  }

  private prune(): void {
    const oldest = performance.now() - RECENT_MS;
    for (const entry of this.all) {
      if (entry.at >= oldest && this.bytes <= RECENT_MAX_BYTES) break;
      this.all.delete(entry);
      this.bytes -= entry.bytes;
      const own = this.bySession.get(entry.name);
      own?.delete(entry);
      if (own?.size === 0) this.bySession.delete(entry.name);
    }
  }
}
