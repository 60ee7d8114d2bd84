import { io } from 'socket.io-client';
import type { ConnectionState } from './session-events.js';

const LONGEST_WAIT_MS = 10_000;
/** As often as this the host may refuse in a row before it is believed. */
const MOST_REFUSALS = 3;
const REFUSED_WAIT_MS = 500;

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

/** Connects to a session's events, and again whenever the connection or the token ends (contract A3). */
export function openSocket({ url, sessionId, token, onEvent, onState }: SocketOptions): OpenSocket {
  const { origin, pathname } = new URL(url);
  let sent: string | undefined;
  let refused: string | undefined;
  let refusals = 0;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const socket = io(origin, {
    path: `${pathname.replace(/\/$/, '')}/socket.io`,
    query: { sessionId },
    auth: (send) => {
      token(refused)
        .then((invocation) => {
          sent = invocation;
          send({ invocation });
        })
        // Nothing to show: what is refused is tried again, as a drop would be.
        .catch(() => send({}));
    },
    transports: ['websocket', 'polling'],
    tryAllTransports: true,
    reconnectionDelayMax: LONGEST_WAIT_MS,
    // The query differs by session, so sockets cannot share a connection.
    forceNew: true,
  });
  const refuse = (reason: Error) => {
    refused = sent;
    refusals += 1;
    if (refusals >= MOST_REFUSALS) return onState('disconnected', reason);
    onState('connecting');
    timer = setTimeout(() => socket.connect(), REFUSED_WAIT_MS * refusals);
  };
  socket.on('connected', () => {
    refusals = 0;
    refused = undefined;
    onState('connected');
  });
  socket.on('connect_error', (error) => {
    if (!socket.active) refuse(error);
  });
  socket.on('disconnect', (reason) => {
    if (reason === 'io server disconnect') refuse(new Error('The host ended the connection'));
    else if (reason !== 'io client disconnect') onState('connecting');
  });
  socket.onAny(onEvent);
  return {
    emit: (name, payload) => void socket.emit(name, ...(payload === undefined ? [] : [payload])),
    close: () => {
      clearTimeout(timer);
      socket.disconnect();
    },
  };
}
