import { z } from 'zod';
import { Did, UcanToken } from './identifiers.js';

/** Body of `POST /delegation`; what is said beside `raw` must agree with it. */
export const StoreDelegation = z
  .strictObject({
    raw: UcanToken.describe('The delegation, user → oracle, as base64 CAR'),
    issuer: Did.optional(),
    audience: Did.optional(),
    expiration: z.int().min(0).optional().describe('Unix seconds'),
  })
  .meta({ id: 'StoreDelegation' });
export type StoreDelegation = z.infer<typeof StoreDelegation>;

/** Reply of `POST /delegation`. */
export const DelegationStored = z
  .object({ ok: z.literal(true), expiration: z.int().optional() })
  .meta({ id: 'DelegationStored' });
export type DelegationStored = z.infer<typeof DelegationStored>;

/** Reply of `GET /delegation`. */
export const DelegationStatus = z
  .object({ authorized: z.boolean(), expiration: z.int().optional() })
  .meta({ id: 'DelegationStatus' });
export type DelegationStatus = z.infer<typeof DelegationStatus>;

/** Reply of `DELETE /delegation`. */
export const DelegationRevoked = z
  .object({ ok: z.literal(true) })
  .meta({ id: 'DelegationRevoked' });
export type DelegationRevoked = z.infer<typeof DelegationRevoked>;
