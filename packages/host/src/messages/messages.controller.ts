import { Body, Controller, Get, HttpCode, Param, Post, Req, Res } from '@nestjs/common';
import { CurrentCaller, Describe } from '@sibyl/plugin-kit';
import {
  AbortTurn,
  type ErrorCode,
  IdempotencyKey,
  MessageList,
  Reply,
  SendMessage,
  TurnAborted,
} from '@sibyl/protocol';
import type { Response } from 'express';
import type { Caller } from '../auth/caller.js';
import type { ProvenRequest } from '../auth/oracle-request.js';
import { SessionStore } from '../store/sessions/session-store.js';
import { adoptRequestId } from '../transport/request-id.js';
import { Turns } from '../turn/turns.js';
import { ReplySender } from './reply-sender.js';
import { type Sent, takeTurnRequest } from './turn-request-of.js';

const SEND_ERRORS: readonly ErrorCode[] = [
  'session_not_found',
  'insufficient_credit',
  'turn_running',
  'queue_full',
  'turn_interrupted',
  'too_many_turns',
  'too_many_streams',
  'idempotency_conflict',
  'gate_unavailable',
  'model_unavailable',
  'host_stopping',
  'host_busy',
  'model_budget_exhausted',
  'turn_too_long',
];

@Controller('messages')
export class MessagesController {
  constructor(
    private readonly turns: Turns,
    private readonly replies: ReplySender,
    private readonly sessions: SessionStore,
  ) {}

  // Before `:sessionId`, which would otherwise take `abort` for a session.
  @Post('abort')
  @HttpCode(200)
  @Describe({
    summary:
      'End the turn running in a session; `success` is false if none is, and for unknown and foreign sessions too',
    reply: TurnAborted,
  })
  abort(
    @CurrentCaller() { did: owner }: Caller,
    @Body({ schema: AbortTurn }) { sessionId }: AbortTurn,
  ): TurnAborted {
    return { success: this.turns.abort({ owner, sessionId }) };
  }

  @Post(':sessionId')
  @HttpCode(200)
  @Describe({
    summary: 'Send a message; the answer is JSON, or a stream when `stream` is true',
    reply: Reply,
    streams: true,
    errors: SEND_ERRORS,
    headers: {
      'idempotency-key': {
        meaning: 'Makes a retry find the first outcome instead of a second turn',
        schema: IdempotencyKey,
      },
      'x-timezone':
        "The user's IANA time zone; `timezone` in the body takes precedence. An unknown one is ignored with a warning",
    },
  })
  async send(
    @Param('sessionId') sessionId: string,
    @Body({ schema: SendMessage }) body: SendMessage,
    @Req() request: ProvenRequest,
    @Res() response: Response,
  ): Promise<void> {
    adoptRequestId(request, response, body.requestId);
    const { did: owner } = request.caller;
    const { stream, returnAllMessages } = body;
    await this.replies.withPlace(owner, async () => {
      const key = { owner, runId: await this.start({ sessionId, body, request }) };
      if (stream) return this.replies.stream(key, 0, response);
      const reply = await this.replies.whole(key, response);
      if (!reply) return;
      if (!returnAllMessages) return void response.json(reply);
      await this.replies.transcript({ owner, sessionId }, response, reply);
    });
  }

  /** Not async: while the answer is awaited, nothing here may still hold the message. */
  private start(sent: Sent): Promise<string> {
    return this.turns.start(takeTurnRequest(sent));
  }

  @Get(':sessionId')
  @Describe({
    summary: 'All messages of a session, oldest first',
    reply: MessageList,
    errors: ['session_not_found'],
  })
  async list(
    @CurrentCaller() { did: owner }: Caller,
    @Param('sessionId') sessionId: string,
    @Res() response: Response,
  ): Promise<void> {
    await this.sessions.get({ owner, sessionId });
    await this.replies.transcript({ owner, sessionId }, response);
  }
}
