import { randomUUID } from 'node:crypto';
import {
  type Server as HttpServer,
  type IncomingMessage,
  ServerResponse,
  STATUS_CODES,
} from 'node:http';
import type { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { hasShortHost, OracleError } from '@sibyl/protocol';
import { ByteBudget, toAddressKey } from '@sibyl/server-kit';
import { Server, type Socket } from 'socket.io';
import type { PresentedDelegations } from '../auth/authenticator.js';
import type { Cluster } from '../bus/cluster.js';
import type { EventBus } from '../bus/event-bus.js';
import type { SocketPresence } from '../bus/socket-presence.js';
import type { Config } from '../config/config.js';
import { buildRawResponse, toErrorBody } from '../http/replies.js';
import type { Metrics } from '../observability/metrics.js';
import type { SessionStore } from '../store/session-store.js';
import { toOracleError } from '../store/store-errors.js';
import { type Connection, ConnectionRegistry, onceClosed, terminate } from './connections.js';
import { HandshakeVerifier, type SocketContext } from './handshake.js';
import { PollingRelay } from './polling-relay.js';
import { SessionSocket, type SessionSocketDeps } from './session-socket.js';
import {
  limitPackets,
  limitReceived,
  limitWire,
  ReceivedSize,
  SocketBacklog,
} from './write-limit.js';

/** How long a connection may take to send its handshake. */
const CONNECT_MS = 10_000;
/** How long clients may take to disconnect once the host is closing. */
const CLOSE_MS = 2000;
/** How long before its deadline the host closes connections that are still open. */
const FORCED_CLOSE_MARGIN_MS = 100;

interface SocketServerDeps extends Omit<SessionSocketDeps, 'backlog'> {
  readonly sessions: SessionStore;
  readonly presented: PresentedDelegations;
  readonly events: EventBus;
  readonly presence: SocketPresence;
  readonly metrics: Metrics;
  readonly cluster: Pick<Cluster, 'bus' | 'liveness'>;
  readonly config: Pick<Config, 'corsOrigins' | 'sockets' | 'bodiesLimit'>;
  readonly cors: object;
  /** The address of the client behind trusted proxies. */
  readonly readClientAddress: (request: IncomingMessage) => string | undefined;
}

/** Serves the events of sessions over Socket.IO, on the port of the host. */
export class SocketServer {
  private readonly deps: SessionSocketDeps & SocketServerDeps;
  private readonly handshakes: HandshakeVerifier;
  private readonly relay: PollingRelay;
  private readonly connections = new Set<Connection>();
  private readonly sockets = new Set<SessionSocket>();
  /** Connections of authenticated callers. */
  private readonly proven = new WeakSet<Connection>();
  private readonly received = new WeakMap<Connection, ReceivedSize>();
  private isClosing = false;

  constructor(server: HttpServer, deps: SocketServerDeps) {
    const { config, cors, registry } = deps;
    const readAddress = (request: IncomingMessage) => toAddressKey(deps.readClientAddress(request));
    this.deps = { ...deps, backlog: new SocketBacklog(config.sockets.backlogLimit) };
    this.handshakes = new HandshakeVerifier({ ...deps, readAddress });
    const io = new Server(server, {
      cors,
      maxHttpBufferSize: config.sockets.messageLimit,
      connectTimeout: CONNECT_MS,
      httpCompression: false,
      serveClient: false,
    });
    const incoming = createIncomingBudget(config);
    const reserve = (request: IncomingMessage) => incoming.open(readAddress(request));
    // After Engine.IO has accepted it.
    server.on('upgrade', (request: IncomingMessage, wire: Duplex) =>
      limitWire(request, wire, reserve(request)),
    );
    io.engine.use((request: IncomingMessage, _response: unknown, next: Next) => {
      if (request.method === 'POST') limitReceived(request, reserve(request));
      next();
    });
    deps.cluster.bus.on('user-erased', ({ did }) => this.closeSockets(did));
    deps.cluster.bus.onMissed(() => void this.closeDeleted());
    const { corsOrigins } = config;
    const isClosing = () => this.isClosing;
    io.engine.use(createConnectionCheck({ registry, corsOrigins, readAddress, isClosing }));
    this.relay = new PollingRelay({
      ...deps.cluster,
      registry: new ConnectionRegistry(config.sockets),
      messageLimit: config.sockets.messageLimit,
      readAddress,
      answer: (request, response) =>
        (io.engine as unknown as Engine).handleRequest(request, response),
      logger: deps.logger,
    });
    io.engine.generateId = () => this.relay.createId();
    io.engine.use(createRelaying(this.relay));
    io.engine.on('connection', (connection: Connection) => {
      this.connections.add(connection);
      onceClosed(connection, () => this.connections.delete(connection));
      const isProven = () => this.proven.has(connection);
      const received = new ReceivedSize();
      this.received.set(connection, received);
      const onExcess = (excess: string) =>
        deps.logger.info(`socket disconnected: a message has ${excess}`);
      const attachments = reserve(connection.request);
      limitPackets(connection, { attachments, received, isProven, onExcess });
      try {
        onceClosed(connection, registry.addConnection(readAddress(connection.request)));
      } catch {
        // Several connections passed the check at the same time.
        terminate(connection);
      }
    });
    io.use((socket, next) => {
      this.verify(socket).then(() => next(), next);
    });
    io.on('connection', (socket) => this.open(socket));
  }

  /** Notifies all clients that the host is stopping, and disconnects them within `limitMs`. */
  async close(limitMs: number): Promise<void> {
    this.isClosing = true;
    this.relay.close();
    for (const socket of this.sockets) socket.close('host_stopping');
    for (const connection of this.connections) connection.close();
    const deadline = performance.now() + Math.min(CLOSE_MS, limitMs - FORCED_CLOSE_MARGIN_MS);
    while (this.connections.size > 0 && performance.now() < deadline) await sleep(10);
    for (const connection of this.connections) terminate(connection);
  }

  /** Closes the sockets of a user whose sessions were deleted. */
  private closeSockets(owner: string): void {
    for (const socket of this.sockets)
      if (socket.session.owner === owner) socket.close('session_deleted');
  }

  /** Closes the sockets of sessions whose deletion, or that of their user, was not reported to this host. */
  private async closeDeleted(): Promise<void> {
    const { sessions, logger } = this.deps;
    try {
      for (const socket of this.sockets)
        if (!(await sessions.find(socket.session))) socket.close('session_deleted');
    } catch (err) {
      logger.warn({ reason: String(err) }, 'cannot check whether sessions of sockets were deleted');
    }
  }

  private async verify(socket: Socket): Promise<void> {
    const { metrics } = this.deps;
    try {
      const context = await this.handshakes.verify(socket);
      this.proven.add(socket.conn);
      // With a `pid`, the client keeps the last position and sends it when it reconnects.
      Object.assign(socket, { pid: context.streamId, data: context });
      metrics.count('sibyl_socket_handshakes_total', { outcome: 'admitted' });
    } catch (error) {
      const refusal = toOracleError(error);
      metrics.count('sibyl_socket_handshakes_total', { outcome: refusal.code });
      this.log(refusal, error);
      // After the error is sent.
      setImmediate(() => socket.conn.close());
      throw toConnectError(refusal);
    }
  }

  private log({ code, status, message }: OracleError, error: unknown): void {
    const { logger } = this.deps;
    if (status >= 500) logger.error({ err: error }, message);
    else logger.info({ reason: code }, 'socket refused');
  }

  private open(socket: Socket): void {
    const received = this.received.get(socket.conn) ?? new ReceivedSize();
    const open = new SessionSocket(socket, socket.data as SocketContext, received, this.deps);
    this.sockets.add(open);
    const removeFromCount = this.deps.registry.addOpenSocket();
    socket.once('disconnect', () => {
      this.sockets.delete(open);
      removeFromCount();
    });
    open.open();
  }
}

/** The `connect_error` of the client, with the fields of an error body in `data`. */
function toConnectError({ message, status, code, retryAfterSeconds }: OracleError): Error {
  const data = {
    statusCode: status,
    error: STATUS_CODES[status],
    code,
    message,
    retryAfterSeconds,
  };
  return Object.assign(new Error(message), { data });
}

/** For what arrives of messages until they are complete: as much as for the bodies of other requests. */
function createIncomingBudget({
  bodiesLimit,
  sockets: { messageLimit },
}: Pick<Config, 'bodiesLimit' | 'sockets'>): ByteBudget {
  const maxBytes = Math.max(bodiesLimit, 4 * (messageLimit + CHUNK_BYTES));
  return new ByteBudget({ maxBytes, maxBytesPerKey: maxBytes / 4 });
}

/** Arrives at once, and may contain many complete messages. */
const CHUNK_BYTES = 64 * 1024;

interface ConnectionCheckDeps {
  readonly registry: ConnectionRegistry;
  /** `*` for all. */
  readonly corsOrigins: readonly string[];
  readonly readAddress: (request: IncomingMessage) => string;
  readonly isClosing: () => boolean;
}

type Next = () => void;

/** Rejects requests before they become connections. */
function createConnectionCheck({
  registry,
  corsOrigins,
  readAddress,
  isClosing,
}: ConnectionCheckDeps) {
  const check = (request: IncomingMessage) => {
    if (!isAllowed(request, corsOrigins)) throw new OracleError('origin_not_allowed');
    if (hasConnection(request)) return;
    if (isClosing()) throw new OracleError('host_stopping', { retryAfterSeconds: 5 });
    registry.assertBelowLimit(readAddress(request));
  };
  return (request: IncomingMessage, response: ServerResponse, next: Next): void => {
    try {
      check(request);
      response.setHeader('X-Request-Id', randomUUID());
      next();
    } catch (error) {
      refuse(request, response, toOracleError(error));
    }
  };
}

/** Passes on what was meant for another host; the answer to an unknown connection is that of Engine.IO. */
function createRelaying(relay: PollingRelay) {
  return (request: EngineRequest, response: ServerResponse, next: Next): void => {
    const hostId = relay.findHost(request._query?.sid);
    // A client whose upgrade fails continues to poll.
    if (hostId === undefined || !(response instanceof ServerResponse)) next();
    else
      relay.relay(hostId, request, response).then(
        (isAnswered) => isAnswered || next(),
        (error) => refuse(request, response, toOracleError(error)),
      );
  };
}

/** CORS_ORIGIN applies to pages of other origins, not to the page of this host or to clients that are not pages. */
function isAllowed({ headers }: IncomingMessage, origins: readonly string[]): boolean {
  const { origin, host } = headers;
  if (origin === undefined || origins.includes('*') || origins.includes(origin)) return true;
  return hasShortHost(origin) && URL.parse(origin)?.host === host;
}

/** What Engine.IO does with a request, which its types leave out. */
interface Engine {
  handleRequest(request: IncomingMessage, response: ServerResponse): void;
}

/** A request whose query Engine.IO has parsed; of parameters with the same name, it takes the last. */
type EngineRequest = IncomingMessage & { readonly _query?: Readonly<Record<string, string>> };

/** Whether Engine.IO takes a request for one of an open connection; if not, it opens one. */
const hasConnection = ({ _query }: EngineRequest): boolean => Boolean(_query?.sid);

/** An upgrade request has no response object. */
function refuse(request: IncomingMessage, response: ServerResponse, error: OracleError): void {
  if (!(response instanceof ServerResponse)) {
    request.socket.on('error', () => undefined);
    request.socket.end(buildRawResponse(error));
    return;
  }
  const requestId = randomUUID();
  response.writeHead(error.status, {
    'Content-Type': 'application/json; charset=utf-8',
    'X-Request-Id': requestId,
    ...(error.retryAfterSeconds && { 'Retry-After': error.retryAfterSeconds }),
  });
  response.end(JSON.stringify(toErrorBody(error, requestId)));
}
