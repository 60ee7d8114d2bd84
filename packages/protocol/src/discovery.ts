import { z } from 'zod';
import { Did } from './identifiers.js';

/** Reply of `GET /.well-known/oracle.json`: what a client needs before it can sign. */
export const OracleCard = z
  .object({
    did: Did,
    name: z.string(),
    entityDid: Did.optional(),
    version: z.string(),
    page: z.string().optional(),
    gateway: z.string().optional(),
    features: z.array(z.string()),
  })
  .meta({ id: 'OracleCard' });
export type OracleCard = z.infer<typeof OracleCard>;

/** Reply of `GET /.well-known/did.json` when the oracle's DID is a did:web. */
export const DidDocument = z
  .object({
    '@context': z.array(z.string()),
    id: Did,
    verificationMethod: z.array(
      z.object({
        id: z.string(),
        type: z.string(),
        controller: Did,
        publicKeyMultibase: z.string(),
      }),
    ),
    authentication: z.array(z.string()),
    assertionMethod: z.array(z.string()),
    capabilityInvocation: z.array(z.string()),
    capabilityDelegation: z.array(z.string()),
  })
  .meta({ id: 'DidDocument' });
export type DidDocument = z.infer<typeof DidDocument>;
