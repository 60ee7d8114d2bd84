import { Body, Controller, Delete, Get, HttpCode, Param, Post, Query } from '@nestjs/common';
import { ApiOperation, ApiTags } from '@nestjs/swagger';
import {
  CreateSession,
  Id,
  ListSessions,
  OracleError,
  Session,
  SessionDeleted,
  SessionPage,
} from '@sibyl/protocol';
import type { Caller } from '../auth/caller.js';
import { CurrentCaller } from '../auth/current-caller.js';
import { OracleIdentity } from '../auth/oracle-identity.js';
import { SessionStore } from '../store/sessions/session-store.js';
import { ApiReply } from '../transport/api-reply.js';
import { Turns } from '../turn/turns.js';
import { sessionView } from './session-view.js';

@ApiTags('sessions')
@Controller('sessions')
export class SessionsController {
  constructor(
    private readonly sessions: SessionStore,
    private readonly oracle: OracleIdentity,
    private readonly turns: Turns,
  ) {}

  @Post()
  @HttpCode(201)
  @ApiOperation({ summary: 'Open a session' })
  @ApiReply(Session, { status: 201 })
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
  @ApiOperation({ summary: "The caller's sessions, newest first" })
  @ApiReply(SessionPage)
  async list(
    @CurrentCaller() { did }: Caller,
    @Query({ schema: ListSessions }) { limit, offset }: ListSessions,
  ): Promise<SessionPage> {
    const { sessions, total } = await this.sessions.list({ owner: did, limit, offset });
    return { sessions: sessions.map((session) => sessionView(session, this.oracle.name)), total };
  }

  @Delete(':sessionId')
  @ApiOperation({ summary: 'Delete a session with its messages and runs' })
  @ApiReply(SessionDeleted, { errors: ['session_not_found'] })
  async remove(
    @CurrentCaller() { did }: Caller,
    @Param('sessionId') sessionId: string,
  ): Promise<SessionDeleted> {
    const key = { owner: did, sessionId };
    await this.turns.interruptAll(key);
    // An id that could not have been ours is as unknown as any other.
    const isKnown = Id.safeParse(sessionId).success && (await this.sessions.delete(key));
    if (!isKnown) throw new OracleError('session_not_found');
    return { message: 'Session deleted' };
  }
}
