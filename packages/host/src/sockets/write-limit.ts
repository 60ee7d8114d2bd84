import type { IncomingMessage } from 'node:http';
import type { Duplex, Readable } from 'node:stream';
import { type ByteReservation, type JsonScan, scanJson } from '@sibyl/server-kit';
import type { WebSocket } from 'ws';
import type { BodySize } from '../auth/rate-limits.js';
import { FEW_VALUES, MANY_VALUES } from '../http/request-body.js';
import { type Connection, onceClosed, terminate } from './connections.js';

/** Maximum bytes of unread data of one connection. */
const LIMIT = 2 * 1024 * 1024;
/** Senders that can wait do so above this. */
const FULL = LIMIT / 4;

interface WriteLimitOptions {
  /** How long a connection may read nothing while a sender waits for it. */
  readonly stallMs: number;
  readonly backlog: SocketBacklog;
  /** Closes the connection. Called if it has too much unread data or reads nothing. */
  readonly drop: () => void;
}

/** Limits the unread data of a connection: one that exceeds the limit is dropped. */
export class WriteLimit {
  private readonly connection: Connection;
  private readonly options: WriteLimitOptions;
  private readonly backlog: BacklogEntry;

  constructor(connection: Connection, options: WriteLimitOptions) {
    this.connection = connection;
    this.options = options;
    this.backlog = options.backlog.open(options.drop);
    connection.on('packetCreate', ({ data }: { data?: string | Buffer }) => {
      if (this.backlog.bytes > LIMIT) options.drop();
      this.backlog.add(typeof data === 'string' ? 2 * data.length : (data?.length ?? 0));
    });
    // A flush means that the transport has written all earlier packets.
    connection.on('flush', () => this.backlog.clear());
    connection.once('close', () => this.backlog.close());
  }

  /** Resolves when the connection has read most of its data, or is closed. */
  async room(): Promise<void> {
    while (this.backlog.bytes > FULL && this.connection.readyState === 'open') await this.change();
  }

  private change(): Promise<void> {
    const connection = this.connection;
    const { stallMs, drop } = this.options;
    return new Promise((resolve) => {
      const settle = () => {
        clearTimeout(timer);
        connection.off('flush', settle).off('close', settle);
        resolve();
      };
      const timer = setTimeout(drop, stallMs);
      connection.on('flush', settle).on('close', settle);
    });
  }
}

/** The unread data of one connection. */
interface BacklogEntry {
  readonly bytes: number;
  add(bytes: number): void;
  /** The connection has read all data. */
  clear(): void;
  close(): void;
}

/** The unread data of all sockets; beyond the limit, the one with the most is dropped. */
export class SocketBacklog {
  private readonly entries = new Map<BacklogEntry, () => void>();
  private total = 0;

  constructor(private readonly maxBytes: number) {}

  get bytes(): number {
    return this.total;
  }

  open(drop: () => void): BacklogEntry {
    let bytes = 0;
    const change = (to: number) => {
      if (!this.entries.has(entry)) return;
      this.total += to - bytes;
      bytes = to;
    };
    const entry: BacklogEntry = {
      get bytes() {
        return bytes;
      },
      add: (more) => {
        change(bytes + more);
        while (this.total > this.maxBytes) this.dropLargest();
      },
      clear: () => change(0),
      close: () => {
        change(0);
        this.entries.delete(entry);
      },
    };
    this.entries.set(entry, drop);
    return entry;
  }

  private dropLargest(): void {
    const [largest] = [...this.entries].sort(([a], [b]) => b.bytes - a.bytes);
    if (!largest) return;
    const [entry, drop] = largest;
    entry.close();
    drop();
  }
}

/** An upgrade request; Engine.IO adds the WebSocket once it has accepted it. */
type UpgradeRequest = IncomingMessage & { readonly websocket?: WebSocket };

/** Limits what a WebSocket costs below its packets, from its first byte. */
export function limitWire(
  request: UpgradeRequest,
  wire: Duplex,
  reservation: ByteReservation,
): void {
  limitReceived(wire, reservation);
  const { websocket } = request;
  // A client that was refused could keep its side of the connection open for ever.
  if (!websocket) return void wire.once('finish', () => wire.destroy());
  const count = createUncountedLimit(() => websocket.terminate());
  websocket.on('ping', count).on('pong', count);
  websocket.on('message', (data: Buffer, isBinary: boolean) => {
    reservation.release();
    const isMessage = isBinary || data[0] === MESSAGE;
    // A connection that is being closed still reads, until the client has answered.
    if (!isMessage || websocket.readyState !== websocket.OPEN) count();
  });
}

/** The first character of a message, in the protocol of Engine.IO. */
const MESSAGE = '4'.charCodeAt(0);

/** What a connection may send in a minute that no limit of requests counts, such as pings and handshakes. */
const MAX_UNCOUNTED = 100;

/** Returns a function that counts one more; calls `onExcess` for each that is too many. */
function createUncountedLimit(onExcess: () => void): () => void {
  let since = performance.now();
  let count = 0;
  return () => {
    const now = performance.now();
    if (now - since > 60_000) [since, count] = [now, 0];
    count += 1;
    if (count > MAX_UNCOUNTED) onExcess();
  };
}

/** What a connection has sent since its last event that counted. */
export class ReceivedSize {
  private size: BodySize = { bytes: 0, values: 0, members: 0 };

  add(
    bytes: number,
    { values, members }: Omit<BodySize, 'bytes'> = { values: 0, members: 0 },
  ): void {
    const { size } = this;
    this.size = {
      bytes: size.bytes + bytes,
      values: size.values + values,
      members: size.members + members,
    };
  }

  /** Returns it, and begins again. */
  take(): BodySize {
    const { size } = this;
    this.size = { bytes: 0, values: 0, members: 0 };
    return size;
  }
}

/** The longest packet other than events of authenticated callers: a handshake with two tokens, and room for the rest. */
const MAX_UNCOUNTED_LENGTH = 32 * 1024;

interface PacketLimits {
  readonly attachments: ByteReservation;
  readonly received: ReceivedSize;
  /** Whether the caller is authenticated. */
  readonly isProven: () => boolean;
  /** Called with the reason for which a client is disconnected. */
  readonly onExcess: (excess: string) => void;
}

/**
 * Disconnects a client that sends many or long packets other than events of an authenticated caller, such as handshakes for other
 * namespaces, which are all answered, JSON that would take long to parse, or too many bytes of attachments, which are kept until
 * the last one has arrived.
 */
export function limitPackets(
  connection: Connection,
  { attachments, received, isProven, onExcess }: PacketLimits,
): void {
  const count = createUncountedLimit(() => terminate(connection));
  connection.on('packet', (packet: { type: string; readonly data?: unknown }) => {
    const { type, data } = packet;
    if (type !== 'message') return count();
    if (typeof data !== 'string') return;
    const { excess, ...counts } =
      EVENT.test(data) && isProven() ? scanJson(Buffer.from(data), MANY_VALUES) : scanShort(data);
    received.add(data.length, counts);
    if (excess === undefined) return;
    onExcess(excess);
    terminate(connection);
    // Otherwise it would still be parsed.
    packet.type = 'noop';
  });
  connection.on('data', (packet: string | Buffer) => {
    if (typeof packet !== 'string') {
      received.add(packet.length);
      if (attachments.resize(attachments.bytes + packet.length) !== undefined)
        terminate(connection);
      return;
    }
    attachments.release();
    if (!EVENT.test(packet)) count();
  });
  // It still reads until the client has taken everything.
  const countLate = () => connection.readyState === 'closing' && count();
  connection.transport.on('packet', countLate);
  connection.on('upgrade', (transport) => transport.on('packet', countLate));
  onceClosed(connection, () => attachments.release());
}

function scanShort(data: string): JsonScan {
  const excess = `more than ${MAX_UNCOUNTED_LENGTH} characters`;
  if (data.length > MAX_UNCOUNTED_LENGTH) return { values: 0, members: 0, excess };
  return scanJson(Buffer.from(data), FEW_VALUES);
}

/** The first character of an event, in the protocol of Socket.IO; events count as requests. */
const EVENT = /^[25]/;

/** Counts what has arrived of a message or body until it is complete; disconnects the client if that is too much. */
export function limitReceived(source: Readable, reservation: ByteReservation): void {
  // Before the listener that completes the message.
  source.prependListener('data', (chunk: Buffer) => {
    if (reservation.resize(reservation.bytes + chunk.length) !== undefined) source.destroy();
  });
  source.once('close', () => reservation.release());
}
