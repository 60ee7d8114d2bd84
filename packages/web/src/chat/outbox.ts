import { type MessageToSend, type OracleClient, OracleClientError } from '@sibyl/client';
import { explainError } from '../i18n/explain-error.js';
import { createStoredValue, type StoredValue } from '../page/stored-value.js';

export type OutgoingMessage = Exclude<MessageToSend, string>;

/** Why a message was not sent, and when the page tries again. */
export interface SendFailure {
  readonly kind: 'offline' | 'unreachable' | 'rate-limit' | 'credit' | 'rejected' | 'gone';
  readonly message: string;
  /** Unix milliseconds; absent if the user has to do something first. */
  readonly retryAt?: number;
  readonly failedAt?: number;
}

/** A message that the server has not accepted yet. */
export interface UnsentMessage {
  /** The server accepts a message with this id only once. */
  readonly requestId: string;
  /** The tab that sends it. */
  readonly tab: string;
  /** Absent until its conversation exists. */
  readonly sessionId?: string | undefined;
  /** The same for all messages of a conversation that does not exist yet. */
  readonly start?: string | undefined;
  readonly message: OutgoingMessage;
  readonly createdAt: string;
  readonly attempts: number;
  readonly failure?: SendFailure;
}

/** How often a tab looks for messages of tabs that were closed. */
const ADOPT_MS = 5_000;
const FIRST_DELAY_MS = 3_000;
const MAX_DELAY_MS = 60_000;

/**
 * Messages on their way to the server. They are stored in this browser until the server has accepted them, so that
 * neither a lost network nor a reload loses one.
 */
export class Outbox {
  private readonly stored: StoredValue<readonly UnsentMessage[]>;
  private readonly client: OracleClient;
  readonly tab = crypto.randomUUID();
  /** Messages that this tab is sending. */
  private readonly sending = new Set<string>();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private adoption: ReturnType<typeof setTimeout> | undefined;
  /** The conversation that is open in this tab, which sends its own messages. */
  private openSessionId: string | undefined;
  /** The conversation that this tab has started, until it is shown. */
  startedSessionId: string | undefined;
  /** Called when the conversation of a message exists; opens it if the user is waiting for it. */
  onSession: ((sessionId: string) => void) | undefined;

  constructor(client: OracleClient) {
    this.client = client;
    this.stored = createStoredValue(`sibyl-outbox:${client.did}`, []);
    this.stored.subscribe(() => this.schedule());
    globalThis.addEventListener?.('online', () => this.retryAll());
    this.hold();
    // A page that was kept while the user was elsewhere may have lost it.
    globalThis.addEventListener?.('pageshow', ({ persisted }) => persisted && this.hold());
    void this.adopt();
    this.schedule();
  }

  /** The lock by which other tabs see that this one is open. */
  private hold(): void {
    void navigator.locks?.request(toLockName(this.tab), () => new Promise(() => undefined));
  }

  get list(): readonly UnsentMessage[] {
    return this.stored.get();
  }

  getList = (): readonly UnsentMessage[] => this.list;

  subscribe = (listener: () => void): (() => void) => this.stored.subscribe(listener);

  /** Stores a message; it is sent as soon as possible. */
  add(message: OutgoingMessage, sessionId?: string): UnsentMessage {
    const requestId = crypto.randomUUID();
    const first = this.list.find((each) => each.tab === this.tab && !each.sessionId);
    const unsent: UnsentMessage = {
      requestId,
      tab: this.tab,
      message,
      createdAt: new Date().toISOString(),
      attempts: 0,
      sessionId,
      start: first?.start ?? requestId,
    };
    this.stored.update((list) => [...list, unsent]);
    return unsent;
  }

  /** Forgets a message, since the server has it or the user discards it. */
  remove(requestId: string): void {
    this.sending.delete(requestId);
    if (this.list.some((each) => each.requestId === requestId))
      this.stored.update((list) => list.filter((each) => each.requestId !== requestId));
  }

  /** Tries again at once. */
  retry(requestId: string): void {
    this.change(requestId, ({ failure: _, ...unsent }) => unsent);
  }

  /** Tries again with everything that does not wait for the user, or only with what was due before a time. */
  retryAll(until = Number.POSITIVE_INFINITY): void {
    this.stored.update((list) =>
      list.map((unsent) => {
        const { failure, ...rest } = unsent;
        return failure && isDue(failure, until) ? rest : unsent;
      }),
    );
  }

  fail(requestId: string, error: unknown): void {
    this.sending.delete(requestId);
    this.change(requestId, ({ attempts, ...unsent }) => ({
      ...unsent,
      attempts: attempts + 1,
      failure: toFailure(error, attempts),
    }));
  }

  /** The next message of a conversation to send; marks it, so that it is not sent twice at a time. */
  takeNext(sessionId: string | undefined): UnsentMessage | undefined {
    const next = this.list.find(
      (each) =>
        each.tab === this.tab &&
        each.sessionId === sessionId &&
        (!each.failure || each.failure.retryAt),
    );
    // Those behind a message that is about to be sent wait for it, to stay in order.
    if (!next || next.failure || this.sending.has(next.requestId)) return undefined;
    this.sending.add(next.requestId);
    return next;
  }

  isSending(requestId: string): boolean {
    return this.sending.has(requestId);
  }

  /** Names the conversation that sends its own messages; the outbox sends all others. */
  openSession(sessionId: string | undefined): void {
    const { openSessionId: closed } = this;
    // A conversation that is closed has stopped sending; the outbox itself has not.
    for (const each of this.list)
      if (closed !== undefined && each.sessionId === closed) this.sending.delete(each.requestId);
    this.openSessionId = sessionId;
    this.startedSessionId = undefined;
    this.schedule();
  }

  private change(requestId: string, change: (unsent: UnsentMessage) => UnsentMessage): void {
    this.stored.update((list) =>
      list.map((each) => (each.requestId === requestId ? change(each) : each)),
    );
  }

  private schedule(): void {
    clearTimeout(this.timer);
    const times = this.list.flatMap(({ failure }) => failure?.retryAt ?? []);
    if (times.length > 0) {
      // Later times are looked at again: the clock may be set, and timers are limited.
      const wait = Math.min(Math.max(0, Math.min(...times) - Date.now()), MAX_DELAY_MS);
      this.timer = setTimeout(() => this.retryAll(Date.now()), wait);
    }
    clearTimeout(this.adoption);
    if (this.list.some(({ tab }) => tab !== this.tab))
      this.adoption = setTimeout(() => void this.adopt(), ADOPT_MS);
    const sessionIds = new Set(this.list.map(({ sessionId }) => sessionId));
    for (const sessionId of sessionIds) {
      if (sessionId === undefined || sessionId !== this.openSessionId) void this.deliver(sessionId);
    }
  }

  /** Takes over the messages of tabs that were closed. */
  private async adopt(): Promise<void> {
    const { held = [] } = (await navigator.locks?.query()) ?? {};
    const open = new Set(held.map(({ name }) => name));
    const isOrphan = ({ tab }: UnsentMessage) => tab !== this.tab && !open.has(toLockName(tab));
    if (this.list.some(isOrphan))
      this.stored.update((list) =>
        list.map((each) => (isOrphan(each) ? { ...each, tab: this.tab } : each)),
      );
    else this.schedule();
  }

  /** Sends one message of a conversation; the next one follows when it has been accepted. */
  private async deliver(sessionId: string | undefined): Promise<void> {
    const unsent = this.takeNext(sessionId);
    if (!unsent) return;
    const { requestId } = unsent;
    try {
      if (sessionId === undefined) await this.startSession(unsent);
      else await this.sendTo(sessionId, unsent);
    } catch (error) {
      this.fail(requestId, error);
    }
  }

  private async startSession(unsent: UnsentMessage): Promise<void> {
    const { requestId, start: idempotencyKey = requestId } = unsent;
    const { sessionId } = await this.client.sessions.create({ idempotencyKey });
    const current = this.list.find((each) => each.requestId === requestId);
    // Unless the user has discarded it in the meantime, or another tab has started its conversation.
    if (!this.sending.delete(requestId) || current?.sessionId !== undefined) return;
    // Before the outbox would send the message itself.
    if (this.onSession) this.openSessionId = this.startedSessionId = sessionId;
    this.stored.update((list) =>
      list.map((each) =>
        !each.sessionId && each.start === unsent.start ? { ...each, sessionId } : each,
      ),
    );
    this.onSession?.(sessionId);
  }

  private async sendTo(sessionId: string, { requestId, message }: UnsentMessage): Promise<void> {
    for await (const part of this.client.stream(sessionId, { ...message, requestId })) {
      // The turn continues on the server.
      if (part.event === 'run') break;
    }
    this.remove(requestId);
  }
}

/** A clock that shows an earlier time than that of the failure was set back. */
const isDue = ({ retryAt, failedAt = 0 }: SendFailure, now: number): boolean =>
  retryAt !== undefined && (retryAt <= now || failedAt > now);

const toLockName = (tab: string) => `sibyl-tab:${tab}`;

function toFailure(error: unknown, attempts: number): SendFailure {
  const message = explainError(error as Error);
  if (!(error instanceof OracleClientError)) return { kind: 'rejected', message };
  const { code, status = 0, retryAfterSeconds } = error;
  const delay = Math.min(FIRST_DELAY_MS * 2 ** attempts, MAX_DELAY_MS);
  const failedAt = Date.now();
  const again = { failedAt, retryAt: failedAt + Math.max(delay, (retryAfterSeconds ?? 0) * 1000) };
  if (code === 'session_not_found') return { kind: 'gone', message };
  if (status === 402) return { kind: 'credit', message };
  if (status === 429) return { kind: 'rate-limit', message, ...again };
  if (code === 'network_error' || status >= 500)
    return { kind: navigator.onLine ? 'unreachable' : 'offline', message, ...again };
  return { kind: 'rejected', message };
}
