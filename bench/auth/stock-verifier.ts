import { Delegation } from '@ucanto/core';
import { ed25519 } from '@ucanto/principal';
import { capability, claim, URI } from '@ucanto/validator';

const Oracle = capability({ can: '*', with: URI.match({ protocol: 'ixo:' }) });

/** Verifies an auth token the way ucanto's own documentation does. */
export async function createStockVerifier() {
  const authority = await ed25519.generate();
  return async (token: string): Promise<string> => {
    const { ok: delegation, error } = await Delegation.extract(Buffer.from(token, 'base64'));
    if (error) throw error;
    const access = await claim(Oracle as never, [delegation], {
      authority,
      principal: ed25519.Verifier,
      canIssue: () => true,
      validateAuthorization: () => ({ ok: {} }),
    } as never);
    if (access.error) throw access.error;
    return delegation.issuer.did();
  };
}
