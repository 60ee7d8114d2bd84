import { delegate } from '@ucanto/core';
import type { Signer as UcantoSigner } from '@ucanto/interface';
import { ed25519 } from '@ucanto/principal';
import type { Signer } from '../../src/keys/signer.js';

/** The same key in ucanto's hands. */
async function toUcantoSigner(signer: Signer): Promise<UcantoSigner> {
  const key = await ed25519.derive(signer.exportSeed());
  return signer.did === signer.keyDid ? key : key.withDID(signer.did as never);
}

export interface UcantoFields {
  readonly audience: string;
  readonly capabilities: readonly object[];
  readonly expiration: number;
  readonly notBefore?: number;
  readonly nonce?: string;
  readonly facts?: readonly object[];
  readonly proofs?: readonly Awaited<ReturnType<typeof delegate>>[];
}

/** A UCAN made by stock ucanto. */
export async function delegateWithUcanto(signer: Signer, fields: UcantoFields) {
  const { audience, ...others } = fields;
  return delegate({
    ...(others as never as { capabilities: never }),
    issuer: await toUcantoSigner(signer),
    audience: { did: () => audience } as never,
  });
}

/** Its archive as a client sends it. */
export async function toArchive(delegation: Awaited<ReturnType<typeof delegate>>): Promise<string> {
  const archive = await delegation.archive();
  if (archive.error) throw archive.error;
  return Buffer.from(archive.ok).toString('base64');
}
