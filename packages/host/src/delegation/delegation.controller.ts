import { Body, Controller, Delete, Get, HttpCode, Post } from '@nestjs/common';
import { ApiOperation, ApiTags } from '@nestjs/swagger';
import {
  DelegationRevoked,
  DelegationStatus,
  DelegationStored,
  StoreDelegation,
} from '@sibyl/protocol';
import type { Caller } from '../auth/caller.js';
import { CurrentCaller } from '../auth/current-caller.js';
import { ApiReply } from '../transport/api-reply.js';
import { DelegationService } from './delegation.service.js';

@ApiTags('delegation')
@Controller('delegation')
export class DelegationController {
  constructor(private readonly delegations: DelegationService) {}

  @Post()
  @HttpCode(200)
  @ApiOperation({ summary: 'Let the oracle act for the caller at other services' })
  @ApiReply(DelegationStored, { errors: ['invalid_delegation', 'foreign_delegation'] })
  async store(
    @CurrentCaller() caller: Caller,
    @Body({ schema: StoreDelegation }) body: StoreDelegation,
  ): Promise<DelegationStored> {
    return { ok: true, expiration: await this.delegations.store(caller, body) };
  }

  @Get()
  @ApiOperation({ summary: 'Whether the oracle may act for the caller, and until when' })
  @ApiReply(DelegationStatus)
  status(@CurrentCaller() caller: Caller): Promise<DelegationStatus> {
    return this.delegations.status(caller);
  }

  @Delete()
  @ApiOperation({ summary: 'Take back the delegation and all that was minted from it' })
  @ApiReply(DelegationRevoked)
  async revoke(@CurrentCaller() caller: Caller): Promise<DelegationRevoked> {
    await this.delegations.revoke(caller);
    return { ok: true };
  }
}
