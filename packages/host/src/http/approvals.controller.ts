import {
  Body,
  Controller,
  Delete,
  Get,
  Header,
  HttpCode,
  Param,
  Post,
  Put,
  Query,
} from '@nestjs/common';
import { CurrentCaller, Describe, NeedsOwnKey } from '@sibyl/plugin-kit';
import {
  ActivityPage,
  AnswerQuestion,
  Approval,
  ApprovalDecided,
  ApprovalList,
  DecideApproval,
  ListActivity,
  ListApprovals,
  ListQuestions,
  PutRules,
  QuestionAnswered,
  QuestionList,
  Receipt,
  RulesDeleted,
  UserRules as UserRulesView,
} from '@sibyl/protocol';
import type { Caller } from '../auth/caller.js';
import { UserRules } from '../auth/user-rules.js';
import { Approvals } from '../turns/answer/approval-decisions.js';
import { PausedTurns } from '../turns/answer/paused-turns.js';

@Controller('approvals')
export class ApprovalsController {
  constructor(private readonly approvals: Approvals) {}

  @Get()
  @Describe({
    summary: 'Tool calls that wait for the approval of the caller, oldest first',
    reply: ApprovalList,
  })
  async list(
    @CurrentCaller() { did }: Caller,
    @Query({ schema: ListApprovals }) { sessionId }: ListApprovals,
  ): Promise<ApprovalList> {
    return { approvals: [...(await this.approvals.pending(did, sessionId))] };
  }

  @Get(':id')
  @Describe({
    summary: 'A tool call that needs, or needed, approval',
    reply: Approval,
    errors: ['approval_not_found'],
  })
  find(@CurrentCaller() { did: owner }: Caller, @Param('id') id: string): Promise<Approval> {
    return this.approvals.get({ owner, id });
  }

  @Post(':id')
  @HttpCode(200)
  @Describe({
    summary: 'Approve or deny a tool call; its turn continues',
    reply: ApprovalDecided,
    errors: [
      'approval_not_found',
      'approval_closed',
      'key_changed',
      'invalid_decision',
      'decision_unsigned',
      'invalid_delegation',
      'foreign_delegation',
      'insufficient_credit',
    ],
  })
  decide(
    @CurrentCaller() caller: Caller,
    @Param('id') id: string,
    @Body({ schema: DecideApproval }) body: DecideApproval,
  ): Promise<ApprovalDecided> {
    return this.approvals.decide(caller, id, body);
  }

  /** As text: a receipt counts byte for byte. */
  @Get(':id/receipt')
  @Header('content-type', 'application/json; charset=utf-8')
  @Describe({
    summary: 'Proof of a signed decision, to be stored byte for byte: `sibyl receipts verify`',
    reply: Receipt,
    errors: ['approval_not_found', 'receipt_not_found', 'key_changed'],
  })
  receipt(@CurrentCaller() { did: owner }: Caller, @Param('id') id: string): Promise<string> {
    return this.approvals.receipt({ owner, id });
  }
}

@Controller('questions')
export class QuestionsController {
  constructor(private readonly paused: PausedTurns) {}

  @Get()
  @Describe({
    summary: 'What the paused turn of a session asks the caller; approvals are listed apart',
    reply: QuestionList,
  })
  async list(
    @CurrentCaller() { did: owner }: Caller,
    @Query({ schema: ListQuestions }) { sessionId }: ListQuestions,
  ): Promise<QuestionList> {
    const open = await this.paused.pending({ owner, sessionId });
    const questions = open.filter(({ isApproval }) => !isApproval);
    return {
      questions: questions.map(({ id, kind, runId, data, schema, expiresAt }) => ({
        ...{ id, kind, sessionId, runId, data, schema },
        expiresAt: new Date(expiresAt).toISOString(),
      })),
    };
  }

  @Post(':id')
  @HttpCode(200)
  @Describe({
    summary: 'Answer a question; its turn continues',
    reply: QuestionAnswered,
    errors: ['interrupt_not_found', 'interrupt_closed', 'decision_unsigned'],
  })
  async answer(
    @CurrentCaller() { did: owner }: Caller,
    @Param('id') id: string,
    @Body({ schema: AnswerQuestion }) { value }: AnswerQuestion,
  ): Promise<QuestionAnswered> {
    const { runId, pending } = await this.paused.answer({ owner, interruptId: id, value });
    return { id, runId, ...(pending && { pending: [...pending] }) };
  }
}

@Controller('activity')
export class ActivityController {
  constructor(private readonly approvals: Approvals) {}

  @Get()
  @Describe({
    summary: 'What happened on behalf of the caller: tool calls, approvals, rules; newest first',
    reply: ActivityPage,
  })
  list(
    @CurrentCaller() { did }: Caller,
    @Query({ schema: ListActivity }) query: ListActivity,
  ): Promise<ActivityPage> {
    return this.approvals.activity(did, query);
  }
}

@Controller('rules')
export class RulesController {
  constructor(private readonly rules: UserRules) {}

  @Get()
  @Describe({ summary: 'The rules of the caller', reply: UserRulesView })
  find(@CurrentCaller() { did }: Caller): Promise<UserRulesView> {
    return this.rules.get(did);
  }

  @Put()
  @NeedsOwnKey()
  @Describe({
    summary: 'Replace the rules of the caller: which tools run, ask first, or are blocked',
    reply: UserRulesView,
    errors: ['invalid_rules', 'rules_replaced', 'disk_full'],
  })
  replace(
    @CurrentCaller() caller: Caller,
    @Body({ schema: PutRules }) { token }: PutRules,
  ): Promise<UserRulesView> {
    return this.rules.put(caller, token);
  }

  @Delete()
  @NeedsOwnKey()
  @Describe({
    summary: 'Delete the rules of the caller',
    reply: RulesDeleted,
    errors: ['forbidden'],
  })
  async remove(@CurrentCaller() caller: Caller): Promise<RulesDeleted> {
    await this.rules.delete(caller);
    return { ok: true };
  }
}
