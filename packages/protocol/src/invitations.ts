import { z } from 'zod';
import { UcanToken } from './identifiers.js';

/** Body of `POST /invitations`. */
export const RedeemInvitation = z
  .strictObject({
    invitation: UcanToken.describe('The text that `sibyl invite` printed, or the end of its link'),
  })
  .meta({ id: 'RedeemInvitation' });
export type RedeemInvitation = z.infer<typeof RedeemInvitation>;

/** Reply of `POST /invitations`. */
export const InvitationRedeemed = z
  .object({ ok: z.literal(true) })
  .meta({ id: 'InvitationRedeemed' });
export type InvitationRedeemed = z.infer<typeof InvitationRedeemed>;
