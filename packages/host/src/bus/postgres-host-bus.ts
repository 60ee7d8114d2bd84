import { ChangeSignal } from '@sibyl/server-kit';
import type { Logger } from 'pino';
import type { BusFigures } from '../observability/metrics.js';
import {
  type HostAddress,
  type HostBus,
  type HostMessageListener,
  type HostTopic,
  type HostTopics,
  MessageListeners,
} from './host-bus.js';
import type { PostgresSession } from './postgres-session.js';

/** PostgreSQL rejects payloads of 8,000 bytes and more. */
const MAX_PAYLOAD_BYTES = 7_500;

/** The sender, the position of this piece and the number of pieces, and the text. */
const PIECE = /^([0-9a-f]+) (\d+)\/(\d+) (.*)$/s;

/** A message as JSON: its topic and its payload. */
export type MessageText = string;

/** Messages of one sender that arrived together. */
export interface ReceivedBatch {
  readonly from: string;
  readonly messages: readonly (readonly [topic: string, payload: unknown])[];
}

/** Joins messages and divides them into payloads of notifications; a large message takes several. */
export function toNotifications(from: string, messages: readonly MessageText[]): string[] {
  const pieces = divide(`[${messages.join(',')}]`, MAX_PAYLOAD_BYTES);
  return pieces.map((piece, i) => `${from} ${i + 1}/${pieces.length} ${piece}`);
}

/** Divides a text into pieces of at most `maxBytes` bytes each, between characters. */
function divide(text: string, maxBytes: number): string[] {
  const buffer = new Uint8Array(maxBytes);
  const encoder = new TextEncoder();
  const pieces: string[] = [];
  for (let rest = text; rest.length > 0; ) {
    const { read } = encoder.encodeInto(rest, buffer);
    pieces.push(rest.slice(0, read));
    rest = rest.slice(read);
  }
  return pieces;
}

/**
 * Joins the pieces of batches again. PostgreSQL delivers the notifications of one transaction together and in order, so
 * there is never more than one unfinished batch.
 */
export class NotificationReader {
  private unfinished: { readonly from: string; readonly pieces: string[] } | undefined;

  /** Returns a batch once it is complete; throws a SyntaxError for anything that no host sends. */
  read(payload: string): ReceivedBatch | undefined {
    const [, from, position, count, text] = PIECE.exec(payload) ?? [];
    if (from === undefined || text === undefined)
      throw new SyntaxError('Not a message between hosts');
    const pieces = position === '1' ? [] : this.continueBatch(from, Number(position));
    // The beginning was sent before this host listened.
    if (!pieces) return undefined;
    pieces.push(text);
    if (pieces.length < Number(count)) {
      this.unfinished = { from, pieces };
      return undefined;
    }
    this.unfinished = undefined;
    return { from, messages: JSON.parse(pieces.join('')) };
  }

  /** Forgets an unfinished batch, whose end was lost with the connection. */
  reset(): void {
    this.unfinished = undefined;
  }

  private continueBatch(from: string, position: number): string[] | undefined {
    const { unfinished } = this;
    const continues = unfinished?.from === from && unfinished.pieces.length === position - 1;
    return continues ? unfinished.pieces : undefined;
  }
}

const MAX_MESSAGE_BYTES = 1024 * 1024;
/** Beyond it, the oldest messages are dropped. */
const MAX_QUEUE_BYTES = 16 * 1024 * 1024;
/** What may wait before a part of a large message does. */
const ROOM_BYTES = 256 * 1024;
/** A statement with more takes long enough to delay the messages behind it. */
const MAX_BATCH_BYTES = 64 * 1024;
/** Messages that are sent again if PostgreSQL may not have received them: no host looks for socket events by itself. */
const REPEATED: ReadonlySet<HostTopic> = new Set(['socket-event', 'socket-gap', 'sockets-opened']);
const MAX_ATTEMPTS = 5;
const ECHO_INTERVAL_MS = 2_000;
/** The topic of messages to this host itself that measure the lag. */
const ECHO = 'echo';

const NOTIFY =
  'select pg_notify(channel, payload) from unnest($1::text[], $2::text[]) as batch(channel, payload)';

export const SHARED_CHANNEL = 'sibyl_hosts';
export const toChannel = (hostId: string): string => `sibyl_host_${hostId}`;

interface QueuedMessage {
  readonly channel: string;
  readonly text: MessageText;
  readonly bytes: number;
  /** How often it may still be sent. */
  readonly attempts: number;
}

interface PostgresHostBusDeps {
  readonly hostId: string;
  /** Listens on the channel of this host and on the shared one. */
  readonly listener: PostgresSession;
  readonly notifier: PostgresSession;
  readonly logger: Pick<Logger, 'error' | 'warn'>;
}

/**
 * Sends messages with NOTIFY, one statement at a time: messages that arrive meanwhile leave with the next one, since the
 * number of statements limits the throughput.
 */
export class PostgresHostBus implements HostBus {
  readonly hostId: string;
  readonly isShared = true;
  private readonly deps: PostgresHostBusDeps;
  private readonly listeners: MessageListeners;
  private readonly missed = new Set<() => void>();
  private readonly reader = new NotificationReader();
  private queue = new Set<QueuedMessage>();
  private queuedBytes = 0;
  private sending: Promise<void> | undefined;
  private readonly roomMade = new ChangeSignal();
  private readonly counts = { sent: 0, received: 0, dropped: 0, batches: 0, bytes: 0 };
  private readonly echo: LagMeter;

  constructor(deps: PostgresHostBusDeps) {
    this.deps = deps;
    this.hostId = deps.hostId;
    this.listeners = new MessageListeners(deps.logger);
    this.echo = new LagMeter((sentAt) => {
      this.enqueue(toChannel(this.hostId), JSON.stringify([ECHO, sentAt]));
    });
    deps.listener.on('notification', (payload) => this.receive(payload));
    deps.listener.on('connected', () => {
      this.reader.reset();
      for (const listener of this.missed) listener();
    });
    deps.notifier.on('connected', () => this.startSending());
  }

  get figures(): BusFigures {
    return { ...this.counts, lagMs: this.echo.lagMs };
  }

  send<Topic extends HostTopic>(
    to: HostAddress,
    topic: Topic,
    payload: HostTopics[Topic],
  ): boolean {
    if (to === this.hostId) {
      queueMicrotask(() => this.listeners.call(topic, payload, this.hostId));
      return true;
    }
    const channel = to === 'others' ? SHARED_CHANNEL : toChannel(to);
    const attempts = REPEATED.has(topic) ? MAX_ATTEMPTS : 1;
    return this.enqueue(channel, JSON.stringify([topic, payload]), attempts);
  }

  async room(): Promise<void> {
    while (this.queuedBytes > ROOM_BYTES) await this.roomMade.wait();
  }

  on<Topic extends HostTopic>(topic: Topic, listener: HostMessageListener<Topic>): () => void {
    return this.listeners.add(topic, listener);
  }

  onMissed(listener: () => void): () => void {
    const member = () => listener();
    this.missed.add(member);
    return () => this.missed.delete(member);
  }

  /** Stops measuring, and waits for the messages that have been sent. */
  async close(): Promise<void> {
    this.echo.stop();
    await this.sending;
  }

  private enqueue(channel: string, text: MessageText, attempts = 1): boolean {
    const message = { channel, text, bytes: Buffer.byteLength(text), attempts };
    if (message.bytes > MAX_MESSAGE_BYTES) {
      this.counts.dropped += 1;
      return false;
    }
    this.queue.add(message);
    this.queuedBytes += message.bytes;
    for (const oldest of this.queue) {
      if (this.queuedBytes <= MAX_QUEUE_BYTES) break;
      this.take(oldest);
      this.counts.dropped += 1;
    }
    this.startSending();
    return true;
  }

  private startSending(): void {
    this.sending ??= this.sendAll().finally(() => {
      this.sending = undefined;
    });
  }

  /** Returns early while the notifier is disconnected; its next connection continues. */
  private async sendAll(): Promise<void> {
    // Messages of the same moment leave together.
    await Promise.resolve();
    while (this.queue.size > 0 && this.deps.notifier.isConnected) {
      const batch = this.takeBatch();
      try {
        await this.notify(batch);
        this.counts.sent += batch.length;
        this.counts.batches += 1;
      } catch (err) {
        // It may have been sent. Most messages are not repeated: their receivers find the same in the store.
        const messages = batch.length - this.putBack(batch);
        this.counts.dropped += messages;
        if (messages > 0)
          this.deps.logger.warn({ err, messages }, 'messages to other hosts were lost');
      }
    }
  }

  /** Puts back what is sent again, before all later messages; returns how many. */
  private putBack(batch: readonly QueuedMessage[]): number {
    const repeated = batch
      .filter(({ attempts }) => attempts > 1)
      .map((message) => ({ ...message, attempts: message.attempts - 1 }));
    this.queue = new Set([...repeated, ...this.queue]);
    for (const { bytes } of repeated) this.queuedBytes += bytes;
    return repeated.length;
  }

  private async notify(batch: readonly QueuedMessage[]): Promise<void> {
    const channels: string[] = [];
    const payloads: string[] = [];
    for (const [channel, messages] of Map.groupBy(batch, (message) => message.channel))
      for (const payload of toNotifications(
        this.hostId,
        messages.map(({ text }) => text),
      )) {
        channels.push(channel);
        payloads.push(payload);
        this.counts.bytes += payload.length;
      }
    await this.deps.notifier.query(NOTIFY, [channels, payloads]);
  }

  private takeBatch(): QueuedMessage[] {
    const batch: QueuedMessage[] = [];
    let bytes = 0;
    for (const message of this.queue) {
      bytes += message.bytes;
      if (batch.length > 0 && bytes > MAX_BATCH_BYTES) break;
      this.take(message);
      batch.push(message);
    }
    return batch;
  }

  private take(message: QueuedMessage): void {
    this.queue.delete(message);
    this.queuedBytes -= message.bytes;
    if (this.queuedBytes <= ROOM_BYTES) this.roomMade.notify();
  }

  private receive(payload: string): void {
    let batch: ReturnType<NotificationReader['read']>;
    try {
      batch = this.reader.read(payload);
    } catch (err) {
      this.deps.logger.warn({ err }, 'a notification that is not from a host was ignored');
      return;
    }
    if (!batch) return;
    const { from, messages } = batch;
    for (const [topic, content] of messages) this.deliver(topic, content, from);
  }

  private deliver(topic: string, content: unknown, from: string): void {
    if (from === this.hostId) {
      // Its own messages to the shared channel arrive too.
      if (topic === ECHO) this.echo.arrived(content as number);
      return;
    }
    this.counts.received += 1;
    this.listeners.call(topic as HostTopic, content as HostTopics[HostTopic], from);
  }
}

/** Measures how long messages take, with one message to the host itself every two seconds. */
class LagMeter {
  private readonly timer: NodeJS.Timeout;
  private lastMs = 0;
  /** When the oldest message that has not arrived was sent. */
  private waitingSince: number | undefined;

  constructor(send: (sentAt: number) => void) {
    this.timer = setInterval(() => {
      const now = performance.now();
      this.waitingSince ??= now;
      send(now);
    }, ECHO_INTERVAL_MS);
    this.timer.unref();
  }

  get lagMs(): number {
    const waitingMs = performance.now() - (this.waitingSince ?? Number.POSITIVE_INFINITY);
    return Math.max(this.lastMs, waitingMs);
  }

  arrived(sentAt: number): void {
    this.lastMs = performance.now() - sentAt;
    this.waitingSince = undefined;
  }

  stop(): void {
    clearInterval(this.timer);
  }
}
