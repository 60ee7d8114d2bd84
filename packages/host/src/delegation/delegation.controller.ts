import { Body, Controller, Delete, Get, HttpCode, Param, Post } from '@nestjs/common';
import { CurrentCaller, Describe } from '@sibyl/plugin-kit';
import {
  DelegationList,
  DelegationRevoked,
  DelegationStatus,
  DelegationStored,
  DelegationsRevoked,
  StoreDelegation,
} from '@sibyl/protocol';
import type { Caller } from '../auth/caller.js';
import { DelegationService } from './delegation.service.js';

@Controller()
export class DelegationController {
  constructor(private readonly delegations: DelegationService) {}

  @Post('delegation')
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
    const expiration = await this.delegations.store(caller, body);
    return { ok: true, ...(expiration !== undefined && { expiration }) };
  }

  @Get('delegation')
  @Describe({
    summary: 'Whether the oracle may act for the caller, and until when',
    reply: DelegationStatus,
  })
  status(@CurrentCaller() caller: Caller): Promise<DelegationStatus> {
    return this.delegations.status(caller);
  }

  @Delete('delegation')
  @Describe({
    summary: 'Revoke the stored delegation, those it replaced and the one that was presented',
    reply: DelegationRevoked,
  })
  async revoke(@CurrentCaller() caller: Caller): Promise<DelegationRevoked> {
    await this.delegations.revoke(caller);
    return { ok: true };
  }

  @Get('delegations')
  @Describe({
    summary: "The caller's delegations that this host knows of, newest first",
    reply: DelegationList,
  })
  list(@CurrentCaller() caller: Caller): Promise<DelegationList> {
    return this.delegations.list(caller);
  }

  @Delete('delegations')
  @Describe({ summary: "Revoke all of the caller's delegations", reply: DelegationsRevoked })
  async revokeAll(@CurrentCaller() caller: Caller): Promise<DelegationsRevoked> {
    return { ok: true, revoked: await this.delegations.revokeAll(caller) };
  }

  @Delete('delegations/:cid')
  @Describe({
    summary: "Revoke one of the caller's delegations",
    reply: DelegationRevoked,
    errors: ['delegation_not_found'],
  })
  async revokeOne(
    @CurrentCaller() caller: Caller,
    @Param('cid') cid: string,
  ): Promise<DelegationRevoked> {
    await this.delegations.revokeOne(caller, cid);
    return { ok: true };
  }
}
