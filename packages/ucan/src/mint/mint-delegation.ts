import type { Result } from '@sibyl/protocol';
import type { IpldMap } from '../codec/ipld.js';
import type { UcanFault } from '../fault.js';
import type { Capability } from '../gate/token.js';
import type { Signer } from '../keys/signer.js';
import { checkProofs } from '../verify/delegation-rules.js';
import { issue } from './issue.js';
import type { MintedToken } from './minted-token.js';
import { readProofs } from './read-proofs.js';

export interface DelegationRequest {
  readonly signer: Signer;
  readonly audience: string;
  readonly capabilities: readonly Capability[];
  /** Unix seconds; null for a delegation that never expires. */
  readonly expiration: number | null;
  readonly notBefore?: number;
  readonly nonce?: string;
  readonly facts?: readonly IpldMap[];
  /** Tokens whose rights are passed on. */
  readonly proofs?: readonly string[];
}

/** Mints a delegation; one that its own proofs do not bear out is refused here already. */
export function mintDelegation(request: DelegationRequest): Result<MintedToken, UcanFault> {
  const { signer, facts = [], proofs: tokens = [], ...fields } = request;
  const proofs = readProofs(tokens);
  if (proofs.error) return proofs;
  const payload = { ...fields, issuer: signer.did, facts, proofs: proofs.ok.links };
  const fault = checkProofs(payload, proofs.ok.roots);
  return fault ? { error: fault } : issue(payload, signer, proofs.ok.blocks);
}
