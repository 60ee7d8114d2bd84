import {
  Body,
  Controller,
  Delete,
  Get,
  HttpCode,
  Inject,
  Param,
  Patch,
  Post,
  Query,
} from '@nestjs/common';
import { CurrentCaller, Describe } from '@sibyl/plugin-kit';
import {
  CreateSession,
  Id,
  ListSessions,
  OracleError,
  RenameSession,
  Session,
  SessionDeleted,
  SessionPage,
} from '@sibyl/protocol';
import type { Caller } from '../auth/caller.js';
import { OracleIdentity } from '../auth/oracle-identity.js';
import { EVENT_BUS, type EventBus } from '../events/event-bus.js';
import type { ServerEvent } from '../events/server-event.js';
import { SessionStore } from '../store/sessions/session-store.js';
import { Turns } from '../turn/turns.js';
import { sessionView } from './session-view.js';

@Controller('sessions')
export class SessionsController {
  constructor(
    private readonly sessions: SessionStore,
    private readonly oracle: OracleIdentity,
    private readonly turns: Turns,
    @Inject(EVENT_BUS) private readonly events: EventBus,
  ) {}

  @Post()
  @HttpCode(201)
  @Describe({ summary: 'Open a session', reply: Session, status: 201 })
  async create(
    @CurrentCaller() { did }: Caller,
    @Body({ schema: CreateSession }) { title }: CreateSession,
  ): Promise<Session> {
    const { name, did: oracleDid, entityDid } = this.oracle;
    const session = await this.sessions.create({
      owner: did,
      oracleDid,
      oracleName: name,
      oracleEntityDid: entityDid,
      title,
    });
    return sessionView(session, name);
  }

  @Get()
  @Describe({ summary: "The caller's sessions, newest first", reply: SessionPage })
  async list(
    @CurrentCaller() { did }: Caller,
    @Query({ schema: ListSessions }) { limit, offset }: ListSessions,
  ): Promise<SessionPage> {
    const { sessions, total } = await this.sessions.list({ owner: did, limit, offset });
    return { sessions: sessions.map((session) => sessionView(session, this.oracle.name)), total };
  }

  @Patch(':sessionId')
  @Describe({
    summary: 'Give a session another title',
    reply: Session,
    errors: ['session_not_found'],
  })
  async rename(
    @CurrentCaller() { did: owner }: Caller,
    @Param('sessionId') sessionId: string,
    @Body({ schema: RenameSession }) { title }: RenameSession,
  ): Promise<Session> {
    await this.sessions.rename({ owner, sessionId, title });
    const session = await this.sessions.find({ owner, sessionId });
    if (!session) throw new OracleError('session_not_found');
    return sessionView(session, this.oracle.name);
  }

  @Delete(':sessionId')
  @Describe({
    summary: 'Delete a session with its messages and runs',
    reply: SessionDeleted,
    errors: ['session_not_found'],
  })
  async remove(
    @CurrentCaller() { did }: Caller,
    @Param('sessionId') sessionId: string,
  ): Promise<SessionDeleted> {
    const key = { owner: did, sessionId };
    await this.turns.interruptAll(key);
    // An id that could not have been ours is as unknown as any other.
    const isKnown = Id.safeParse(sessionId).success && (await this.sessions.delete(key));
    if (!isKnown) throw new OracleError('session_not_found');
    this.events.publish(key, sessionDeleted(sessionId));
    return { message: 'Session deleted' };
  }
}

/** Ends the sockets that still listen. */
const sessionDeleted = (sessionId: string): ServerEvent => ({
  event: 'closing',
  payload: {
    reason: 'session_deleted',
    message: 'The session was deleted',
    sessionId,
    timestamp: new Date().toISOString(),
  },
});
