import type { Result } from '@sibyl/protocol';

/** Why a DID gave no keys; only `did_unavailable` and `did_busy` are worth retrying. */
export interface DidFault {
  readonly code:
    | 'did_unsupported'
    | 'did_invalid'
    | 'did_not_found'
    | 'did_deactivated'
    | 'did_unavailable'
    | 'did_busy';
  readonly detail: string;
}

/** The raw Ed25519 public keys (32 bytes each) that may sign for a DID. */
export type DidKeys = readonly Uint8Array[];

/** Finds the signing keys of a DID. */
export interface DidResolver {
  resolve(did: string): Promise<Result<DidKeys, DidFault>>;
  /** Whether `resolve` would use the network for this DID now; assumed for all but did:key if absent. */
  needsLookup?(did: string): boolean;
}
