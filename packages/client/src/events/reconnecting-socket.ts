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
  /** `disconnected` is final: the oracle rejected the session. A lost network or a busy oracle is `connecting`. */
  readonly state: ConnectionState;
  /** Calls the listener on every event of that name; returns a function that removes it. */
  on<Name extends ServerEventName>(
    name: Name,
    listener: (payload: ServerEvents[Name]) => void,
  ): () => void;
  onAny(listener: (event: ServerEvent) => void): () => void;
  onState(listener: (state: ConnectionState) => void): () => void;
  /** Resolves when connected; rejects when the oracle rejects the session. */
  ready(): Promise<void>;
  /** Sends an event; events sent while offline are sent on reconnect. */
  emit(name: ClientEventName, payload?: unknown): void;
  /** Like `status` and `catalog`, waits while offline; rejects when the connection is closed. */
  ping(): Promise<ServerEvents['pong']>;
  status(): Promise<ServerEvents['status']>;
  /** Lists all events of the oracle. */
  catalog(): Promise<ServerEvents['available-events']>;
  close(): void;
}

const MAX_DELAY_MS = 10_000;
const RATE_LIMIT_SECONDS = 60;
/** Consecutive rejections after which the socket stops reconnecting; temporary ones do not count. */
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
  readonly data?: HandshakeFailure;
}

interface HandshakeFailure {
  readonly code?: string | undefined;
  readonly statusCode?: number;
  readonly retryAfterSeconds?: number;
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
  private readonly retries = new SocketRetries();
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
      this.retries.reset();
      this.rejected = undefined;
      this.closing = undefined;
      onState('connected');
    });
    socket.on('closing', ({ reason }: { readonly reason: ClosingReason }) => {
      this.closing = reason;
    });
    socket.on('connect_error', (error: HandshakeError) => {
      if (socket.active) return onState('connecting');
      if (!isTemporary(error.data ?? {})) this.rejected = this.sent;
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
    const delay = this.retries.findDelay(error.data ?? { code: this.closing });
    if (delay === undefined) return void onState('disconnected', error);
    onState('connecting');
    this.timer = setTimeout(() => this.socket.connect(), delay);
  }
}

/** Decides when to connect again after the oracle has rejected or closed a connection, and when to stop. */
export class SocketRetries {
  private attempts = 0;
  private rejections = 0;

  /** Call when connected. */
  reset(): void {
    this.attempts = 0;
    this.rejections = 0;
  }

  /** In milliseconds; undefined if connecting again cannot help. */
  findDelay(failure: HandshakeFailure): number | undefined {
    const { code } = failure;
    this.attempts += 1;
    if (!isTemporary(failure)) this.rejections += 1;
    if (isFinal(code) || this.rejections >= MAX_REJECTIONS) return undefined;
    const { retryAfterSeconds = code === 'rate_limited' ? RATE_LIMIT_SECONDS : 0 } = failure;
    const growing = Math.min(REJECTED_DELAY_MS * this.attempts, MAX_DELAY_MS);
    return Math.max(growing, retryAfterSeconds * 1000);
  }
}

/** Whether the oracle accepts the same connection later; a connection that it closes has no status. */
const isTemporary = ({ code, statusCode = 0 }: HandshakeFailure): boolean =>
  statusCode === 429 || statusCode >= 500 || code === 'rate_limited' || code === 'host_stopping';

/** Reasons for which reconnecting cannot help. */
const isFinal = (reason: string | undefined): boolean =>
  reason === 'session_not_found' || reason === 'session_deleted' || reason === 'caller_not_allowed';
