export type { Ipld, IpldMap } from '../codec/ipld.js';
export type { Capability } from '../codec/ucan-block.js';
export type { UcanFault, UcanFaultCode } from '../fault.js';
export type { MintedToken } from '../mint/minted-token.js';
export {
  mintAuthInvocation,
  mintDelegation,
  type WebAuthRequest,
  type WebDelegationRequest,
} from './mint.js';
export {
  createWebSigner,
  generateWebKeyPair,
  type WebKeyPair,
  type WebSigner,
} from './web-signer.js';
