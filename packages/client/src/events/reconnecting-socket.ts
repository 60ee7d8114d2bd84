import type { ClosingReason } from '@sibyl/protocol';
import { io, type Socket } from 'socket.io-client';
import type { ConnectionState } from './session-events.js';

const MAX_DELAY_MS = 10_000;
const RATE_LIMIT_DELAY_MS = 60_000;
/** As often as this the host may refuse in a row before it is believed. */
const MAX_REJECTIONS = 5;
const REJECTED_DELAY_MS = 500;

export interface SocketOptions {
  /** The oracle's address, without a slash at its end. */
  readonly url: string;
  readonly sessionId: string;
  /** A token for the handshake; `refused` when the last one did not do. */
  readonly token: (refused: string | undefined) => Promise<string>;
  readonly onEvent: (name: string, data: unknown) => void;
  readonly onState: (state: ConnectionState, refusal?: Error) => void;
}

export interface OpenSocket {
  emit(name: string, payload: unknown): void;
  close(): void;
}

/** What the host says when it refuses a handshake: the fields of an error body. */
interface HandshakeError extends Error {
  readonly data?: { readonly code?: string; readonly retryAfterSeconds?: number };
}

/** Connects to a session's events, and again whenever the connection or the token ends (contract A3). */
export function openSocket(options: SocketOptions): OpenSocket {
  return new ReconnectingSocket(options);
}

class ReconnectingSocket implements OpenSocket {
  private readonly options: SocketOptions;
  private readonly socket: Socket;
  private sent: string | undefined;
  private refused: string | undefined;
  private refusals = 0;
  private closing: ClosingReason | undefined;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(options: SocketOptions) {
    this.options = options;
    const { origin, pathname } = new URL(options.url);
    this.socket = io(origin, {
      path: `${pathname.replace(/\/$/, '')}/socket.io`,
      query: { sessionId: options.sessionId },
      auth: (send) => void this.present(send),
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
      this.refusals = 0;
      this.refused = undefined;
      this.closing = undefined;
      onState('connected');
    });
    socket.on('closing', ({ reason }: { readonly reason: ClosingReason }) => {
      this.closing = reason;
    });
    socket.on('connect_error', (error: HandshakeError) => {
      if (socket.active) return onState('connecting');
      this.refused = this.sent;
      this.tryAgain(error);
    });
    socket.on('disconnect', (reason) => {
      if (reason === 'io server disconnect') this.tryAgain(new Error('The host closed it'));
      else if (reason !== 'io client disconnect') onState('connecting');
    });
    socket.onAny((name: string, data: unknown) => onEvent(name, data));
  }

  private async present(send: (proof: object) => void): Promise<void> {
    try {
      this.sent = await this.options.token(this.refused);
      send({ invocation: this.sent });
    } catch {
      // Without a proof the host refuses, and after a while it is tried again.
      send({});
    }
  }

  /** The socket does not come back by itself when the host has refused or closed it. */
  private tryAgain(reason: HandshakeError): void {
    const { onState } = this.options;
    this.refusals += 1;
    const { code, retryAfterSeconds = 0 } = reason.data ?? {};
    const isGone = isFinal(code) || isFinal(this.closing);
    if (isGone || this.refusals >= MAX_REJECTIONS) return void onState('disconnected', reason);
    onState('connecting');
    const limit = this.closing === 'rate_limited' ? RATE_LIMIT_DELAY_MS : 0;
    const wait = Math.max(REJECTED_DELAY_MS * this.refusals, limit, retryAfterSeconds * 1000);
    this.timer = setTimeout(() => this.socket.connect(), wait);
  }
}

/** Reasons after which connecting again cannot help. */
const isFinal = (reason: string | undefined): boolean =>
  reason === 'session_not_found' || reason === 'session_deleted' || reason === 'caller_not_allowed';
