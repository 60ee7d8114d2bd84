import { Body, Controller, HttpCode, Post } from '@nestjs/common';
import { CurrentCaller, Describe } from '@sibyl/plugin-kit';
import { InvitationRedeemed, OracleError, RedeemInvitation } from '@sibyl/protocol';
import type { Caller } from '../auth/caller.js';
import { InvitationReader } from '../auth/caller-allow-list.js';
import { CallerStore } from '../store/caller-store.js';
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
    if ((await this.callers.redeem(did, ok)) === 'used') throw new OracleError('invitation_used');
    return { ok: true };
  }
}
