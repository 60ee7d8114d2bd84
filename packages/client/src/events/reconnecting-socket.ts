import type { ClosingReason } from '@sibyl/protocol';
import { io, type Socket } from 'socket.io-client';
import type { ConnectionState } from './session-events.js';

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
