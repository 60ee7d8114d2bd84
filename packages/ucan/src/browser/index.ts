export type { Ipld, IpldMap } from '../codec/ipld.js';
export type { Capability, MintedToken } from '../codec/ucan.js';
export { publicKeyFromDid } from '../did/did-key.js';
export type { UcanError, UcanErrorCode } from '../errors.js';
export {
  createWebSigner,
  generateWebKeyPair,
  mintAuthInvocation,
  mintDelegation,
  type WebAuthRequest,
  type WebDelegationRequest,
  type WebKeyPair,
  type WebSigner,
} from './mint.js';
