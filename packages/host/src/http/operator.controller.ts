import {
  Body,
  type CanActivate,
  Controller,
  type ExecutionContext,
  Get,
  HttpCode,
  Injectable,
  Param,
  Post,
  Put,
  Query,
  UseGuards,
} from '@nestjs/common';
import { CurrentCaller, Describe, NeedsOwnKey } from '@sibyl/plugin-kit';
import {
  AuditLog,
  BlockUser,
  ListAudit,
  ListSpeed,
  ListTurns,
  ListUsers,
  OperatorDays,
  OperatorFailures,
  OperatorHosts,
  OperatorJobs,
  OperatorOverview,
  OperatorPlugins,
  OperatorSpeed,
  OperatorTrace,
  OperatorTurns,
  OperatorUsers,
  OracleError,
  Sharing,
  UnblockUser,
  UserBlocked,
} from '@sibyl/protocol';
import type { Caller } from '../auth/caller.js';
import { Operators } from '../auth/operators.js';
import { OperatorService } from '../operators/operator-service.js';
import { ForOperators, type OracleRequest } from './ucan-guard.js';

const DAY_MS = 24 * 60 * 60 * 1000;

/** Rejects everyone who is not an operator before anything of the request is looked at. */
@Injectable()
export class OperatorGuard implements CanActivate {
  constructor(private readonly operators: Operators) {}

  async canActivate(context: ExecutionContext): Promise<boolean> {
    const { caller } = context.switchToHttp().getRequest<OracleRequest>();
    if (!caller) throw new OracleError('forbidden');
    await this.operators.assertOperator(caller);
    return true;
  }
}

/** What operators see and do; see docs/operations.md. */
@Controller('operator')
@ForOperators()
@UseGuards(OperatorGuard)
export class OperatorController {
  constructor(private readonly service: OperatorService) {}

  @Get('overview')
  @Describe({
    summary: 'Health, turns, speed, failures and usage of all hosts together',
    reply: OperatorOverview,
    errors: ['forbidden'],
  })
  overview(): Promise<OperatorOverview> {
    return this.service.views.overview();
  }

  @Get('hosts')
  @Describe({
    summary: 'Every host of the database, with what works and what does not',
    reply: OperatorHosts,
    errors: ['forbidden'],
  })
  async hosts(): Promise<OperatorHosts> {
    return { hosts: [...(await this.service.hosts.list())] };
  }

  @Get('turns')
  @Describe({
    summary: 'Turns of all users: open ones first, then the latest; never their texts',
    reply: OperatorTurns,
    errors: ['forbidden'],
  })
  async turns(@Query({ schema: ListTurns }) query: ListTurns): Promise<OperatorTurns> {
    return { turns: [...(await this.service.views.turns(query))] };
  }

  @Get('turns/:runId')
  @Describe({
    summary:
      'What a turn did and how long it took: hooks, model calls, tools. Arguments of tools only if the user shares them; seeing them is recorded in the audit log',
    reply: OperatorTrace,
    errors: ['forbidden', 'run_not_found'],
  })
  trace(@CurrentCaller() { did }: Caller, @Param('runId') runId: string): Promise<OperatorTrace> {
    return this.service.readTrace(did, runId);
  }

  @Get('users')
  @Describe({
    summary: 'Turns, tokens and cost by user, and who reached a limit or is blocked',
    reply: OperatorUsers,
    errors: ['forbidden'],
  })
  users(@Query({ schema: ListUsers }) { days, ...query }: ListUsers): Promise<OperatorUsers> {
    return this.service.views.users(Date.now() - days * DAY_MS, query);
  }

  @Get('failures')
  @Describe({
    summary: 'Why turns, calls of models and requests failed, by cause',
    reply: OperatorFailures,
    errors: ['forbidden'],
  })
  failures(@Query({ schema: OperatorDays }) { days }: OperatorDays): Promise<OperatorFailures> {
    return this.service.views.failures(Date.now() - days * DAY_MS);
  }

  @Get('speed')
  @Describe({
    summary: 'Time to the first text of answers over time: median and the slowest 5 %',
    reply: OperatorSpeed,
    errors: ['forbidden'],
  })
  speed(@Query({ schema: ListSpeed }) { hours }: ListSpeed): Promise<OperatorSpeed> {
    return this.service.views.speed(hours);
  }

  @Get('plugins')
  @Describe({
    summary: 'Every plugin, whether it is loaded, and what it is missing',
    reply: OperatorPlugins,
    errors: ['forbidden'],
  })
  plugins(): OperatorPlugins {
    return this.service.listPlugins();
  }

  @Get('jobs')
  @Describe({
    summary: 'Background work of the host and its plugins: waiting, running and failed',
    reply: OperatorJobs,
    errors: ['forbidden'],
  })
  async jobs(): Promise<OperatorJobs> {
    return { jobs: await this.service.listJobs() };
  }

  @Get('audit')
  @Describe({
    summary: 'What operators did, newest first',
    reply: AuditLog,
    errors: ['forbidden'],
  })
  async audit(@Query({ schema: ListAudit }) { limit, before }: ListAudit): Promise<AuditLog> {
    return { actions: await this.service.listActions(limit, before) };
  }

  @Post('block')
  @HttpCode(200)
  @Describe({
    summary: 'Block a user: open sockets and running turns end at once, on all hosts',
    reply: UserBlocked,
    errors: ['forbidden'],
  })
  block(
    @CurrentCaller() { did }: Caller,
    @Body({ schema: BlockUser }) { user, reason }: BlockUser,
  ): Promise<UserBlocked> {
    return this.service.block(did, user, reason);
  }

  @Post('unblock')
  @HttpCode(200)
  @Describe({
    summary: 'Admit a blocked user again',
    reply: UserBlocked,
    errors: ['forbidden'],
  })
  unblock(
    @CurrentCaller() { did }: Caller,
    @Body({ schema: UnblockUser }) { user }: UnblockUser,
  ): Promise<UserBlocked> {
    return this.service.unblock(did, user);
  }
}

/** What the caller lets operators see. */
@Controller('me/sharing')
export class SharingController {
  constructor(private readonly service: OperatorService) {}

  @Get()
  @Describe({
    summary: 'What the caller lets operators see besides figures; by default nothing',
    reply: Sharing,
  })
  read(@CurrentCaller() { did }: Caller): Promise<Sharing> {
    return this.service.readSharing(did);
  }

  @Put()
  @NeedsOwnKey()
  @Describe({
    summary: 'Let operators see the arguments of tool calls, for example to find an error, or not',
    reply: Sharing,
  })
  write(
    @CurrentCaller() { did }: Caller,
    @Body({ schema: Sharing }) sharing: Sharing,
  ): Promise<Sharing> {
    return this.service.setSharing(did, sharing);
  }
}
