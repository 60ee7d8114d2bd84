export type { Ipld, IpldMap } from './codec/ipld.js';
export { Link } from './codec/ipld.js';
export type { MintedToken } from './codec/ucan.js';
export { AUTH_CAPABILITY, type Clock, systemClock } from './codec/ucan.js';
export { type CachedResolverOptions, createCachedResolver } from './did/cached-resolver.js';
export { createDidIxoResolver, type DidIxoOptions } from './did/did-ixo.js';
export { createDidKeyResolver, didFromPublicKey, publicKeyFromDid } from './did/did-key.js';
export type { DidError, DidKeys, DidResolver } from './did/did-resolver.js';
export { createDidResolver, type DidMethods } from './did/did-resolver.js';
export { createDidWebResolver, type DidWebOptions, didWebUrl, toDidWeb } from './did/did-web.js';
export type { DidFetch, FetchLimits } from './did/fetch-json.js';
export type { UcanError, UcanErrorCode } from './errors.js';
export {
  exportPrivateKey,
  generateSigner,
  type Signer,
  signerFromMnemonic,
  signerFromPrivateKey,
  signerFromSeed,
} from './keys/signer.js';
export {
  type AuthInvocationRequest,
  buildServiceRequest,
  type DelegationRequest,
  type InvocationRequest,
  mintAuthInvocation,
  mintDelegation,
  mintInvocation,
  type ServiceRequest,
} from './mint/mint.js';
export { createMinter, type Minter, type MintRequest } from './mint/minter.js';
export { readToken } from './read/read-token.js';
export type { Capability, Token, Ucan } from './read/token.js';
export {
  hasExactly,
  signReceipt,
  type UnsignedReceipt,
  verifyReceipt,
} from './receipts.js';
export { covers, isCovered } from './verify/coverage.js';
export { createRevocationSet, type RevocationSet, type Revocations } from './verify/revocations.js';
export type { VerificationCost } from './verify/signatures.js';
export {
  createMemorySingleUseStore,
  type SingleUseStore,
  type SpentTokens,
} from './verify/single-use.js';
export type {
  Verdict,
  VerifiedDelegation,
  VerifiedInvocation,
  VerifiedStatement,
} from './verify/verdict.js';
export {
  type AccessKeyExpectation,
  type Charge,
  createVerifier,
  type GrantExpectation,
  type Settle,
  type SingleUseExpectation,
  type StatementExpectation,
  type TokenPurpose,
  type Verifier,
  type VerifierOptions,
  type VerifyOptions,
} from './verify/verifier.js';
