import { Body, Controller, Delete, Get, HttpCode, Param, Post } from '@nestjs/common';
import { CurrentCaller, Describe } from '@sibyl/plugin-kit';
import { AccessKeyInfo, AccessKeyList, AccessKeyRevoked, RegisterAccessKey } from '@sibyl/protocol';
import { AccessKeys } from '../auth/access-keys.js';
import type { Caller } from '../auth/caller.js';
import { OpenToUninvited } from './ucan-guard.js';

/** Listing and revoking is open to all authenticated callers, so that removed callers can still revoke their keys. */
@Controller('keys')
export class KeysController {
  constructor(private readonly keys: AccessKeys) {}

  @Post()
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
