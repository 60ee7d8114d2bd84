import { z } from 'zod';
import { Cid, Id, Timestamp, UcanToken, UnixSeconds } from './identifiers.js';

/** The only capability of an access key. */
export const ACCESS_KEY_CAPABILITY = { can: 'oracle/chat', with: 'ixo:oracle' } as const;

/** The longest that an access key may be valid. */
export const ACCESS_KEY_MAX_DAYS = 366;

/** The caveats (`nb`) of an access key: each narrows what the key permits. */
export const AccessKeyCaveats = z
  .strictObject({
    session: Id.optional().describe('The only session that the key can use'),
    model: z.string().min(1).max(200).optional().describe('The only model that answers'),
    turnsPerDay: z.int().min(1).max(1_000_000).optional().describe('Turns per day (UTC)'),
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
