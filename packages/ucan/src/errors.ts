import type { DidError } from './did/did-resolver.js';

/** Why a token was refused, from the cheapest check to the most expensive. */
export type UcanErrorCode = ReadErrorCode | RuleErrorCode | ProofErrorCode | MintErrorCode;

/** The bytes are not one well-formed UCAN archive. */
type ReadErrorCode =
  | 'token_not_string'
  | 'token_too_long'
  | 'base64_invalid'
  | 'car_malformed'
  | 'car_version'
  | 'car_roots'
  | 'car_too_many_blocks'
  | 'car_duplicate_block'
  | 'cid_unsupported'
  | 'cid_mismatch'
  | 'root_malformed'
  | 'ucan_malformed'
  | 'ucan_version'
  | 'ucan_not_canonical'
  | 'principal_unsupported'
  | 'signature_malformed'
  | 'too_many_ucans'
  | 'too_deep'
  | 'too_many_proofs'
  | 'too_many_capabilities'
  | 'too_many_values'
  | 'proof_missing'
  | 'block_unreachable';

/** The archive is well-formed, but not allowed here and now. */
type RuleErrorCode =
  | 'revoked'
  | 'revocations_unavailable'
  | 'wrong_audience'
  | 'wrong_issuer'
  | 'expiry_missing'
  | 'expired'
  | 'expiry_too_far'
  | 'not_yet_valid'
  | 'wrong_capability'
  | 'wrong_purpose'
  | 'single_use'
  | 'has_caveats'
  | 'has_proofs'
  | 'chain_broken'
  | 'time_bounds'
  | 'escalation'
  | 'replayed'
  | 'replay_store_unavailable'
  | 'cost_refused'
  | 'verifier_busy';

/** The issuer could not be proven; only `did_unavailable` and `did_busy` are worth retrying. */
type ProofErrorCode = DidError['code'] | 'weak_key' | 'signature_invalid';

/** Nothing was signed. */
type MintErrorCode = 'key_invalid' | 'not_covered' | 'too_short_lived' | 'mint_invalid';

/** A refusal; `detail` is for the log and never holds the token. */
export interface UcanError {
  readonly code: UcanErrorCode;
  readonly detail: string;
  readonly cid?: string;
  readonly issuer?: string;
}

export function refuse(code: UcanErrorCode, detail: string): { readonly error: UcanError } {
  return { error: { code, detail } };
}
