import type {
  ClientEventName,
  ClosingReason,
  ServerEventName,
  serverEvents,
} from '@sibyl/protocol';
import { io, type Socket } from 'socket.io-client';

/** Maps event names to payloads, without the envelope that some events have on the wire. */
export type ServerEvents = {
  [Name in ServerEventName]: (typeof serverEvents)[Name]['payload']['_zod']['output'];
};

/** Any server event. */
export type ServerEvent = {
  [Name in ServerEventName]: { readonly name: Name; readonly payload: ServerEvents[Name] };
}[ServerEventName];

export type ConnectionState = 'connecting' | 'connected' | 'disconnected';

/** Live events of a session. All subscribers of a session share one socket. */
export interface SessionEvents {
  readonly sessionId: string;
  /** `disconnected` is final: the oracle rejected the session. A lost network is `connecting`. */
  readonly state: ConnectionState;
  /** Calls the listener on every event of that name; returns a function that removes it. */
  on<Name extends ServerEventName>(
    name: Name,
    listener: (payload: ServerEvents[Name]) => void,
  ): () => void;
  onAny(listener: (event: ServerEvent) => void): () => void;
  onState(listener: (state: ConnectionState) => void): () => void;
  /** Resolves when connected; rejects when the oracle rejects the connection. */
  ready(): Promise<void>;
  /** Sends an event; events sent while offline are sent on reconnect. */
  emit(name: ClientEventName, payload?: unknown): void;
  ping(): Promise<ServerEvents['pong']>;
  status(): Promise<ServerEvents['status']>;
  /** Lists all events of the oracle. */
  catalog(): Promise<ServerEvents['available-events']>;
  close(): void;
}

const MAX_DELAY_MS = 10_000;
const RATE_LIMIT_DELAY_MS = 60_000;
/** Consecutive rejections after which the socket stops reconnecting. */
const MAX_REJECTIONS = 5;
const REJECTED_DELAY_MS = 500;

export interface SocketOptions {
  /** The oracle's address, without a trailing slash. */
  readonly url: string;
  readonly sessionId: string;
  /** Returns a token for the handshake; `rejected` is the last one if it was rejected. */
  readonly token: (rejected: string | undefined) => Promise<string>;
  readonly onEvent: (name: string, data: unknown) => void;
  readonly onState: (state: ConnectionState, failure?: Error) => void;
}

export interface OpenSocket {
  emit(name: string, payload: unknown): void;
  close(): void;
}

/** A rejected handshake; `data` has the fields of an error body. */
interface HandshakeError extends Error {
  readonly data?: { readonly code?: string; readonly retryAfterSeconds?: number };
}

/** Connects to a session's events, and reconnects when the connection drops or the token expires. */
export function openSocket(options: SocketOptions): OpenSocket {
  return new ReconnectingSocket(options);
}

class ReconnectingSocket implements OpenSocket {
  private readonly options: SocketOptions;
  private readonly socket: Socket;
  private sent: string | undefined;
  private rejected: string | undefined;
  private rejections = 0;
  private closing: ClosingReason | undefined;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(options: SocketOptions) {
    this.options = options;
    const { origin, pathname } = new URL(options.url);
    this.socket = io(origin, {
      path: `${pathname.replace(/\/$/, '')}/socket.io`,
      query: { sessionId: options.sessionId },
      auth: (send) => void this.authenticate(send),
      transports: ['websocket', 'polling'],
      tryAllTransports: true,
      reconnectionDelayMax: MAX_DELAY_MS,
      // The query differs by session, so sockets cannot share a connection.
      forceNew: true,
    });
    this.listen();
  }

  emit(name: string, payload: unknown): void {
    this.socket.emit(name, ...(payload === undefined ? [] : [payload]));
  }

  close(): void {
    clearTimeout(this.timer);
    this.socket.disconnect();
  }

  private listen(): void {
    const { onEvent, onState } = this.options;
    const socket = this.socket;
    socket.on('connected', () => {
      this.rejections = 0;
      this.rejected = undefined;
      this.closing = undefined;
      onState('connected');
    });
    socket.on('closing', ({ reason }: { readonly reason: ClosingReason }) => {
      this.closing = reason;
    });
    socket.on('connect_error', (error: HandshakeError) => {
      if (socket.active) return onState('connecting');
      this.rejected = this.sent;
      this.reconnectLater(error);
    });
    socket.on('disconnect', (reason) => {
      if (reason === 'io server disconnect')
        this.reconnectLater(new Error('The oracle closed the connection'));
      else if (reason !== 'io client disconnect') onState('connecting');
    });
    socket.onAny((name: string, data: unknown) => onEvent(name, data));
  }

  private async authenticate(send: (auth: object) => void): Promise<void> {
    try {
      this.sent = await this.options.token(this.rejected);
      send({ invocation: this.sent });
    } catch {
      // The oracle rejects a handshake without a token, and the socket retries later.
      send({});
    }
  }

  /** Socket.IO does not reconnect by itself when the server rejects or closes the connection. */
  private reconnectLater(error: HandshakeError): void {
    const { onState } = this.options;
    this.rejections += 1;
    const { code, retryAfterSeconds = 0 } = error.data ?? {};
    const isRejected = isFinal(code) || isFinal(this.closing);
    if (isRejected || this.rejections >= MAX_REJECTIONS) return void onState('disconnected', error);
    onState('connecting');
    const minDelay = this.closing === 'rate_limited' ? RATE_LIMIT_DELAY_MS : 0;
    const delay = Math.max(REJECTED_DELAY_MS * this.rejections, minDelay, retryAfterSeconds * 1000);
    this.timer = setTimeout(() => this.socket.connect(), delay);
  }
}

/** Reasons for which reconnecting cannot help. */
const isFinal = (reason: string | undefined): boolean =>
  reason === 'session_not_found' || reason === 'session_deleted' || reason === 'caller_not_allowed';
