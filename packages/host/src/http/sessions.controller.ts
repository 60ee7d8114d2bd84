import {
  Body,
  Controller,
  Delete,
  Get,
  HttpCode,
  Param,
  Patch,
  Post,
  Query,
  Req,
  Res,
} from '@nestjs/common';
import { CurrentCaller, Describe, StartsWork } from '@sibyl/plugin-kit';
import {
  ChangeSession,
  CreateSession,
  ForkSession,
  IdempotencyKey,
  ListSessions,
  OracleError,
  SearchMessages,
  SearchResults,
  Session,
  SessionDeleted,
  SessionPage,
} from '@sibyl/protocol';
import type { Response } from 'express';
import { readCredentials } from '../auth/authenticator.js';
import type { Caller } from '../auth/caller.js';
import { type AccessDeps, watchAccess } from '../auth/connection-access.js';
import { OracleIdentity } from '../auth/oracle-identity.js';
import type { SessionChanges } from '../bus/session-changes.js';
import { RunStore } from '../store/runs/run-store.js';
import { type FoundMessage, SearchStore } from '../store/search/search-store.js';
import { SessionStore, type Session as StoredSession } from '../store/session-store.js';
import { SessionsService } from '../turns/start/sessions.js';
import { readIdempotencyKey } from './express.js';
import type { ReplySender } from './replies.js';
import type { ProvenRequest } from './ucan-guard.js';

@Controller('sessions')
export class SessionsController {
  constructor(
    private readonly service: SessionsService,
    private readonly sessions: SessionStore,
    private readonly runs: RunStore,
    private readonly oracle: OracleIdentity,
  ) {}

  @Post()
  @HttpCode(201)
  @StartsWork()
  @Describe({
    summary: 'Create a session',
    reply: Session,
    status: 201,
    errors: ['too_many_sessions', 'host_busy', 'disk_full', 'idempotency_conflict'],
    headers: {
      'idempotency-key': {
        meaning: 'A retry with the same key returns the session of the first request',
        schema: IdempotencyKey,
      },
    },
  })
  async create(
    @Req() request: ProvenRequest,
    @Body({ schema: CreateSession }) body: CreateSession,
  ): Promise<Session> {
    const { did: owner } = request.caller;
    const idempotencyKey = readIdempotencyKey(request);
    const title = body.title ?? undefined;
    const session = await this.service.open({ owner, title, idempotencyKey });
    return toSessionView(session, this.oracle.name);
  }

  @Get()
  @Describe({ summary: "The caller's sessions, newest first", reply: SessionPage })
  async list(
    @CurrentCaller() { did }: Caller,
    @Query({ schema: ListSessions }) { limit, offset }: ListSessions,
  ): Promise<SessionPage> {
    const [{ sessions, total }, open] = await Promise.all([
      this.sessions.list({ owner: did, limit, offset }),
      this.runs.openForOwner(did),
    ]);
    const paused = new Set(open.flatMap((run) => (run.status === 'paused' ? run.sessionId : [])));
    const asking = paused.size > 0 ? await this.runs.askingSessions(did) : paused;
    const active = new Set(open.map(({ sessionId }) => sessionId));
    return {
      sessions: sessions.map((session) => ({
        ...toSessionView(session, this.oracle.name),
        ...(active.has(session.sessionId) && {
          turnStatus: paused.has(session.sessionId) ? 'paused' : 'running',
        }),
        ...(paused.has(session.sessionId) && { needsUser: asking.has(session.sessionId) }),
      })),
      total,
    };
  }

  @Patch(':sessionId')
  @Describe({
    summary: 'Rename a session, or switch to another path of its messages',
    reply: Session,
    errors: ['session_not_found', 'message_not_found'],
  })
  async change(
    @Req() { caller, requestId }: ProvenRequest,
    @Param('sessionId') sessionId: string,
    @Body({ schema: ChangeSession }) { title, activeMessageId }: ChangeSession,
  ): Promise<Session> {
    const key = { owner: caller.did, sessionId };
    if (activeMessageId !== undefined) await this.service.activate(key, activeMessageId, requestId);
    if (title !== undefined) await this.service.rename(key, title);
    return toSessionView(await this.sessions.get(key), this.oracle.name);
  }

  @Post(':sessionId/fork')
  @HttpCode(201)
  @StartsWork()
  @Describe({
    summary: 'Copy the messages up to one into a new session',
    reply: Session,
    status: 201,
    errors: [
      'session_not_found',
      'message_not_found',
      'too_many_sessions',
      'host_busy',
      'upload_limit_reached',
      'disk_full',
    ],
  })
  async fork(
    @CurrentCaller() { did: owner }: Caller,
    @Param('sessionId') sessionId: string,
    @Body({ schema: ForkSession }) wanted: ForkSession,
  ): Promise<Session> {
    const session = await this.service.fork({ owner, sessionId }, wanted);
    return toSessionView(session, this.oracle.name);
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
    sessionId: session.sessionId,
    title: session.title,
    createdAt: new Date(session.createdAt).toISOString(),
    lastUpdatedAt: new Date(session.lastUpdatedAt).toISOString(),
    oracleName: session.oracleName ?? oracleName,
    oracleDid: session.oracleDid,
    ...(session.oracleEntityDid && { oracleEntityDid: session.oracleEntityDid }),
    roomId: session.roomId,
    ...(session.activeMessageId && { activeMessageId: session.activeMessageId }),
  };
}

/** Sends changes of the caller's sessions to clients without a socket, as long as the caller has access. */
export class SessionEvents {
  constructor(
    private readonly deps: AccessDeps & {
      readonly changes: SessionChanges;
      readonly replies: ReplySender;
    },
  ) {}

  async send({ caller, headers }: ProvenRequest, response: Response): Promise<void> {
    const { changes, replies } = this.deps;
    changes.assertOpen();
    const ended = new AbortController();
    const credentials = readCredentials(headers);
    const stop = watchAccess({ caller, credentials }, this.deps, () => ended.abort());
    try {
      await replies.withSlot(caller.did, () =>
        replies.sendEvents('sessions_changed', response, (gone) =>
          changes.read(caller.did, AbortSignal.any([gone, ended.signal])),
        ),
      );
    } finally {
      stop();
    }
  }
}

@Controller('sessions/events')
export class SessionEventsController {
  constructor(private readonly events: SessionEvents) {}

  @Get()
  @Describe({
    summary:
      "Changes of the caller's sessions as they happen, as `sessions_changed` events; read the list again after each connection",
    mediaTypes: ['text/event-stream'],
    errors: ['too_many_streams', 'host_stopping'],
  })
  stream(@Req() request: ProvenRequest, @Res() response: Response): Promise<void> {
    return this.events.send(request, response);
  }
}

@Controller('search')
export class SearchController {
  constructor(private readonly search: SearchStore) {}

  @Get()
  @Describe({
    summary: "Search the caller's messages and the titles of their sessions",
    reply: SearchResults,
    errors: ['host_busy'],
  })
  async find(
    @CurrentCaller() { did: owner }: Caller,
    @Query({ schema: SearchMessages }) { q, limit, offset }: SearchMessages,
  ): Promise<SearchResults> {
    const results = await this.search.findMessages({ owner, text: q, limit, offset });
    if (!results)
      throw new OracleError('validation_failed', { message: ['q: must contain a word'] });
    return { results: results.found.map(toResultView), hasMore: results.hasMore };
  }
}

function toResultView({ message, snippet, ...found }: FoundMessage): SearchResults['results'][0] {
  return {
    ...found,
    ...(message && {
      messageId: message.id,
      type: message.type,
      createdAt: new Date(message.createdAt).toISOString(),
    }),
    snippet: snippet.text,
    highlights: snippet.highlights.map(([start, end]) => [start, end]),
  };
}
