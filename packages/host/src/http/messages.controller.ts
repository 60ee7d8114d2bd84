import {
  Body,
  Controller,
  Delete,
  Get,
  HttpCode,
  Param,
  Post,
  Put,
  Query,
  Req,
  Res,
} from '@nestjs/common';
import { CurrentCaller, Describe, StartsWork } from '@sibyl/plugin-kit';
import {
  AbortTurn,
  type Attachment,
  CurrentRun,
  type ErrorCode,
  Feedback,
  FeedbackDeleted,
  IdempotencyKey,
  MessageList,
  MessagePage,
  OracleError,
  PageMessages,
  Reply,
  SendMessage,
  TurnAborted,
} from '@sibyl/protocol';
import type { Response } from 'express';
import type { Caller } from '../auth/caller.js';
import { completeAttachments } from '../files/sent-files.js';
import { AnswerDetailsStore } from '../store/answer-details.js';
import { FileStore } from '../store/file-store.js';
import { MessageStore } from '../store/message-store.js';
import { RunStore } from '../store/runs/run-store.js';
import { SessionStore } from '../store/session-store.js';
import { FeedbackService } from '../turns/read/feedback.js';
import { toMessageViews } from '../turns/run/message-parts.js';
import { readTimezone, type TurnRequest } from '../turns/turn-request.js';
import { Turns } from '../turns/turns.js';
import { adoptRequestId, readIdempotencyKey } from './express.js';
import { ReplySender } from './replies.js';
import { toRunView } from './runs.controller.js';
import type { ProvenRequest } from './ucan-guard.js';

const SEND_ERRORS: readonly ErrorCode[] = [
  'session_not_found',
  'message_not_found',
  'message_withdrawn',
  'file_not_found',
  'insufficient_credit',
  'access_revoked',
  'forbidden',
  'turn_running',
  'queue_full',
  'turn_interrupted',
  'too_many_turns',
  'too_many_paused',
  'too_many_streams',
  'idempotency_conflict',
  'gate_unavailable',
  'plugin_failed',
  'model_unavailable',
  'host_stopping',
  'host_busy',
  'address_busy',
  'model_budget_exhausted',
  'disk_full',
  'turn_too_long',
  'response_schema_mismatch',
];

@Controller('messages')
export class MessagesController {
  constructor(
    private readonly turns: Turns,
    private readonly replies: ReplySender,
    private readonly sessions: SessionStore,
    private readonly files: FileStore,
  ) {}

  // Before `:sessionId`, which would otherwise match `abort`.
  @Post('abort')
  @HttpCode(200)
  @Describe({
    summary:
      'Cancel the running or paused turn of a session; `success` is false if there is none, or if the session is unknown or belongs to another user',
    reply: TurnAborted,
  })
  async abort(
    @CurrentCaller() { did: owner }: Caller,
    @Body({ schema: AbortTurn }) { sessionId }: AbortTurn,
  ): Promise<TurnAborted> {
    return { success: await this.turns.abort({ owner, sessionId }) };
  }

  @Post(':sessionId')
  @HttpCode(200)
  @StartsWork()
  @Describe({
    summary: 'Send a message; the response is JSON, or a stream if `stream` is true',
    reply: Reply,
    streams: true,
    acceptsManyValues: true,
    errors: SEND_ERRORS,
    headers: {
      'idempotency-key': {
        meaning:
          'A retry with the same key returns the first outcome instead of starting a second turn',
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
    if (body.requestId) adoptRequestId(request, response, body.requestId);
    const { did: owner } = request.caller;
    const { stream, returnAllMessages } = body;
    const attachments =
      body.attachments && (await completeAttachments(owner, body.attachments, this.files));
    await this.replies.withSlot(owner, async () => {
      const runId = await this.start({ sessionId, body, attachments, request });
      const { caller } = request;
      if (stream) return this.replies.sendStream(caller, { runId, after: 0 }, response);
      const reply = await this.replies.waitForReply(caller, runId, response);
      if (!reply) return;
      if (!returnAllMessages) return void response.json(reply);
      const session = await this.sessions.get({ owner, sessionId });
      await this.replies.sendTranscript(session, response, reply);
    });
  }

  /**
   * Starts a turn and empties the body: the HTTP request may wait for hours, and the framework keeps its arguments until then. Not
   * async, so that nothing here holds the message either.
   */
  private start(sent: Parameters<typeof toTurnRequest>[0]): Promise<string> {
    const turn = toTurnRequest(sent);
    Object.assign(sent.request, { rawBody: undefined, body: undefined });
    for (const field of Object.keys(sent.body)) Reflect.deleteProperty(sent.body, field);
    return this.turns.start(turn);
  }

  @Get(':sessionId')
  @Describe({
    summary:
      'The messages of the active path of a session, oldest first; `siblings` names those of other paths',
    reply: MessageList,
    errors: ['session_not_found'],
  })
  async list(
    @CurrentCaller() { did: owner }: Caller,
    @Param('sessionId') sessionId: string,
    @Res() response: Response,
  ): Promise<void> {
    const session = await this.sessions.get({ owner, sessionId });
    await this.replies.sendTranscript(session, response);
  }
}

/** Body and headers as a turn request without HTTP objects. */
function toTurnRequest({
  sessionId,
  body,
  attachments,
  request,
}: {
  readonly sessionId: string;
  readonly body: SendMessage;
  readonly attachments: readonly Attachment[] | undefined;
  readonly request: ProvenRequest;
}): TurnRequest {
  const { requestId, parentId, regenerate, ...sent } = body;
  const { stream: _, returnAllMessages: __, attachments: ___, ...message } = sent;
  const { timezone, warnings } = readTimezone(message.timezone, request.header('x-timezone'));
  return {
    caller: request.caller,
    sessionId,
    requestId: requestId ?? request.requestId,
    // The text of a question that is answered again is read from the store.
    message: {
      ...message,
      message: message.message ?? '',
      ...(attachments && { attachments }),
    },
    origin:
      regenerate === undefined
        ? parentId === undefined
          ? undefined
          : { parentId }
        : { questionId: regenerate },
    user: {
      timezone,
      matrixHomeServer: message.homeServer || request.header('x-matrix-homeserver'),
      matrixAccessToken: request.header('x-matrix-access-token'),
    },
    warnings,
    client: 'api',
    idempotencyKey: readIdempotencyKey(request),
  };
}

@Controller('sessions/:sessionId')
export class HistoryController {
  constructor(
    private readonly sessions: SessionStore,
    private readonly messages: MessageStore,
    private readonly details: AnswerDetailsStore,
    private readonly runs: RunStore,
  ) {}

  @Get('messages')
  @Describe({
    summary: 'Messages of the active path of a session in pages of whole turns',
    reply: MessagePage,
    errors: ['session_not_found', 'bad_request'],
  })
  async page(
    @CurrentCaller() { did: owner }: Caller,
    @Param('sessionId') sessionId: string,
    @Query({ schema: PageMessages }) query: PageMessages,
  ): Promise<MessagePage> {
    const { branch, isBranched } = await this.sessions.get({ owner, sessionId });
    const result = await this.messages.page({ owner, sessionId, branch, isBranched, ...query });
    if ('error' in result) {
      const field = query.before === undefined ? 'after' : 'before';
      throw new OracleError('validation_failed', {
        message: [`${field}: no such message`],
      });
    }
    const { messages, ...cursors } = result.ok;
    return { messages: await toMessageViews(messages, this.details), ...cursors };
  }

  @Get('run')
  @Describe({
    summary: 'The running turn of a session, otherwise the last one',
    reply: CurrentRun,
    errors: ['session_not_found'],
  })
  async run(
    @CurrentCaller() { did: owner }: Caller,
    @Param('sessionId') sessionId: string,
  ): Promise<CurrentRun> {
    await this.sessions.get({ owner, sessionId });
    const run = await this.runs.current({ owner, sessionId });
    return { run: run ? toRunView(run) : null };
  }
}

@Controller('messages/:sessionId/:messageId/feedback')
export class FeedbackController {
  constructor(private readonly feedback: FeedbackService) {}

  @Put()
  @Describe({
    summary: 'Rate an answer, perhaps with a comment; replaces earlier feedback',
    reply: Feedback,
    errors: ['message_not_found'],
  })
  async rate(
    @CurrentCaller() { did: owner }: Caller,
    @Param('sessionId') sessionId: string,
    @Param('messageId') messageId: string,
    @Body({ schema: Feedback }) feedback: Feedback,
  ): Promise<Feedback> {
    await this.feedback.set({ owner, sessionId, messageId }, feedback);
    return feedback;
  }

  @Delete()
  @Describe({
    summary: 'Withdraw the feedback on an answer',
    reply: FeedbackDeleted,
    errors: ['message_not_found'],
  })
  async withdraw(
    @CurrentCaller() { did: owner }: Caller,
    @Param('sessionId') sessionId: string,
    @Param('messageId') messageId: string,
  ): Promise<FeedbackDeleted> {
    await this.feedback.withdraw({ owner, sessionId, messageId });
    return { ok: true };
  }
}
