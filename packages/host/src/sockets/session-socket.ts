import { type ClosingReason, clientEvents } from '@sibyl/protocol';
import type { Logger } from 'pino';
import type { Socket } from 'socket.io';
import type { Authenticator } from '../auth/authenticator.js';
import type { CallerAllowList } from '../auth/caller-allow-list.js';
import { watchAccess } from '../auth/connection-access.js';
import type { DelegatedAuthority } from '../auth/delegated-authority.js';
import type { RateLimits } from '../auth/rate-limits.js';
import {
  BEFORE_ALL,
  type CallEvent,
  type ClientCallResult,
  createClosingEvent,
  formatPosition,
  isAfter,
  isCallEvent,
  type Position,
  type ServerEvent,
  type SessionKey,
  toWireForm,
} from '../bus/event-bus.js';
import type { PendingClientCalls } from '../bus/pending-client-calls.js';
import type { SessionChanges } from '../bus/session-changes.js';
import type { MissedEvents } from '../turns/read/run-reader.js';
import { clientRequests, resultReaders } from './client-events.js';
import { type ConnectionRegistry, terminate } from './connections.js';
import type { SocketContext } from './handshake.js';
import { type ReceivedSize, type SocketBacklog, WriteLimit } from './write-limit.js';

export interface SessionSocketDeps {
  readonly authenticator: Authenticator;
  readonly authority: DelegatedAuthority;
  readonly allowList: CallerAllowList;
  readonly limits: RateLimits;
  readonly registry: ConnectionRegistry;
  readonly backlog: SocketBacklog;
  readonly pendingCalls: PendingClientCalls;
  readonly missed: MissedEvents;
  readonly changes: SessionChanges;
  readonly logger: Logger;
  /** How long a client may read nothing while it is catching up. */
  readonly stallMs: number;
}

/** Sends the events of a session to one client: first those that it missed, then live ones, in order. */
export class SessionSocket {
  private readonly socket: Socket;
  private readonly context: SocketContext;
  private readonly deps: SessionSocketDeps;
  private readonly writes: WriteLimit;
  /** Of the last event that was sent. */
  private last: Position = BEFORE_ALL;
  /** The host whose events are sent now; undefined until it is known, and if there is only one. */
  private sender: string | undefined;
  constructor(
    socket: Socket,
    context: SocketContext,
    private readonly received: ReceivedSize,
    deps: SessionSocketDeps,
  ) {
    this.socket = socket;
    this.context = context;
    this.deps = deps;
    const { stallMs, backlog } = deps;
    const drop = () => this.drop();
    this.writes = new WriteLimit(socket.conn, { stallMs, backlog, drop });
    const stopWatching = watchAccess(context, deps, (reason) => this.close(reason));
    socket.once('disconnect', stopWatching);
    this.listen();
  }

  /** False as soon as it is being closed: a client that does not poll could hold the connection a while longer. */
  private get isOpen(): boolean {
    return this.socket.connected && this.socket.conn.readyState === 'open';
  }

  get session(): SessionKey {
    return this.context.session;
  }

  /** Sends `connected`, then the events that the client missed, then live events. */
  open(): void {
    this.start().catch((err) => this.lose(err));
  }

  private async start(): Promise<void> {
    const { session, seen, inbox } = this.context;
    const from = seen ?? (await this.deps.missed.latest(session));
    const { sessionId } = session;
    const payload = { message: 'Connected', sessionId, timestamp: now() };
    this.emit({ event: 'connected', payload, position: from });
    this.last = from;
    if (seen) await this.resume(seen);
    else await this.sendOpenCalls();
    inbox.open((event) => this.receive(event));
    if (!this.socket.connected) return;
    const stop = this.deps.changes.subscribe(session.owner, (payload) =>
      this.emit({ event: 'sessions_changed', payload }),
    );
    this.socket.once('disconnect', stop);
  }

  /** Sends the reason and disconnects; clients reconnect by themselves where that may help. */
  close(reason: ClosingReason): void {
    const { sessionId } = this.context.session;
    this.emit(createClosingEvent(reason, sessionId));
    if (reason === 'token_expired' || reason === 'host_stopping') this.socket.conn.close();
    else this.socket.disconnect(true);
  }

  /** Sends a live event in its place. Each host sends its events in order, but those of the host before it may be late. */
  private receive(event: ServerEvent): void {
    const { position, sender } = event;
    if (position && !isAfter(position, this.last)) return;
    const isOfNextHost = position !== undefined && sender !== this.sender;
    if (isOfNextHost || this.mustClaim(event)) {
      this.catchUp(event, isOfNextHost ? position : undefined).catch((err) => this.lose(err));
      return;
    }
    this.last = position ?? this.last;
    this.deliver(event);
  }

  /** Sends an event that later ones wait for; before the first one of a host, what is stored of the hosts before it. */
  private async catchUp(event: ServerEvent, from: Position | undefined): Promise<void> {
    const { inbox } = this.context;
    inbox.pause();
    if (from) {
      this.sender = event.sender;
      await this.replay(from);
    }
    this.last = event.position ?? this.last;
    if (this.mustClaim(event)) await this.deliverClaimed(event);
    else this.deliver(event);
    inbox.open((next) => this.receive(next));
  }

  /** Sends what a client missed that was here before. */
  private async resume(seen: Position): Promise<void> {
    const { pendingCalls } = this.deps;
    const { session } = this.context;
    for (const { sent } of pendingCalls.list(session)) {
      if (!sent.position || isAfter(sent.position, seen)) continue;
      // The page received the call before it disconnected, and will answer it.
      pendingCalls.markDelivered(session, sent.payload.toolCallId, this.socket);
    }
    await this.replay();
  }

  /** Sends the stored events after the last one, up to a position; calls only if they are still open. */
  private async replay(end?: Position): Promise<void> {
    for await (const event of this.deps.missed.after(this.context.session, this.last)) {
      const { position = this.last } = event;
      if (!this.isOpen || (end && !isAfter(end, position))) return;
      this.last = position;
      if (!isCallEvent(event) || this.isWaiting(event)) this.deliver(event);
      await this.writes.room();
    }
  }

  /** A new page receives the open calls that no other page has received. */
  private async sendOpenCalls(): Promise<void> {
    for (const { sent } of this.deps.pendingCalls.list(this.context.session)) {
      // Without the position, because the client is already past it.
      const { position: _, ...call } = sent;
      await this.deliverClaimed(call);
    }
  }

  private isWaiting({ payload }: CallEvent): boolean {
    return this.deps.pendingCalls.has(this.context.session, payload.toolCallId);
  }

  /**
   * Whether another page may have received the call, so that this one has to claim it. A client that reconnects need not: it missed
   * the call, which the host that it left may still count as delivered.
   */
  private mustClaim(event: ServerEvent): event is CallEvent {
    return isCallEvent(event) && event.isRepeated === true && !this.context.seen;
  }

  /** Unless another page has received the call, or it has ended. */
  private async deliverClaimed(call: CallEvent): Promise<void> {
    const { pendingCalls } = this.deps;
    const { toolCallId } = call.payload;
    if (!this.isOpen) return;
    if (await pendingCalls.claimDelivery(this.context.session, toolCallId, this.socket))
      this.deliver(call);
  }

  private deliver(event: ServerEvent): void {
    if (!this.isOpen) return;
    if (event.event === 'closing') return void this.close(event.payload.reason);
    if (isCallEvent(event))
      this.deps.pendingCalls.markDelivered(
        this.context.session,
        event.payload.toolCallId,
        this.socket,
      );
    this.emit(event);
  }

  /** The position is the last argument, unless the client turns it off; clients send it when they reconnect. */
  private emit(event: ServerEvent): void {
    const { position } = event;
    const trail = position && this.context.hasPositions ? [formatPosition(position)] : [];
    this.socket.emit(event.event, toWireForm(event), ...trail);
  }

  private listen(): void {
    const { session } = this.context;
    const { registry } = this.deps;
    for (const [name, answer] of Object.entries(clientRequests))
      this.socket.on(name, () => this.ask(() => this.emit(answer(session, registry))));
    for (const [name, read] of Object.entries(resultReaders))
      this.socket.on(name, (sent: unknown) => this.take(name, read(sent, session)));
    this.socket.onAny((name: string) => {
      if (!Object.hasOwn(clientEvents, name)) this.ask(() => undefined);
    });
  }

  /** An answer to an open call is free; everything else counts as a request, a long event as several. */
  private take(name: string, answer: ClientCallResult | undefined): void {
    const { pendingCalls, logger } = this.deps;
    const { session } = this.context;
    if (answer && pendingCalls.answer(session, answer)) {
      this.received.take();
      return;
    }
    logger.debug({ ...session, event: name, toolCallId: answer?.toolCallId }, 'result ignored');
    this.ask(() => undefined);
  }

  private ask(answer: () => void): void {
    const { caller } = this.context;
    const { limits } = this.deps;
    const size = this.received.take();
    const allowed = limits.takeCaller(caller.holder).then(() => limits.takeBody(size, { caller }));
    allowed.then(answer, () => this.close('rate_limited'));
  }

  /** The client reconnects and sends its last position. */
  private lose(err: unknown): void {
    this.deps.logger.warn({ err }, 'socket disconnected: its missed events cannot be read');
    terminate(this.socket.conn);
  }

  private drop(): void {
    this.deps.logger.info({ ...this.context.session }, 'socket disconnected: it reads too slowly');
    terminate(this.socket.conn);
  }
}

const now = () => new Date().toISOString();
