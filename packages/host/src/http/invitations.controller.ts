import { Body, Controller, HttpCode, Post } from '@nestjs/common';
import { CurrentCaller, Describe } from '@sibyl/plugin-kit';
import { InvitationRedeemed, OracleError, RedeemInvitation } from '@sibyl/protocol';
import type { Caller } from '../auth/caller.js';
import { InvitationReader } from '../auth/caller-allow-list.js';
import { CallerStore } from '../store/caller-store.js';
import { confirmWrite } from '../turns/start/idempotent-starts.js';
import { OpenToUninvited } from './ucan-guard.js';

@Controller('invitations')
export class InvitationsController {
  constructor(
    private readonly invitations: InvitationReader,
    private readonly callers: CallerStore,
  ) {}

  @Post()
  @HttpCode(200)
  @OpenToUninvited()
  @Describe({
    summary: 'Redeem an invitation, so that the caller may use this oracle',
    reply: InvitationRedeemed,
    errors: ['invalid_invitation', 'invitation_used', 'invitation_expired'],
  })
  async redeem(
    @CurrentCaller() { did }: Caller,
    @Body({ schema: RedeemInvitation }) { invitation }: RedeemInvitation,
  ): Promise<InvitationRedeemed> {
    const { ok, error } = await this.invitations.read(invitation);
    if (error?.code === 'expired') throw new OracleError('invitation_expired');
    if (error) throw new OracleError('invalid_invitation', { cause: error });
    const result = await this.callers
      .redeem(did, ok)
      .catch((error) => confirmWrite(error, () => this.findRedeemed(did)));
    if (result === 'used') throw new OracleError('invitation_used');
    return { ok: true };
  }

  private async findRedeemed(did: string): Promise<'redeemed' | undefined> {
    return (await this.callers.has(did)) ? 'redeemed' : undefined;
  }
}
