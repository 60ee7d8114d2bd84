import { randomUUID } from 'node:crypto';
import {
  createVerifier,
  mintDelegation,
  type Result,
  type Signer,
  type UcanFault,
  type Verifier,
} from '@sibyl/ucan';
import { INVITATION_MAX_DAYS } from './invitation-limits.js';

const DAY_SECONDS = 86_400;

const CAPABILITY = 'oracle/invite';

/** An invitation as the operator hands it out. */
export interface Invitation {
  readonly token: string;
  /** Unix seconds. */
  readonly expiration: number;
}

/** Signs an invitation: a UCAN from the oracle to itself, worth nothing anywhere else. */
export function mintInvitation(signer: Signer, days: number): Invitation {
  const expiration = Math.floor(Date.now() / 1000) + days * DAY_SECONDS;
  const { ok, error } = mintDelegation({
    signer,
    audience: signer.did,
    capabilities: [{ can: CAPABILITY, with: signer.did }],
    expiration,
    nonce: randomUUID(),
  });
  if (error) throw new Error(`Cannot sign an invitation: ${error.detail}`);
  return { token: ok.token, expiration };
}

/** Reads the invitations of one oracle. */
export class InvitationReader {
  private readonly verifier: Verifier;

  constructor(private readonly signer: Signer) {
    this.verifier = createVerifier({
      audience: signer.did,
      // The oracle knows its own key: a did:web need not be looked up.
      resolver: { resolve: async () => ({ ok: [signer.publicKey] }) },
      revocations: { isRevoked: () => false },
      maxTtlSeconds: INVITATION_MAX_DAYS * DAY_SECONDS,
      // The store claims it, in one transaction with the caller it lets in.
      singleUse: { claim: async () => true, release: async () => undefined },
    });
  }

  /** Whether a token is an invitation of this oracle; not whether it was used. */
  async read(token: string): Promise<Result<{ cid: string; expiration: number }, UcanFault>> {
    const { did } = this.signer;
    return this.verifier.verifySingleUse(token, { can: CAPABILITY, with: did, issuer: did });
  }
}
