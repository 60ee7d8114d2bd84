import { Controller, Get, Param, Query } from '@nestjs/common';
import { CurrentCaller, Describe } from '@sibyl/plugin-kit';
import { CurrentRun, MessagePage, OracleError, PageMessages } from '@sibyl/protocol';
import type { Caller } from '../auth/caller.js';
import { MessageStore } from '../store/messages/message-store.js';
import { RunStore } from '../store/runs/run-store.js';
import { SessionStore } from '../store/sessions/session-store.js';
import { messageView } from '../turn/message-view.js';
import { runView } from './run-view.js';

@Controller('sessions/:sessionId')
export class HistoryController {
  constructor(
    private readonly sessions: SessionStore,
    private readonly messages: MessageStore,
    private readonly runs: RunStore,
  ) {}

  @Get('messages')
  @Describe({
    summary: 'Messages of a session in pages, counted in turns',
    reply: MessagePage,
    errors: ['session_not_found'],
  })
  async page(
    @CurrentCaller() { did: owner }: Caller,
    @Param('sessionId') sessionId: string,
    @Query({ schema: PageMessages }) query: PageMessages,
  ): Promise<MessagePage> {
    await this.sessions.get({ owner, sessionId });
    const result = await this.messages.page({ owner, sessionId, ...query });
    if ('error' in result) {
      const field = query.before === undefined ? 'after' : 'before';
      throw new OracleError('validation_failed', { message: [`${field}: no such message`] });
    }
    const { messages, ...cursors } = result.ok;
    return { messages: messages.map(messageView), ...cursors };
  }

  @Get('run')
  @Describe({
    summary: 'The turn at work in a session, else the last one',
    reply: CurrentRun,
    errors: ['session_not_found'],
  })
  async run(
    @CurrentCaller() { did: owner }: Caller,
    @Param('sessionId') sessionId: string,
  ): Promise<CurrentRun> {
    await this.sessions.get({ owner, sessionId });
    const run = await this.runs.current({ owner, sessionId });
    return { run: run ? runView(run) : null };
  }
}
