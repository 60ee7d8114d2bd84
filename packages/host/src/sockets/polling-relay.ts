import { randomBytes, randomUUID } from 'node:crypto';
import { type IncomingMessage, ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { OracleError } from '@sibyl/protocol';
import { RateLimiter, readChunks } from '@sibyl/server-kit';
import type { Logger } from 'pino';
import {
  type HostBus,
  type HostLiveness,
  type HostTopics,
  isHostId,
  type PolledAnswer,
  type PolledPiece,
  type PolledRequest,
} from '../bus/host-bus.js';
import type { ConnectionRegistry } from './connections.js';

/** Longer than Engine.IO leaves a request for events without an answer: it sends a ping every 25 seconds. */
const ANSWER_MS = 35_000;
/** All others are answered at once. */
const OTHER_ANSWER_MS = 5_000;
const PIECE_LENGTH = 16 * 1024;
/** Requests a minute of one address that their host refuses, such as those for connections that have ended. */
const MAX_REFUSED = 120;
const ID_BYTES = 15;
const HOST_ID_LENGTH = 12;
const RELAYED_HEADERS = ['content-type', 'host', 'origin', 'user-agent', 'x-forwarded-for'];

interface Received<Head> {
  readonly head: Head;
  readonly body: string;
}

interface PollingRelayDeps {
  readonly bus: HostBus;
  readonly liveness: Pick<HostLiveness, 'isRunning' | 'onHostLost'>;
  /** Limits the requests that wait for other hosts. */
  readonly registry: ConnectionRegistry;
  /** Bytes of a body. */
  readonly messageLimit: number;
  readonly readAddress: (request: IncomingMessage) => string;
  /** Lets this host answer a request for one of its connections. */
  readonly answer: (request: IncomingMessage, response: ServerResponse) => void;
  readonly logger: Pick<Logger, 'debug'>;
}

/**
 * Relays requests of clients that poll to the host that has their connection, since a load balancer may send each of them to
 * another host. If a message between the hosts is lost, the request fails: then the client connects again, and receives what it
 * missed from the store.
 */
export class PollingRelay {
  private readonly deps: PollingRelayDeps;
  private readonly refused = new RateLimiter();
  /** Requests of clients of this host, by id. */
  private readonly waiting = new Map<string, WaitingRequest>();
  /** Requests of other hosts, by id. */
  private readonly served = new Map<string, ServedRequest>();
  private lastPiece: Promise<void> = Promise.resolve();

  constructor(deps: PollingRelayDeps) {
    this.deps = deps;
    const { bus, liveness } = deps;
    bus.on('polled', (piece, from) => this.receiveRequest(piece, from));
    bus.on('poll-answered', (piece, from) => this.receiveAnswer(piece, from));
    bus.on('poll-ended', ({ id }, from) => this.end(id, from));
    bus.onMissed(() => this.endAll());
    liveness.onHostLost((hostId) => this.endAll(hostId));
  }

  /** The id of a new connection, which names this host. */
  createId(): string {
    return this.deps.bus.hostId + randomBytes(ID_BYTES).toString('base64url');
  }

  /** The other running host that has the connection with this id. */
  findHost(id: string | undefined): string | undefined {
    const hostId = id?.slice(0, HOST_ID_LENGTH) ?? '';
    const isElsewhere = isHostId(hostId) && hostId !== this.deps.bus.hostId;
    return isElsewhere && this.deps.liveness.isRunning(hostId) ? hostId : undefined;
  }

  /** Resolves to whether the other host has answered. Rejects with an OracleError at a limit. */
  async relay(
    hostId: string,
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<boolean> {
    const address = this.deps.readAddress(request);
    const close = this.deps.registry.addConnection(address);
    try {
      if (!this.refused.peek(address, MAX_REFUSED).allowed) return false;
      const { head, body } = await this.ask(hostId, request, response);
      if (head.status >= 400) this.refused.take(address, MAX_REFUSED);
      response.writeHead(head.status, head.headers).end(body);
      return true;
    } catch (err) {
      if (err instanceof OracleError) throw err;
      this.deps.logger.debug(
        { err, hostId },
        'a request was not answered by the host of its socket',
      );
      return false;
    } finally {
      close();
    }
  }

  /** Ends all requests. */
  close(): void {
    this.endAll();
  }

  private async ask(
    hostId: string,
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<Received<PolledAnswer>> {
    const id = randomUUID();
    const { promise, resolve, reject } = Promise.withResolvers<Received<PolledAnswer>>();
    promise.catch(() => undefined);
    const pieces = new PieceReader<PolledAnswer>();
    const fail = (reason: string) => reject(new Error(reason));
    this.waiting.set(id, { hostId, pieces, resolve, fail });
    const timer = setTimeout(
      () => fail('No answer in time'),
      request.method === 'GET' ? ANSWER_MS : OTHER_ANSWER_MS,
    );
    response.once('close', () => fail('The client has left'));
    try {
      const body = await this.readBody(request);
      const isWaiting = () => this.waiting.has(id);
      await this.send(hostId, 'polled', { id, head: toPolledRequest(request), body }, isWaiting);
      return await promise;
    } catch (error) {
      this.deps.bus.send(hostId, 'poll-ended', { id });
      throw error;
    } finally {
      clearTimeout(timer);
      this.waiting.delete(id);
    }
  }

  private async readBody(request: IncomingMessage): Promise<string> {
    const { messageLimit } = this.deps;
    const body = await readChunks(request, (_, length) => {
      if (length > messageLimit) throw new OracleError('body_too_large');
    });
    return body.toString();
  }

  /** Sends a request or an answer in pieces, between those of others. */
  private async send<Topic extends 'polled' | 'poll-answered'>(
    to: string,
    topic: Topic,
    { id, head, body }: { id: string; head: HostTopics[Topic]['head']; body: string },
    isWanted: () => boolean,
  ): Promise<void> {
    for (let index = 0; index * PIECE_LENGTH <= body.length; index++) {
      this.lastPiece = this.lastPiece.then(() => this.deps.bus.room());
      await this.lastPiece;
      if (!isWanted()) return;
      const end = (index + 1) * PIECE_LENGTH;
      const text = body.slice(index * PIECE_LENGTH, end);
      const piece = { id, index, ...(index === 0 && { head }), text, isLast: end > body.length };
      this.deps.bus.send(to, topic, piece as HostTopics[Topic]);
    }
  }

  private receiveAnswer(piece: PolledPiece<PolledAnswer>, from: string): void {
    const request = this.waiting.get(piece.id);
    if (request?.hostId !== from) return;
    const answer = request.pieces.read(piece);
    if (answer === 'incomplete') return;
    if (answer) request.resolve(answer);
    else request.fail('A part of the answer was lost');
  }

  private receiveRequest(piece: PolledPiece<PolledRequest>, from: string): void {
    const { id, index } = piece;
    if (index === 0) this.served.set(id, { hostId: from, pieces: new PieceReader() });
    const served = this.served.get(id);
    if (served?.hostId !== from) return;
    const received = served.pieces.read(piece);
    if (received === 'incomplete') return;
    if (received) {
      served.request = toRequest(received);
      this.deps.answer(
        served.request,
        new PolledResponse(served.request, (answer) => this.reply(id, answer)),
      );
      return;
    }
    this.served.delete(id);
    this.deps.bus.send(from, 'poll-ended', { id });
  }

  private reply(id: string, answer: Received<PolledAnswer>): void {
    const served = this.served.get(id);
    if (!served) return;
    const isServed = () => this.served.has(id);
    void this.send(served.hostId, 'poll-answered', { id, ...answer }, isServed).finally(() =>
      this.served.delete(id),
    );
  }

  /** The client has left, or the host of the connection cannot answer. */
  private end(id: string, from: string): void {
    const waiting = this.waiting.get(id);
    if (waiting?.hostId === from) waiting.fail('The host of the socket has ended the request');
    const served = this.served.get(id);
    if (served?.hostId !== from) return;
    this.served.delete(id);
    // Engine.IO then closes the connection.
    served.request?.destroy();
  }

  /** Ends the requests from and to a host, or all. */
  private endAll(hostId?: string): void {
    for (const requests of [this.waiting, this.served])
      for (const [id, request] of [...requests])
        if (hostId === undefined || request.hostId === hostId) this.end(id, request.hostId);
  }
}

interface WaitingRequest {
  readonly hostId: string;
  readonly pieces: PieceReader<PolledAnswer>;
  readonly resolve: (answer: Received<PolledAnswer>) => void;
  readonly fail: (reason: string) => void;
}

interface ServedRequest {
  readonly hostId: string;
  readonly pieces: PieceReader<PolledRequest>;
  /** Undefined until all of it has arrived. */
  request?: IncomingMessage;
}

/** Joins the pieces of a request or an answer. */
class PieceReader<Head> {
  private head: Head | undefined;
  private readonly texts: string[] = [];

  /** Returns the whole once it is complete; undefined if a piece was lost. */
  read({
    index,
    head,
    text,
    isLast,
  }: PolledPiece<Head>): Received<Head> | 'incomplete' | undefined {
    if (index !== this.texts.length) return undefined;
    this.head ??= head;
    this.texts.push(text);
    if (!isLast) return 'incomplete';
    return this.head && { head: this.head, body: this.texts.join('') };
  }
}

function toPolledRequest({ method = '', url = '', headers, socket }: IncomingMessage) {
  const relayed = Object.entries(headers).filter(([name]) => RELAYED_HEADERS.includes(name));
  const address = socket.remoteAddress ?? '';
  return { method, url, headers: Object.fromEntries(relayed) as Record<string, string>, address };
}

/** A request as Engine.IO, its middlewares and the reader of addresses need it. */
function toRequest({ head, body }: Received<PolledRequest>): IncomingMessage {
  const { address, ...request } = head;
  const socket = { remoteAddress: address };
  const stream = Readable.from(body ? [Buffer.from(body)] : []);
  return Object.assign(stream, { ...request, socket }) as unknown as IncomingMessage;
}

/** Hands over what it is ended with. */
class PolledResponse extends ServerResponse {
  constructor(
    request: IncomingMessage,
    private readonly deliver: (answer: Received<PolledAnswer>) => void,
  ) {
    super(request);
  }

  override writeHead(status: number, headers?: unknown): this {
    this.statusCode = status;
    for (const [name, value] of Object.entries((headers ?? {}) as Record<string, string>))
      this.setHeader(name, value);
    return this;
  }

  override end(body?: unknown): this {
    const head = { status: this.statusCode, headers: this.getHeaders() };
    this.deliver({ head, body: typeof body === 'string' ? body : '' });
    return this;
  }
}
