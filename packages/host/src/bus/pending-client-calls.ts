import { randomUUID } from 'node:crypto';
import { LruMap, textBytes } from '@sibyl/server-kit';
import { formatSessionKey, type ServerEvent, type SessionKey } from './event-bus.js';

/** How long a call waits for a page that may be reconnecting. */
const GRACE_MS = 3000;
/** For ids of past calls, so that a late answer to one call never answers another. */
const USED_IDS_MAX_BYTES = 4 * 1024 * 1024;
/** The longest id that a page can send back. */
const MAX_ID_LENGTH = 128;

/** The events that call a function of a page. */
export type CallEventName = 'browser_tool_call' | 'action_call';
export type CallEvent = ServerEvent<CallEventName>;

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

export interface ClientCallResult {
  readonly event: CallEventName;
  readonly toolCallId: string;
  readonly result: unknown;
  /** Why the call failed in the page. */
  readonly error?: string | undefined;
}

/** A call without an answer. */
export interface PendingCall {
  readonly sent: CallEvent;
  /** Whether a connected page has received it. */
  readonly isDelivered: boolean;
}

interface Entry {
  readonly call: ClientCall;
  readonly connections: Set<ClientConnection>;
  readonly outcome: PromiseWithResolvers<unknown>;
  sent: CallEvent | undefined;
}

interface PendingClientCallsOptions {
  readonly timeoutMs: number;
  readonly graceMs?: number;
}

/** Calls to users' pages that wait for an answer; each is answered once, from its own session. */
export class PendingClientCalls {
  private readonly timeoutMs: number;
  private readonly graceMs: number;
  private readonly callsBySession = new Map<string, Map<string, Entry>>();
  private readonly used = new LruMap<string, true>({
    maxBytes: USED_IDS_MAX_BYTES,
    measure: (_, id) => textBytes(id),
  });

  constructor({ timeoutMs, graceMs = GRACE_MS }: PendingClientCallsOptions) {
    this.timeoutMs = timeoutMs;
    this.graceMs = Math.min(graceMs, timeoutMs);
  }

  /** Sends a call and waits for its result; the message of an error is for the model. */
  async call(key: SessionKey, call: ClientCall): Promise<unknown> {
    call.signal.throwIfAborted();
    const name = formatSessionKey(key);
    const id = this.chooseId(name, call.toolCallId);
    const outcome = Promise.withResolvers<unknown>();
    const entry: Entry = { call, connections: new Set(), outcome, sent: undefined };
    const entries = this.callsBySession.get(name) ?? new Map<string, Entry>();
    this.callsBySession.set(name, entries.set(id, entry));
    const stopWatching = this.watch(entry);
    try {
      entry.sent = call.send(id);
      return await outcome.promise;
    } finally {
      stopWatching();
      entries.delete(id);
      if (entries.size === 0) this.callsBySession.delete(name);
    }
  }

  /** Resolves the call that an answer belongs to; returns false if no such call waits in this session. */
  answer(key: SessionKey, { event, toolCallId, result, error }: ClientCallResult): boolean {
    const entry = this.find(key, toolCallId);
    if (entry?.call.event !== event) return false;
    this.callsBySession.get(formatSessionKey(key))?.delete(toolCallId);
    if (error === undefined) entry.outcome.resolve(result);
    else entry.outcome.reject(new Error(error || `${entry.call.toolName} failed in the page.`));
    return true;
  }

  /** Lists the pending calls of a session in the order they were sent. */
  list(key: SessionKey): readonly PendingCall[] {
    const entries = this.callsBySession.get(formatSessionKey(key))?.values() ?? [];
    return [...entries].flatMap(({ sent, connections }) =>
      sent ? [{ sent, isDelivered: [...connections].some(({ connected }) => connected) }] : [],
    );
  }

  /** Records that a page has received a call. */
  markDelivered(key: SessionKey, toolCallId: string, page: ClientConnection): void {
    const pages = this.find(key, toolCallId)?.connections;
    // Closed connections are removed, so that reconnecting pages do not accumulate.
    for (const known of pages ?? []) if (!known.connected) pages?.delete(known);
    pages?.add(page);
  }

  private find(key: SessionKey, toolCallId: string): Entry | undefined {
    return this.callsBySession.get(formatSessionKey(key))?.get(toolCallId);
  }

  /** Ends the wait when no page connects, no page answers, or the turn ends. */
  private watch({ call, connections, outcome }: Entry): () => void {
    const { toolName, signal } = call;
    const grace = setTimeout(() => {
      if (connections.size === 0) outcome.reject(new Error(describeNoClient(toolName)));
    }, this.graceMs);
    const timeout = setTimeout(
      () => outcome.reject(new Error(describeTimeout(toolName, this.timeoutMs))),
      this.timeoutMs,
    );
    const abort = () => outcome.reject(signal.reason);
    signal.addEventListener('abort', abort, { once: true });
    return () => {
      clearTimeout(grace);
      clearTimeout(timeout);
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

const describeNoClient = (toolName: string) =>
  `${toolName} was not run: no page of the user is connected to this session.`;

const describeTimeout = (toolName: string, timeoutMs: number) =>
  `The user's page did not answer within ${timeoutMs / 1000} s. The outcome of ${toolName} is unknown: it may or may not have had an effect.`;
