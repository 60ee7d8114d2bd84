export { type Clock, systemClock } from './clock.js';
export type { Ipld, IpldMap } from './codec/ipld.js';
export { Link } from './codec/link.js';
export { AUTH_CAPABILITY } from './codec/ucan-block.js';
export { type CachedResolverOptions, createCachedResolver } from './did/cached-resolver.js';
export { createDidResolver, type DidMethods } from './did/create-did-resolver.js';
export { createDidIxoResolver, type DidIxoOptions } from './did/did-ixo.js';
export { createDidKeyResolver, didFromPublicKey, publicKeyFromDid } from './did/did-key.js';
export type { DidFault, DidKeys, DidResolver } from './did/did-resolver.js';
export { createDidWebResolver, type DidWebOptions, didWebUrl } from './did/did-web.js';
export { didWebOf } from './did/did-web-of.js';
export type { DidFetch, FetchLimits } from './did/document/fetch-json.js';
export type { UcanFault, UcanFaultCode } from './fault.js';
export { readToken } from './gate/read-token.js';
export type { Capability, Token, Ucan } from './gate/token.js';
export { exportPrivateKey, signerFromPrivateKey } from './keys/private-key-text.js';
export { generateSigner, type Signer, signerFromMnemonic, signerFromSeed } from './keys/signer.js';
export { type AuthInvocationRequest, mintAuthInvocation } from './mint/mint-auth-invocation.js';
export { type DelegationRequest, mintDelegation } from './mint/mint-delegation.js';
export { type InvocationRequest, mintInvocation } from './mint/mint-invocation.js';
export type { MintedToken } from './mint/minted-token.js';
export { createMinter, type Minter, type MintRequest } from './mint/minter.js';
export { type ServiceRequest, serviceRequest } from './mint/service-request.js';
export { covers, isCovered } from './verify/coverage.js';
export { createRevocationSet, type RevocationSet, type Revocations } from './verify/revocations.js';
export {
  createMemorySingleUseStore,
  type SingleUseStore,
  type SpentTokens,
} from './verify/single-use.js';
export type { Verdict, VerifiedDelegation, VerifiedInvocation } from './verify/verdict.js';
export {
  type Charge,
  createVerifier,
  type Settle,
  type SingleUseExpectation,
  type TokenPurpose,
  type Verifier,
  type VerifierOptions,
  type VerifyOptions,
} from './verify/verifier.js';
export type { VerificationCost } from './verify/verify-signatures.js';
