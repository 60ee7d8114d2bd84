import { Controller, Get, Param, Query, Req, Res } from '@nestjs/common';
import { Describe } from '@sibyl/plugin-kit';
import { JoinRun, LastEventId, OracleError } from '@sibyl/protocol';
import type { Response } from 'express';
import type { ProvenRequest } from '../auth/oracle-request.js';
import { ReplySender } from './reply-sender.js';

@Controller('runs')
export class RunsController {
  constructor(private readonly replies: ReplySender) {}

  @Get(':runId')
  @Describe({
    summary: 'The rest of a stream, replayed then live, up to `done`',
    streams: true,
    errors: ['run_not_found', 'too_many_streams'],
    headers: {
      'last-event-id': {
        meaning: 'Number of the last frame seen; `after` takes precedence',
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
    const position = after ?? positionOf(headers['last-event-id']);
    const { did: owner } = caller;
    await this.replies.withPlace(owner, () =>
      this.replies.stream({ owner, runId }, position, response),
    );
  }
}

function positionOf(lastEventId: string | string[] | undefined): number {
  const { success, data } = LastEventId.safeParse(lastEventId ?? '');
  if (success) return Number(data);
  throw new OracleError('validation_failed', { message: ['last-event-id: must be a frame id'] });
}
