import type { Server as HttpServer, IncomingMessage } from 'node:http';
import { STATUS_CODES } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import type { OracleError } from '@sibyl/protocol';
import { addressKey } from '@sibyl/server-kit';
import { Server, type Socket } from 'socket.io';
import type { PresentedDelegations } from '../../auth/presented-delegations.js';
import type { Config } from '../../config/config.js';
import type { EventBus } from '../../events/event-bus.js';
import type { Metrics } from '../../observe/metrics.js';
import type { SessionStore } from '../../store/sessions/session-store.js';
import { oracleErrorOf } from '../error.filter.js';
import { Admission, type Seat } from './admission.js';
import { type Connection, cutOff, whenClosed } from './connection.js';
import { createConnectionCheck } from './connection-check.js';
import { ConnectionRegister } from './connection-register.js';
import { SessionSocket, type SessionSocketParts } from './session-socket.js';
import { SocketBacklog } from './write-limit.js';

/** How long a connection may take to ask for its socket. */
const CONNECT_MS = 10_000;
/** How long clients may take to hang up once the host is closing. */
const CLOSE_MS = 2000;
/** How long before the end of that time the host hangs up itself. */
const CUT_MS = 100;

interface SocketServerParts extends Omit<SessionSocketParts, 'register' | 'backlog'> {
  readonly sessions: SessionStore;
  readonly presented: PresentedDelegations;
  readonly events: EventBus;
  readonly metrics: Metrics;
  readonly config: Pick<Config, 'corsOrigins' | 'sockets'>;
  readonly cors: object;
  /** Where a request comes from, proxies seen through. */
  readonly clientAddress: (request: IncomingMessage) => string | undefined;
}

/** Serves the sessions' events over Socket.IO, on the host's own port (contract A3, A4). */
export class SocketServer {
  readonly #parts: SessionSocketParts & SocketServerParts;
  readonly #admission: Admission;
  readonly #connections = new Set<Connection>();
  readonly #sockets = new Set<SessionSocket>();
  #isClosing = false;

  constructor(server: HttpServer, parts: SocketServerParts) {
    const { config, cors } = parts;
    const register = new ConnectionRegister(config.sockets);
    const addressOf = (request: IncomingMessage) => addressKey(parts.clientAddress(request));
    this.#parts = { ...parts, register, backlog: new SocketBacklog(config.sockets.backlogLimit) };
    this.#admission = new Admission({ ...parts, register, addressOf });
    const io = new Server(server, {
      cors,
      maxHttpBufferSize: config.sockets.messageLimit,
      connectTimeout: CONNECT_MS,
      httpCompression: false,
      serveClient: false,
    });
    const { corsOrigins } = config;
    const isClosing = () => this.#isClosing;
    io.engine.use(createConnectionCheck({ register, corsOrigins, addressOf, isClosing }));
    io.engine.on('connection', (connection: Connection) => {
      this.#connections.add(connection);
      whenClosed(connection, () => this.#connections.delete(connection));
      try {
        whenClosed(connection, register.enter(addressOf(connection.request)));
      } catch {
        // Of many that were checked at once, these came last.
        cutOff(connection);
      }
    });
    io.use((socket, next) => {
      this.#admit(socket).then(() => next(), next);
    });
    io.on('connection', (socket) => this.#open(socket));
  }

  /** Tells every client that the host stops, and lets go of them, of the last after `limitMs`. */
  async close(limitMs: number): Promise<void> {
    this.#isClosing = true;
    for (const socket of this.#sockets) socket.close('host_stopping');
    for (const connection of this.#connections) connection.close();
    const deadline = performance.now() + Math.min(CLOSE_MS, limitMs - CUT_MS);
    while (this.#connections.size > 0 && performance.now() < deadline) await sleep(10);
    for (const connection of this.#connections) cutOff(connection);
  }

  async #admit(socket: Socket): Promise<void> {
    const { metrics } = this.#parts;
    try {
      const seat = await this.#admission.admit(socket);
      // With it the client keeps count of what it has seen, and says so when it comes back.
      Object.assign(socket, { pid: seat.streamId, data: seat });
      metrics.count('sibyl_socket_handshakes_total', { outcome: 'admitted' });
    } catch (error) {
      const refusal = oracleErrorOf(error);
      metrics.count('sibyl_socket_handshakes_total', { outcome: refusal.code });
      this.#log(refusal, error);
      // Once the refusal is out there is nothing left to talk about.
      setImmediate(() => socket.conn.close());
      throw connectError(refusal);
    }
  }

  #log({ code, status, message }: OracleError, error: unknown): void {
    const { logger } = this.#parts;
    if (status >= 500) logger.error({ err: error }, message);
    else logger.info({ reason: code }, 'socket refused');
  }

  #open(socket: Socket): void {
    const open = new SessionSocket(socket, socket.data as Seat, this.#parts);
    this.#sockets.add(open);
    socket.once('disconnect', () => this.#sockets.delete(open));
    open.open().catch((err) => {
      // It comes back, and says what it has seen.
      this.#parts.logger.warn({ err }, 'socket dropped: what it missed cannot be read');
      cutOff(socket.conn);
    });
  }
}

/** Becomes the client's `connect_error`, with the fields of an error body in `data`. */
function connectError({ message, status, code, retryAfterSeconds }: OracleError): Error {
  const data = {
    statusCode: status,
    error: STATUS_CODES[status],
    code,
    message,
    retryAfterSeconds,
  };
  return Object.assign(new Error(message), { data });
}
