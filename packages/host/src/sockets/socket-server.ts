import { randomUUID } from 'node:crypto';
import {
  type Server as HttpServer,
  type IncomingMessage,
  ServerResponse,
  STATUS_CODES,
} from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { OracleError } from '@sibyl/protocol';
import { addressKey } from '@sibyl/server-kit';
import { Server, type Socket } from 'socket.io';
import type { PresentedDelegations } from '../auth/presented-delegations.js';
import type { EventBus } from '../bus/event-bus.js';
import type { Config } from '../config/config.js';
import { bodyOf, oracleErrorOf } from '../http/error-filter.js';
import { rawAnswer } from '../http/responses.js';
import type { Metrics } from '../observability/metrics.js';
import type { SessionStore } from '../store/session-store.js';
import { type Connection, ConnectionRegister, cutOff, whenClosed } from './connections.js';
import { Admission, type Seat } from './handshake.js';
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
  private readonly parts: SessionSocketParts & SocketServerParts;
  private readonly admission: Admission;
  private readonly connections = new Set<Connection>();
  private readonly sockets = new Set<SessionSocket>();
  private isClosing = false;

  constructor(server: HttpServer, parts: SocketServerParts) {
    const { config, cors } = parts;
    const register = new ConnectionRegister(config.sockets);
    const addressOf = (request: IncomingMessage) => addressKey(parts.clientAddress(request));
    this.parts = { ...parts, register, backlog: new SocketBacklog(config.sockets.backlogLimit) };
    this.admission = new Admission({ ...parts, register, addressOf });
    const io = new Server(server, {
      cors,
      maxHttpBufferSize: config.sockets.messageLimit,
      connectTimeout: CONNECT_MS,
      httpCompression: false,
      serveClient: false,
    });
    const { corsOrigins } = config;
    const isClosing = () => this.isClosing;
    io.engine.use(createConnectionCheck({ register, corsOrigins, addressOf, isClosing }));
    io.engine.on('connection', (connection: Connection) => {
      this.connections.add(connection);
      whenClosed(connection, () => this.connections.delete(connection));
      try {
        whenClosed(connection, register.enter(addressOf(connection.request)));
      } catch {
        // Of many that were checked at once, these came last.
        cutOff(connection);
      }
    });
    io.use((socket, next) => {
      this.admit(socket).then(() => next(), next);
    });
    io.on('connection', (socket) => this.open(socket));
  }

  /** Tells every client that the host stops, and lets go of them, of the last after `limitMs`. */
  async close(limitMs: number): Promise<void> {
    this.isClosing = true;
    for (const socket of this.sockets) socket.close('host_stopping');
    for (const connection of this.connections) connection.close();
    const deadline = performance.now() + Math.min(CLOSE_MS, limitMs - CUT_MS);
    while (this.connections.size > 0 && performance.now() < deadline) await sleep(10);
    for (const connection of this.connections) cutOff(connection);
  }

  private async admit(socket: Socket): Promise<void> {
    const { metrics } = this.parts;
    try {
      const seat = await this.admission.admit(socket);
      // With it the client keeps count of what it has seen, and says so when it comes back.
      Object.assign(socket, { pid: seat.streamId, data: seat });
      metrics.count('sibyl_socket_handshakes_total', { outcome: 'admitted' });
    } catch (error) {
      const refusal = oracleErrorOf(error);
      metrics.count('sibyl_socket_handshakes_total', { outcome: refusal.code });
      this.log(refusal, error);
      // Once the refusal is out there is nothing left to talk about.
      setImmediate(() => socket.conn.close());
      throw connectError(refusal);
    }
  }

  private log({ code, status, message }: OracleError, error: unknown): void {
    const { logger } = this.parts;
    if (status >= 500) logger.error({ err: error }, message);
    else logger.info({ reason: code }, 'socket refused');
  }

  private open(socket: Socket): void {
    const open = new SessionSocket(socket, socket.data as Seat, this.parts);
    this.sockets.add(open);
    socket.once('disconnect', () => this.sockets.delete(open));
    open.open().catch((err) => {
      // It comes back, and says what it has seen.
      this.parts.logger.warn({ err }, 'socket dropped: what it missed cannot be read');
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

interface ConnectionCheckParts {
  readonly register: ConnectionRegister;
  /** `*` for all. */
  readonly corsOrigins: readonly string[];
  readonly addressOf: (request: IncomingMessage) => string;
  readonly isClosing: () => boolean;
}

type Next = () => void;

/** Turns requests away before a connection is made of them. */
function createConnectionCheck({
  register,
  corsOrigins,
  addressOf,
  isClosing,
}: ConnectionCheckParts) {
  const check = (request: IncomingMessage) => {
    if (!isAllowed(request, corsOrigins)) throw new OracleError('origin_not_allowed');
    if (isOfConnection(request)) return;
    if (isClosing()) throw new OracleError('host_stopping', { retryAfterSeconds: 5 });
    register.assertRoom(addressOf(request));
  };
  return (request: IncomingMessage, response: ServerResponse, next: Next): void => {
    try {
      check(request);
      response.setHeader('X-Request-Id', randomUUID());
      next();
    } catch (error) {
      refuse(request, response, oracleErrorOf(error));
    }
  };
}

/** Pages of other origins need to be named; the host's own page does not, nor does what is no page. */
function isAllowed({ headers }: IncomingMessage, origins: readonly string[]): boolean {
  const { origin, host } = headers;
  if (origin === undefined || origins.includes('*') || origins.includes(origin)) return true;
  return URL.canParse(origin) && new URL(origin).host === host;
}

/** Whether a request belongs to a connection that was let in before. */
function isOfConnection({ url = '' }: IncomingMessage): boolean {
  return new URL(url, 'http://host').searchParams.has('sid');
}

/** An upgrade has no response of its own to write to. */
function refuse(request: IncomingMessage, response: ServerResponse, error: OracleError): void {
  if (!(response instanceof ServerResponse)) {
    request.socket.on('error', () => undefined);
    request.socket.end(rawAnswer(error));
    return;
  }
  const requestId = randomUUID();
  response.writeHead(error.status, {
    'Content-Type': 'application/json; charset=utf-8',
    'X-Request-Id': requestId,
    ...(error.retryAfterSeconds && { 'Retry-After': error.retryAfterSeconds }),
  });
  response.end(JSON.stringify(bodyOf(error, requestId)));
}
