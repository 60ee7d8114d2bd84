export { type Ipld, type IpldMap, Link } from './codec/ipld.js';
export {
  AUTH_CAPABILITY,
  type Capability,
  type Clock,
  LIMITS as TOKEN_LIMITS,
  type MintedToken,
  systemClock,
  type Token,
  type Ucan,
} from './codec/ucan.js';
export { type CachedResolverOptions, createCachedResolver } from './did/cached-resolver.js';
export type { DidFetch, FetchLimits } from './did/did-document.js';
export { createDidIxoResolver, type DidIxoOptions } from './did/did-ixo.js';
export { createDidKeyResolver, didFromPublicKey, publicKeyFromDid } from './did/did-key.js';
export {
  createDidResolver,
  type DidError,
  type DidKeys,
  type DidMethods,
  type DidResolver,
} from './did/did-resolver.js';
export { createDidWebResolver, type DidWebOptions, didWebUrl, toDidWeb } from './did/did-web.js';
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
  createMinter,
  type DelegationRequest,
  type InvocationRequest,
  type Minter,
  type MintRequest,
  mintAuthInvocation,
  mintDelegation,
  mintInvocation,
  type ServiceRequest,
} from './mint/mint.js';
export { readToken } from './read/read-token.js';
export {
  hasExactly,
  signReceipt,
  type UnsignedReceipt,
  verifyReceipt,
} from './receipts.js';
export {
  createMemorySingleUseStore,
  createRevocationSet,
  type RevocationSet,
  type Revocations,
  type SingleUseStore,
  type SpentTokens,
} from './verify/revocations.js';
export { covers, isAuthInvocation, isCovered } from './verify/rules.js';
export type { VerificationCost } from './verify/signatures.js';
export {
  type AccessKeyExpectation,
  type Charge,
  createVerifier,
  type GrantExpectation,
  type Settle,
  type SingleUseExpectation,
  type StatementExpectation,
  type TokenPurpose,
  type Verdict,
  type VerifiedDelegation,
  type VerifiedInvocation,
  type VerifiedStatement,
  type Verifier,
  type VerifierOptions,
  type VerifyOptions,
} from './verify/verifier.js';
