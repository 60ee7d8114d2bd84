import { Body, Controller, Delete, Get, HttpCode, Param, Patch, Post, Query } from '@nestjs/common';
import { CurrentCaller, Describe } from '@sibyl/plugin-kit';
import {
  CreateSession,
  ListSessions,
  RenameSession,
  Session,
  SessionDeleted,
  SessionPage,
} from '@sibyl/protocol';
import type { Caller } from '../auth/caller.js';
import { OracleIdentity } from '../auth/oracle-identity.js';
import { SessionStore, type Session as StoredSession } from '../store/session-store.js';
import { SessionsService } from '../turns/sessions.js';

@Controller('sessions')
export class SessionsController {
  constructor(
    private readonly service: SessionsService,
    private readonly sessions: SessionStore,
    private readonly oracle: OracleIdentity,
  ) {}

  @Post()
  @HttpCode(201)
  @Describe({
    summary: 'Create a session',
    reply: Session,
    status: 201,
    errors: ['too_many_sessions'],
  })
  async create(
    @CurrentCaller() { did: owner }: Caller,
    @Body({ schema: CreateSession }) { title }: CreateSession,
  ): Promise<Session> {
    return toSessionView(await this.service.open({ owner, title }), this.oracle.name);
  }

  @Get()
  @Describe({ summary: "The caller's sessions, newest first", reply: SessionPage })
  async list(
    @CurrentCaller() { did }: Caller,
    @Query({ schema: ListSessions }) { limit, offset }: ListSessions,
  ): Promise<SessionPage> {
    const { sessions, total } = await this.sessions.list({ owner: did, limit, offset });
    return { sessions: sessions.map((session) => toSessionView(session, this.oracle.name)), total };
  }

  @Patch(':sessionId')
  @Describe({
    summary: 'Rename a session',
    reply: Session,
    errors: ['session_not_found'],
  })
  async rename(
    @CurrentCaller() { did: owner }: Caller,
    @Param('sessionId') sessionId: string,
    @Body({ schema: RenameSession }) { title }: RenameSession,
  ): Promise<Session> {
    await this.sessions.rename({ owner, sessionId, title });
    return toSessionView(await this.sessions.get({ owner, sessionId }), this.oracle.name);
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
    await this.service.remove({ owner: did, sessionId });
    return { message: 'Session deleted' };
  }
}

function toSessionView(session: StoredSession, oracleName: string): Session {
  return {
    sessionId: session.id,
    title: session.title,
    createdAt: new Date(session.createdAt).toISOString(),
    lastUpdatedAt: new Date(session.lastUpdatedAt).toISOString(),
    oracleName: session.oracleName ?? oracleName,
    oracleDid: session.oracleDid,
    ...(session.oracleEntityDid && { oracleEntityDid: session.oracleEntityDid }),
    roomId: session.roomId,
  };
}
