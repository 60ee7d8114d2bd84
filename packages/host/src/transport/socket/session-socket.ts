import { type ClosingReason, clientEvents } from '@sibyl/protocol';
import type { Logger } from 'pino';
import type { Socket } from 'socket.io';
import type { Authenticator } from '../../auth/authenticator.js';
import type { CallerAllowList } from '../../auth/caller-allow-list.js';
import type { DelegatedAuthority } from '../../auth/delegated-authority.js';
import type { RateLimits } from '../../auth/rate-limits.js';
import type { CallDesk, CallEvent, PageAnswer } from '../../events/call-desk.js';
import { closingEvent } from '../../events/closing-event.js';
import { isAfter, type Position, positionText } from '../../events/position.js';
import { type ServerEvent, wireForm } from '../../events/server-event.js';
import type { MissedEvents } from '../../turn/runs/missed-events.js';
import type { Seat } from './admission.js';
import { answers, results } from './client-events.js';
import { cutOff } from './connection.js';
import type { ConnectionRegister } from './connection-register.js';
import { watchAccess } from './token-watch.js';
import { type SocketBacklog, WriteLimit } from './write-limit.js';

export interface SessionSocketParts {
  readonly authenticator: Authenticator;
  readonly authority: DelegatedAuthority;
  readonly allowList: CallerAllowList;
  readonly limits: RateLimits;
  readonly register: ConnectionRegister;
  readonly backlog: SocketBacklog;
  readonly desk: CallDesk;
  readonly missed: MissedEvents;
  readonly logger: Logger;
  /** How long a client may take nothing while it is brought up to date. */
  readonly stallMs: number;
}

/** A client that listens to a session: it gets what it missed, then what happens, in one order. */
export class SessionSocket {
  readonly #socket: Socket;
  readonly #seat: Seat;
  readonly #parts: SessionSocketParts;
  readonly #writes: WriteLimit;

  constructor(socket: Socket, seat: Seat, parts: SessionSocketParts) {
    this.#socket = socket;
    this.#seat = seat;
    this.#parts = parts;
    const { stallMs, backlog } = parts;
    const giveUp = () => this.#giveUp();
    this.#writes = new WriteLimit(socket.conn, { stallMs, backlog, giveUp });
    const stopWatching = watchAccess(seat, parts, (reason) => this.close(reason));
    socket.once('disconnect', stopWatching);
    this.#listen();
  }

  /** Greets the client and brings it up to date. */
  async open(): Promise<void> {
    const { audience, seen, inbox } = this.#seat;
    const from = seen ?? (await this.#parts.missed.latest(audience));
    const { sessionId } = audience;
    const payload = { message: 'Connected', sessionId, timestamp: now() };
    this.#emit({ event: 'connected', payload, position: from });
    const last = seen ? await this.#replay(seen) : this.#handOver(from);
    inbox.open((event) => {
      if (!event.position || isAfter(event.position, last)) this.#deliver(event);
    });
  }

  /** Says why and ends the connection; clients come back by themselves where that may help. */
  close(reason: ClosingReason): void {
    const { sessionId } = this.#seat.audience;
    this.#emit(closingEvent(reason, sessionId));
    if (reason === 'token_expired' || reason === 'host_stopping') this.#socket.conn.close();
    else this.#socket.disconnect(true);
  }

  /** Sends what the run logs hold beyond what was seen; calls only if somebody still waits. */
  async #replay(seen: Position): Promise<Position> {
    const { desk, missed } = this.#parts;
    const { audience } = this.#seat;
    for (const { sent } of desk.open(audience)) {
      if (!sent.position || isAfter(sent.position, seen)) continue;
      // The page got it before it went, and its answer will come.
      desk.given(audience, sent.payload.toolCallId, this.#socket);
    }
    let last = seen;
    for await (const event of missed.after(audience, seen)) {
      if (!this.#socket.connected) return last;
      last = event.position ?? last;
      if (!isCall(event) || this.#isWanted(event)) this.#deliver(event);
      await this.#writes.room();
    }
    return last;
  }

  /** A page that is new here gets the calls that no other page has. */
  #handOver(from: Position): Position {
    const { desk } = this.#parts;
    for (const { sent, isHeld } of desk.open(this.#seat.audience)) {
      // Without its position: the client is further on than that.
      const { position: _, ...call } = sent;
      if (!isHeld) this.#deliver(call);
    }
    return from;
  }

  #isWanted({ payload }: CallEvent): boolean {
    const waiting = this.#parts.desk.open(this.#seat.audience);
    return waiting.some((c) => !c.isHeld && c.sent.payload.toolCallId === payload.toolCallId);
  }

  #deliver(event: ServerEvent): void {
    if (event.event === 'closing') return void this.close(event.payload.reason);
    if (isCall(event))
      this.#parts.desk.given(this.#seat.audience, event.payload.toolCallId, this.#socket);
    this.#emit(event);
  }

  /** The position travels as the last argument, which clients name when they come back. */
  #emit(event: ServerEvent): void {
    const { position } = event;
    const trail = position ? [positionText(position)] : [];
    this.#socket.emit(event.event, wireForm(event), ...trail);
  }

  #listen(): void {
    const { audience } = this.#seat;
    const { register } = this.#parts;
    for (const [name, answer] of Object.entries(answers))
      this.#socket.on(name, () => this.#ask(() => this.#emit(answer(audience, register))));
    for (const [name, read] of Object.entries(results))
      this.#socket.on(name, (sent: unknown) => this.#take(name, read(sent, audience)));
    this.#socket.onAny((name: string) => {
      if (!Object.hasOwn(clientEvents, name)) this.#ask(() => undefined);
    });
  }

  /** What answers a call of ours is free; whatever else a client sends counts as a request. */
  #take(name: string, answer: PageAnswer | undefined): void {
    const { desk, logger } = this.#parts;
    const { audience } = this.#seat;
    if (answer && desk.answer(audience, answer)) return;
    logger.debug({ ...audience, event: name, toolCallId: answer?.toolCallId }, 'result ignored');
    this.#ask(() => undefined);
  }

  #ask(answer: () => void): void {
    const { caller, address } = this.#seat;
    const allowed = this.#parts.limits.takeCaller(caller, address);
    allowed.then(answer, () => this.close('rate_limited'));
  }

  #giveUp(): void {
    this.#parts.logger.info({ ...this.#seat.audience }, 'socket dropped: it takes too little');
    cutOff(this.#socket.conn);
  }
}

const isCall = (event: ServerEvent): event is CallEvent =>
  event.event === 'browser_tool_call' || event.event === 'action_call';

const now = () => new Date().toISOString();
