import type { DidDocument } from '@sibyl/protocol';
import type { OracleIdentity } from '../auth/oracle-identity.js';

/** The DID document of an oracle that acts as a did:web. */
export function didDocumentOf({ did, signer }: OracleIdentity): DidDocument {
  const keyId = `${did}#key-1`;
  return {
    '@context': ['https://www.w3.org/ns/did/v1', 'https://w3id.org/security/multikey/v1'],
    id: did,
    verificationMethod: [
      {
        id: keyId,
        type: 'Multikey',
        controller: did,
        publicKeyMultibase: signer.keyDid.slice('did:key:'.length),
      },
    ],
    authentication: [keyId],
    assertionMethod: [keyId],
    capabilityInvocation: [keyId],
    capabilityDelegation: [keyId],
  };
}
