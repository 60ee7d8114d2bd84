import type { Result } from '@sibyl/protocol';
import { createDidKeyResolver } from '../../src/did/did-key.js';
import { type Signer, signerFromSeed } from '../../src/keys/signer.js';
import { createRevocationSet } from '../../src/verify/revocations.js';
import { createVerifier, type VerifierOptions } from '../../src/verify/verifier.js';

/** The value of a result that has to be one. */
export function unwrap<T>(result: Result<T, unknown>): T {
  if (result.error !== undefined) throw new Error(JSON.stringify(result.error));
  return result.ok as T;
}

/** A signer that is the same in every run. */
export const signerNamed = (name: string): Signer =>
  unwrap(signerFromSeed(Uint8Array.from(Buffer.from(name.padEnd(32, '.')))));

export const NOW = 1_800_000_000;
export const clock = () => NOW;
export const oracle = signerNamed('oracle');
export const alice = signerNamed('alice');
export const bob = signerNamed('bob');

export const verifierWith = (options: Partial<VerifierOptions> = {}) =>
  createVerifier({
    audience: oracle.did,
    resolver: createDidKeyResolver(),
    revocations: createRevocationSet({ clock }),
    clock,
    ...options,
  });
