import { vi } from 'vitest';
import { createDidKeyResolver } from '../../src/did/did-key.js';
import type { DidResolver } from '../../src/did/did-resolver.js';
import { alice, bob, unwrap } from './verifier.js';

/** alice under a DID that has to be looked up. */
export const ixoAlice = unwrap(alice.withDid('did:ixo:alice'));

/** Counts its calls; did:ixo:alice has two keys. */
export function countingResolver(resolve?: DidResolver['resolve']) {
  const didKey = createDidKeyResolver();
  return {
    resolve: vi.fn<DidResolver['resolve']>(async (did) =>
      did.startsWith('did:key:')
        ? didKey.resolve(did)
        : (resolve?.(did) ?? { ok: [bob.publicKey, alice.publicKey] }),
    ),
  };
}
