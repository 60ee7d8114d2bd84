import type { Result } from '@sibyl/protocol';
import { type Clock, systemClock } from '../clock.js';
import { AUTH_CAPABILITY } from '../codec/ucan-block.js';
import type { UcanFault } from '../fault.js';
import type { Signer } from '../keys/signer.js';
import { issue } from './issue.js';
import type { MintedToken } from './minted-token.js';
import { nonceFact } from './nonce-fact.js';

export interface AuthInvocationRequest {
  readonly signer: Signer;
  /** The oracle's DID. */
  readonly audience: string;
  readonly ttlSeconds?: number;
  readonly clock?: Clock;
}

/** Mints the bearer that says who is calling (contract B8). */
export function mintAuthInvocation(request: AuthInvocationRequest): Result<MintedToken, UcanFault> {
  const { signer, audience, ttlSeconds = 300, clock = systemClock } = request;
  const payload = {
    issuer: signer.did,
    audience,
    capabilities: [AUTH_CAPABILITY],
    expiration: clock() + ttlSeconds,
    facts: [nonceFact()],
    proofs: [],
  };
  return issue(payload, signer, []);
}
