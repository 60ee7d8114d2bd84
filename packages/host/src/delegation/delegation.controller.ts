import { Body, Controller, Delete, Get, HttpCode, Post } from '@nestjs/common';
import { CurrentCaller, Describe } from '@sibyl/plugin-kit';
import {
  DelegationRevoked,
  DelegationStatus,
  DelegationStored,
  StoreDelegation,
} from '@sibyl/protocol';
import type { Caller } from '../auth/caller.js';
import { DelegationService } from './delegation.service.js';

@Controller('delegation')
export class DelegationController {
  constructor(private readonly delegations: DelegationService) {}

  @Post()
  @HttpCode(200)
  @Describe({
    summary: 'Let the oracle act for the caller at other services',
    reply: DelegationStored,
    errors: ['invalid_delegation', 'foreign_delegation'],
  })
  async store(
    @CurrentCaller() caller: Caller,
    @Body({ schema: StoreDelegation }) body: StoreDelegation,
  ): Promise<DelegationStored> {
    return { ok: true, expiration: await this.delegations.store(caller, body) };
  }

  @Get()
  @Describe({
    summary: 'Whether the oracle may act for the caller, and until when',
    reply: DelegationStatus,
  })
  status(@CurrentCaller() caller: Caller): Promise<DelegationStatus> {
    return this.delegations.status(caller);
  }

  @Delete()
  @Describe({
    summary: 'Take back the delegation and all that was minted from it',
    reply: DelegationRevoked,
  })
  async revoke(@CurrentCaller() caller: Caller): Promise<DelegationRevoked> {
    await this.delegations.revoke(caller);
    return { ok: true };
  }
}
