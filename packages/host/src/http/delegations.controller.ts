import { Body, Controller, Delete, Get, HttpCode, Param, Post, Req } from '@nestjs/common';
import { CurrentCaller, Describe, NeedsOwnKey } from '@sibyl/plugin-kit';
import {
  AccessKeyInfo,
  AccessKeyList,
  AccessKeyRevoked,
  DelegationList,
  DelegationRevoked,
  DelegationStatus,
  DelegationStored,
  DelegationsRevoked,
  OracleError,
  RegisterAccessKey,
  type StoppedWork,
  StoreDelegation,
} from '@sibyl/protocol';
import type { Request } from 'express';
import { AccessKeys } from '../auth/access-keys.js';
import type { Caller } from '../auth/caller.js';
import { DelegationService } from '../auth/delegations.js';
import { OpenToUninvited } from './ucan-guard.js';

/** Listing and revoking is open to all authenticated callers, so that removed callers can still revoke their delegations. */
@Controller()
export class DelegationController {
  constructor(private readonly delegations: DelegationService) {}

  @Post('delegation')
  @HttpCode(200)
  @Describe({
    summary: 'Let the oracle act for the caller at other services',
    reply: DelegationStored,
    errors: ['invalid_delegation', 'foreign_delegation', 'disk_full'],
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
  @OpenToUninvited()
  @Describe({
    summary: 'Revoke the stored delegation, those it replaced and the one in this request',
    reply: DelegationRevoked,
    errors: ['disk_full'],
  })
  async revoke(@CurrentCaller() caller: Caller): Promise<DelegationRevoked> {
    await this.delegations.revoke(caller);
    return { ok: true };
  }

  @Get('delegations')
  @OpenToUninvited()
  @Describe({
    summary: "The caller's delegations that this host keeps a record of, at most 100, newest first",
    reply: DelegationList,
  })
  list(@CurrentCaller() caller: Caller): Promise<DelegationList> {
    return this.delegations.list(caller);
  }

  @Delete('delegations')
  @NeedsOwnKey()
  @OpenToUninvited()
  @Describe({
    summary: 'Revoke every delegation that GET /delegations lists, and the one in this request',
    reply: DelegationsRevoked,
    errors: ['disk_full'],
  })
  async revokeAll(
    @CurrentCaller() caller: Caller,
    @Req() { path }: Request,
  ): Promise<DelegationsRevoked> {
    // Who sends an empty CID wants to revoke one.
    if (path.endsWith('/')) throw new OracleError('delegation_not_found');
    const { revoked, stopped } = await this.delegations.revokeAll(caller);
    return { ok: true, revoked, ...describeStopped(stopped) };
  }

  @Delete('delegations/:cid')
  @NeedsOwnKey()
  @OpenToUninvited()
  @Describe({
    summary: 'Revoke one of the delegations that GET /delegations lists',
    reply: DelegationRevoked,
    errors: ['delegation_not_found'],
  })
  async revokeOne(
    @CurrentCaller() caller: Caller,
    @Param('cid') cid: string,
  ): Promise<DelegationRevoked> {
    return { ok: true, ...describeStopped(await this.delegations.revokeOne(caller, cid)) };
  }
}

const describeStopped = (stopped: StoppedWork[]) => (stopped.length > 0 ? { stopped } : {});

/** Listing and revoking is open to all authenticated callers, so that removed callers can still revoke their keys. */
@Controller('keys')
export class KeysController {
  constructor(private readonly keys: AccessKeys) {}

  @Post()
  @NeedsOwnKey()
  @HttpCode(200)
  @Describe({
    summary: 'Register an access key for a program that cannot sign',
    reply: AccessKeyInfo,
    errors: ['foreign_delegation', 'too_many_access_keys', 'disk_full'],
  })
  register(
    @CurrentCaller() caller: Caller,
    @Body({ schema: RegisterAccessKey }) body: RegisterAccessKey,
  ): Promise<AccessKeyInfo> {
    return this.keys.register(caller, body);
  }

  @Get()
  @OpenToUninvited()
  @Describe({ summary: "The caller's access keys, newest first", reply: AccessKeyList })
  async list(@CurrentCaller() caller: Caller): Promise<AccessKeyList> {
    return { keys: await this.keys.list(caller) };
  }

  @Delete(':id')
  @NeedsOwnKey()
  @OpenToUninvited()
  @Describe({
    summary: 'Revoke an access key, and abort the turns that were started with it',
    reply: AccessKeyRevoked,
    errors: ['access_key_not_found'],
  })
  async revoke(
    @CurrentCaller() caller: Caller,
    @Param('id') id: string,
  ): Promise<AccessKeyRevoked> {
    await this.keys.revoke(caller, id);
    return { ok: true };
  }
}
