import { randomUUID } from 'node:crypto';
import { LruMap, textBytes } from '@sibyl/server-kit';
import {
  type CallEvent,
  type CallEventName,
  type ClientCallResult,
  formatSessionKey,
  type SessionKey,
} from './event-bus.js';
import type { SharedCalls } from './shared-calls.js';

/** How long a call waits for a page that may be reconnecting. */
const GRACE_MS = 3000;
/** For ids of past calls, so that a late answer to one call never answers another. */
const USED_IDS_MAX_BYTES = 4 * 1024 * 1024;
/** How often answers of pages at other hosts are looked for, in case the message about one is lost. */
const POLL_MS = 1000;
/** The longest id that a page can send back. */
const MAX_ID_LENGTH = 128;

/** The socket of a page. */
export interface ClientConnection {
  readonly connected: boolean;
}

export interface ClientCall {
  readonly event: CallEventName;
  readonly toolCallId: string;
  readonly toolName: string;
  readonly signal: AbortSignal;
  /** Sends the call with this id to all connected pages. */
  readonly send: (toolCallId: string) => CallEvent;
}

/** A call without an answer. */
export interface PendingCall {
  readonly sent: CallEvent;
  /** Whether a connected page has received it. */
  readonly isDelivered: boolean;
}

interface Entry {
  readonly event: CallEventName;
  readonly connections: Set<ClientConnection>;
  /** Takes the only answer. */
  readonly settle: (answer: ClientCallResult) => void;
  /** Resolves once it is stored for other hosts. */
  readonly stored: PromiseWithResolvers<void>;
  sent: CallEvent | undefined;
  /** Whether a page at another host has received it. */
  isDeliveredElsewhere: boolean;
}

interface PendingClientCallsOptions {
  readonly timeoutMs: number;
  readonly graceMs?: number;
  /** Unset for a host that has its database for itself. */
  readonly shared?: SharedCalls | undefined;
}

/**
 * Calls to users' pages that wait for an answer, of turns at this host, and of turns at other hosts whose pages are
 * connected here; each is answered once, from its own session.
 */
export class PendingClientCalls {
  private readonly timeoutMs: number;
  private readonly graceMs: number;
  private readonly shared: SharedCalls | undefined;
  private readonly callsBySession = new Map<string, Map<string, Entry>>();
  private readonly used = new LruMap<string, true>({
    maxBytes: USED_IDS_MAX_BYTES,
    measure: (_, id) => textBytes(id),
  });

  constructor({ timeoutMs, graceMs = GRACE_MS, shared }: PendingClientCallsOptions) {
    this.timeoutMs = timeoutMs;
    this.graceMs = Math.min(graceMs, timeoutMs);
    this.shared = shared;
    shared?.onAnswered((key, id) => {
      // The answer to a call that has ended is not needed.
      if (this.find(key, id)) void this.compareStored(key, id);
      else shared.remove(key, id);
    });
    shared?.onEnded((key, id) => this.delete(formatSessionKey(key), id));
  }

  /** Sends a call and waits for its result; the message of an error is for the model. */
  async call(key: SessionKey, call: ClientCall): Promise<unknown> {
    call.signal.throwIfAborted();
    const name = formatSessionKey(key);
    const id = this.chooseId(name, call.toolCallId);
    const outcome = Promise.withResolvers<unknown>();
    const entry = createEntry(call.event, ({ result, error }) => {
      if (error === undefined) outcome.resolve(result);
      else outcome.reject(new Error(error || `${call.toolName} failed in the page.`));
    });
    this.add(name, id, entry);
    const stopWatching = this.watch({ key, id, call, entry, reject: outcome.reject });
    try {
      entry.sent = call.send(id);
      void this.shared?.add(key, entry.sent).then(entry.stored.resolve);
      return await outcome.promise;
    } finally {
      stopWatching();
      this.delete(name, id);
      // Not before it is stored: otherwise it would stay open.
      void entry.stored.promise.then(() => this.shared?.remove(key, id));
    }
  }

  /** Adds a call of a turn at another host, so that a page at this host can answer it. */
  addRemote(key: SessionKey, sent: CallEvent, hostId: string, isDelivered = false): void {
    const name = formatSessionKey(key);
    const { toolCallId } = sent.payload;
    if (this.find(key, toolCallId)) return;
    const entry = createEntry(sent.event, (answer) => {
      void this.shared?.forward(key, hostId, answer, this.timeoutMs);
    });
    entry.sent = sent;
    entry.stored.resolve();
    entry.isDeliveredElsewhere = isDelivered;
    this.add(name, toolCallId, entry);
    // Its host reports its end, and waits no longer than this.
    setTimeout(() => this.delete(name, toolCallId), this.timeoutMs).unref();
  }

  /** Reads the open calls of a session at all hosts, for a socket that is about to open. */
  async load(key: SessionKey): Promise<void> {
    for (const { call, hostId, isDelivered } of (await this.shared?.list(key)) ?? []) {
      const known = this.find(key, call.payload.toolCallId);
      if (known) known.isDeliveredElsewhere = isDelivered;
      else if (hostId !== this.shared?.hostId) this.addRemote(key, call, hostId, isDelivered);
    }
  }

  /** Resolves the call that an answer belongs to; returns false if no such call waits in this session. */
  answer(key: SessionKey, answer: ClientCallResult): boolean {
    const entry = this.find(key, answer.toolCallId);
    if (entry?.event !== answer.event) return false;
    this.delete(formatSessionKey(key), answer.toolCallId);
    entry.settle(answer);
    return true;
  }

  /** Lists the pending calls of a session in the order they were sent. */
  list(key: SessionKey): readonly PendingCall[] {
    const entries = this.callsBySession.get(formatSessionKey(key))?.values() ?? [];
    return [...entries].flatMap((entry) =>
      entry.sent ? [{ sent: entry.sent, isDelivered: isDelivered(entry) }] : [],
    );
  }

  /** Whether a call of a session still waits. */
  has(key: SessionKey, toolCallId: string): boolean {
    return this.find(key, toolCallId) !== undefined;
  }

  /** Whether a page that has just connected is the one that receives an open call; of several at all hosts, one does. */
  async claimDelivery(
    key: SessionKey,
    toolCallId: string,
    page: ClientConnection,
  ): Promise<boolean> {
    const entry = this.find(key, toolCallId);
    if (!entry || isDelivered(entry)) return false;
    entry.connections.add(page);
    if (!this.shared) return true;
    await entry.stored.promise;
    if (await this.shared.claimDelivery(key, toolCallId))
      return this.find(key, toolCallId) === entry;
    entry.connections.delete(page);
    entry.isDeliveredElsewhere = true;
    return false;
  }

  /** Records that a page has received a call. */
  markDelivered(key: SessionKey, toolCallId: string, page: ClientConnection): void {
    const entry = this.find(key, toolCallId);
    if (!entry) return;
    const { connections, stored } = entry;
    // Closed connections are removed, so that reconnecting pages do not accumulate.
    for (const known of connections) if (!known.connected) connections.delete(known);
    if (connections.size === 0 && this.shared)
      void stored.promise.then(() => this.shared?.markDelivered(key, toolCallId));
    connections.add(page);
  }

  private add(name: string, id: string, entry: Entry): void {
    const entries = this.callsBySession.get(name) ?? new Map<string, Entry>();
    this.callsBySession.set(name, entries.set(id, entry));
  }

  private delete(name: string, id: string): void {
    const entries = this.callsBySession.get(name);
    entries?.delete(id);
    if (entries?.size === 0) this.callsBySession.delete(name);
  }

  /** Takes the answer of a page at another host; stores the call again if the database has lost it. */
  private async compareStored(key: SessionKey, id: string): Promise<void> {
    const { isStored, answer } = (await this.shared?.find(key, id)) ?? { isStored: true };
    const { sent } = this.find(key, id) ?? {};
    if (answer) this.answer(key, answer);
    if (isStored || !sent) return;
    await this.shared?.add(key, sent);
    if (!this.find(key, id)) this.shared?.remove(key, id);
  }

  private find(key: SessionKey, toolCallId: string): Entry | undefined {
    return this.callsBySession.get(formatSessionKey(key))?.get(toolCallId);
  }

  /** Ends the wait when no page connects, no page answers, or the turn ends. */
  private watch({ key, id, call, entry, reject }: WatchedCall): () => void {
    const { toolName, signal } = call;
    const grace = setTimeout(async () => {
      if (entry.connections.size > 0 || (await this.shared?.mayReachPage(key, id))) return;
      reject(new Error(describeNoClient(toolName)));
    }, this.graceMs);
    const timeout = setTimeout(
      () => reject(new Error(describeTimeout(toolName, this.timeoutMs))),
      this.timeoutMs,
    );
    const poll = this.shared && setInterval(() => void this.compareStored(key, id), POLL_MS);
    const abort = () => reject(signal.reason);
    signal.addEventListener('abort', abort, { once: true });
    return () => {
      clearTimeout(grace);
      clearTimeout(timeout);
      clearInterval(poll);
      signal.removeEventListener('abort', abort);
    };
  }

  /**
   * Returns the model's id unless it is too long or was used in this session before: some models count from zero
   * every time.
   */
  private chooseId(session: string, wanted: string): string {
    const isUsable = wanted.length > 0 && wanted.length <= MAX_ID_LENGTH;
    const isFree = isUsable && !this.used.get(`${session} ${wanted}`);
    const id = isFree ? wanted : randomUUID();
    this.used.set(`${session} ${id}`, true);
    return id;
  }
}

interface WatchedCall {
  readonly key: SessionKey;
  readonly id: string;
  readonly call: ClientCall;
  readonly entry: Entry;
  readonly reject: (reason: unknown) => void;
}

const isDelivered = ({ connections, isDeliveredElsewhere }: Entry): boolean =>
  isDeliveredElsewhere || [...connections].some(({ connected }) => connected);

const createEntry = (event: CallEventName, settle: Entry['settle']): Entry => ({
  event,
  connections: new Set(),
  settle,
  stored: Promise.withResolvers(),
  sent: undefined,
  isDeliveredElsewhere: false,
});

const describeNoClient = (toolName: string) =>
  `${toolName} was not run: no page of the user is connected to this session.`;

const describeTimeout = (toolName: string, timeoutMs: number) =>
  `The user's page did not answer within ${timeoutMs / 1000} s. The outcome of ${toolName} is unknown: it may or may not have had an effect.`;
