import { z } from 'zod';
import { Cid, Did, Id, Timestamp, UcanToken, UnixSeconds } from './identifiers.js';

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

/** What does not run any more because a delegation was revoked. */
export const StoppedWork = z
  .object({ kind: z.literal('schedule'), id: Id, name: z.string() })
  .meta({ id: 'StoppedWork' });
export type StoppedWork = z.infer<typeof StoppedWork>;

const Stopped = z.array(StoppedWork).optional().describe('What it ran; absent if nothing');

/** Reply of `DELETE /delegation` and `DELETE /delegations/:cid`. */
export const DelegationRevoked = z
  .object({ ok: z.literal(true), stopped: Stopped })
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
  .object({ ok: z.literal(true), revoked: z.int().min(0), stopped: Stopped })
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

/** The only capability of an access key. */
export const ACCESS_KEY_CAPABILITY = { can: 'oracle/chat', with: 'ixo:oracle' } as const;

/** The longest that an access key may be valid. */
export const ACCESS_KEY_MAX_DAYS = 366;

/** A person for whom the program with an access key sends messages, as the program names them. */
export const SubUser = z
  .string()
  .min(1)
  .max(200)
  .regex(/^[^\p{Cc}]+$/u, { error: 'must have no control characters' });

/** The caveats (`nb`) of an access key: each narrows what the key permits. */
export const AccessKeyCaveats = z
  .strictObject({
    session: Id.optional().describe('The only session that the key can use'),
    model: z.string().min(1).max(200).optional().describe('The only model that answers'),
    turnsPerDay: z.int().min(1).max(1_000_000).optional().describe('Turns per day (UTC)'),
    tools: z
      .array(z.string().min(1).max(64))
      .max(100)
      .optional()
      .describe('The only tools of the oracle that turns use; none of them, and no memory: `[]`'),
    user: SubUser.optional().describe(
      'The person that turns are for, whose conversations, memory and preferences are apart; `*`: each request names one',
    ),
  })
  .meta({ id: 'AccessKeyCaveats' });
export type AccessKeyCaveats = z.infer<typeof AccessKeyCaveats>;

/** Body of `POST /keys`. */
export const RegisterAccessKey = z
  .strictObject({
    token: UcanToken.describe(
      'The key: a delegation, user → oracle, with the capability `oracle/chat`, as base64 CAR',
    ),
    name: z.string().trim().min(1).max(80).describe('For the list of keys'),
  })
  .meta({ id: 'RegisterAccessKey' });
export type RegisterAccessKey = z.infer<typeof RegisterAccessKey>;

/** A registered access key; the key itself is not stored. */
export const AccessKeyInfo = z
  .object({
    id: Cid,
    name: z.string(),
    caveats: AccessKeyCaveats,
    expiration: UnixSeconds,
    createdAt: Timestamp,
    lastUsedAt: Timestamp.optional().describe('Precise to a minute'),
    turnsToday: z.int().min(0).optional().describe('Present if the key has `turnsPerDay`'),
  })
  .meta({ id: 'AccessKeyInfo' });
export type AccessKeyInfo = z.infer<typeof AccessKeyInfo>;

/** Reply of `GET /keys`, newest first. */
export const AccessKeyList = z
  .object({ keys: z.array(AccessKeyInfo) })
  .meta({ id: 'AccessKeyList' });
export type AccessKeyList = z.infer<typeof AccessKeyList>;

/** Reply of `DELETE /keys/:id`. */
export const AccessKeyRevoked = z.object({ ok: z.literal(true) }).meta({ id: 'AccessKeyRevoked' });
export type AccessKeyRevoked = z.infer<typeof AccessKeyRevoked>;
