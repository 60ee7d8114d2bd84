import { z } from 'zod';
import { Cid, Did, Timestamp, UcanToken, UnixSeconds } from './identifiers.js';

/** Body of `POST /delegation`; what is said beside `raw` must agree with it. */
export const StoreDelegation = z
  .strictObject({
    raw: UcanToken.describe('The delegation, user → oracle, as base64 CAR'),
    issuer: Did.optional(),
    audience: Did.optional(),
    expiration: UnixSeconds.optional(),
  })
  .meta({ id: 'StoreDelegation' });
export type StoreDelegation = z.infer<typeof StoreDelegation>;

/** Reply of `POST /delegation`. */
export const DelegationStored = z
  .object({ ok: z.literal(true), expiration: UnixSeconds.optional() })
  .meta({ id: 'DelegationStored' });
export type DelegationStored = z.infer<typeof DelegationStored>;

/** Reply of `GET /delegation`. */
export const DelegationStatus = z
  .object({ authorized: z.boolean(), expiration: UnixSeconds.optional() })
  .meta({ id: 'DelegationStatus' });
export type DelegationStatus = z.infer<typeof DelegationStatus>;

/** Reply of `DELETE /delegation` and `DELETE /delegations/:cid`. */
export const DelegationRevoked = z
  .object({ ok: z.literal(true) })
  .meta({ id: 'DelegationRevoked' });
export type DelegationRevoked = z.infer<typeof DelegationRevoked>;

/** A delegation of the caller that this host knows. */
export const DelegationInfo = z
  .object({
    cid: Cid,
    audience: Did,
    capabilities: z.array(z.object({ can: z.string(), with: z.string() })),
    expiration: UnixSeconds.optional().describe('Unix seconds; absent if it never expires'),
    createdAt: Timestamp.describe('When this host first saw it'),
    purpose: z
      .enum(['services', 'access-key', 'schedule', 'rules'])
      .describe('What the oracle may use it for'),
    isCurrent: z.boolean().describe('Whether the oracle acts with it when a request carries none'),
    lastUsedAt: Timestamp.optional().describe(
      'Precise to a minute if a plugin used it, otherwise to an hour',
    ),
    lastUsedBy: z
      .string()
      .optional()
      .describe('The plugin that last signed something or started a turn with it'),
  })
  .meta({ id: 'DelegationInfo' });
export type DelegationInfo = z.infer<typeof DelegationInfo>;

/** Reply of `GET /delegations`, newest first. */
export const DelegationList = z
  .object({ delegations: z.array(DelegationInfo) })
  .meta({ id: 'DelegationList' });
export type DelegationList = z.infer<typeof DelegationList>;

/** Reply of `DELETE /delegations`. */
export const DelegationsRevoked = z
  .object({ ok: z.literal(true), revoked: z.int().min(0) })
  .meta({ id: 'DelegationsRevoked' });
export type DelegationsRevoked = z.infer<typeof DelegationsRevoked>;

/** The longest that an invitation may be valid. */
export const INVITATION_MAX_DAYS = 365;

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
