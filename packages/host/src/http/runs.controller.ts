import { Controller, Delete, Get, Param, Query, Req, Res } from '@nestjs/common';
import { CurrentCaller, Describe } from '@sibyl/plugin-kit';
import {
  JoinRun,
  LastEventId,
  MessageWithdrawn,
  OracleError,
  type Run as RunView,
} from '@sibyl/protocol';
import type { Response } from 'express';
import type { Caller } from '../auth/caller.js';
import { hasStopped, type Run } from '../store/runs/run.js';
import { Turns } from '../turns/turns.js';
import { ReplySender } from './replies.js';
import type { ProvenRequest } from './ucan-guard.js';

@Controller('runs')
export class RunsController {
  constructor(
    private readonly replies: ReplySender,
    private readonly turns: Turns,
  ) {}

  @Get(':runId')
  @Describe({
    summary: 'Frames of a run: past frames first, then live ones, until `done`',
    streams: true,
    errors: ['run_not_found', 'too_many_streams'],
    headers: {
      'last-event-id': {
        meaning: 'Id of the last frame received; `after` takes precedence',
        schema: LastEventId,
      },
    },
  })
  async join(
    @Param('runId') runId: string,
    @Query({ schema: JoinRun }) { after }: JoinRun,
    @Req() { caller, headers }: ProvenRequest,
    @Res() response: Response,
  ): Promise<void> {
    const position = { runId, after: after ?? parseLastEventId(headers['last-event-id']) };
    await this.replies.withSlot(caller.did, () =>
      this.replies.sendStream(caller, position, response),
    );
  }

  @Delete(':runId')
  @Describe({
    summary: 'Withdraw a message that waits behind another turn: it is deleted, and never answered',
    reply: MessageWithdrawn,
    errors: ['run_not_found', 'not_queued'],
  })
  async withdraw(
    @CurrentCaller() { did: owner }: Caller,
    @Param('runId') runId: string,
  ): Promise<MessageWithdrawn> {
    await this.turns.withdraw({ owner, runId });
    return { message: 'Message withdrawn' };
  }
}

function parseLastEventId(lastEventId: string | string[] | undefined): number {
  const { success, data } = LastEventId.safeParse(lastEventId ?? '');
  if (success) return Number(data);
  throw new OracleError('validation_failed', { message: ['last-event-id: must be a frame id'] });
}

export function toRunView(run: Run): RunView {
  return {
    runId: run.runId,
    sessionId: run.sessionId,
    requestId: run.requestId,
    status: run.status,
    startedAt: new Date(run.startedAt ?? run.createdAt).toISOString(),
    updatedAt: new Date(run.updatedAt).toISOString(),
    lastSeq: run.lastSeq,
    ...(hasStopped(run) && run.messageId && { messageId: run.messageId }),
    ...(run.questionId !== undefined && { questionId: run.questionId }),
  };
}
