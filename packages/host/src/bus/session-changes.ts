import { OracleError, type SessionChange, type SessionsChangedEvent } from '@sibyl/protocol';
import { ChangeSignal, Listeners } from '@sibyl/server-kit';
import type { SessionKey } from './event-bus.js';
import type { HostBus, WireChange } from './host-bus.js';

/** Changes of the same moment leave together. */
const SEND_MS = 100;
const MAX_UNSENT = 200;
/** Changes that wait for one reader; beyond it, the reader has to read the list again. */
const MAX_WAITING = 100;

type ChangedSession = Pick<SessionKey, 'owner'> & Partial<SessionKey>;
type ChangeListener = (event: SessionsChangedEvent) => void;
type SessionListener = (session: SessionKey, change: SessionChange) => void;

/** Reports changes in the list of a user's sessions to all clients of the user, on every host. */
export class SessionChanges {
  private readonly bus: HostBus;
  /** By owner; at most as many as open sockets and streams. */
  private readonly listeners = new Listeners<string, SessionsChangedEvent>();
  /** Those of plugins. */
  private readonly observers = new Set<SessionListener>();
  private unsent: WireChange[] = [];
  private timer: NodeJS.Timeout | undefined;
  private readonly closing = new AbortController();

  constructor(bus: HostBus) {
    this.bus = bus;
    bus.on('sessions-changed', (changes) => {
      for (const [owner, sessionId, change] of changes) this.deliver(owner, change, sessionId);
    });
    // It is not known which messages were lost.
    bus.onMissed(() => {
      for (const owner of this.listeners.list()) this.deliver(owner, 'reload');
    });
  }

  /** Without a session if it is not known which ones changed. */
  publish({ owner, sessionId = '' }: ChangedSession, change: SessionChange): void {
    this.deliver(owner, change, sessionId);
    if (!this.bus.isShared) return;
    this.unsent.push([owner, sessionId, change]);
    if (this.unsent.length >= MAX_UNSENT) this.send();
    else this.timer ??= setTimeout(() => this.send(), SEND_MS).unref();
  }

  /** Calls the listener for every change until the returned function is called. */
  subscribe(owner: string, listener: ChangeListener): () => void {
    return this.listeners.add(owner, listener);
  }

  /** Calls the listener for every change of a session of any user until the returned function is called. */
  observe(listener: SessionListener): () => void {
    this.observers.add(listener);
    return () => this.observers.delete(listener);
  }

  /** Throws while the host stops. */
  assertOpen(): void {
    if (this.closing.signal.aborted)
      throw new OracleError('host_stopping', { retryAfterSeconds: 5 });
  }

  /** Yields the changes of a user's sessions until the signal is aborted or the host stops. */
  async *read(owner: string, signal: AbortSignal): AsyncGenerator<readonly SessionsChangedEvent[]> {
    const ended = AbortSignal.any([signal, this.closing.signal]);
    const waiting = new Map<string, SessionsChangedEvent>();
    const arrived = new ChangeSignal();
    const stop = this.subscribe(owner, (event) => {
      if (waiting.size >= MAX_WAITING) {
        waiting.clear();
        waiting.set('reload', { change: 'reload', timestamp: event.timestamp });
      } else waiting.set(`${event.change} ${event.sessionId}`, event);
      arrived.notify();
    });
    try {
      while (!ended.aborted) {
        const events = [...waiting.values()];
        waiting.clear();
        if (events.length > 0) yield events;
        else await arrived.wait({ signal: ended });
      }
    } finally {
      stop();
    }
  }

  /** Ends all readers. */
  close(): void {
    this.closing.abort();
    this.send();
  }

  private deliver(owner: string, change: SessionChange, sessionId?: string): void {
    if (sessionId) for (const observer of this.observers) observer({ owner, sessionId }, change);
    const timestamp = new Date().toISOString();
    this.listeners.call(owner, { change, ...(sessionId && { sessionId }), timestamp });
  }

  private send(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    if (this.unsent.length === 0) return;
    this.bus.send('others', 'sessions-changed', this.unsent);
    this.unsent = [];
  }
}
