import type { Charge, VerifiedDelegation } from '@sibyl/ucan';

/** Who is calling: the DID proven by the UCAN, never one a header claims. */
export interface Caller {
  readonly did: string;
  /** Unix seconds; the proof does not count after it. Infinity for a delegation that never expires. */
  readonly expiration: number;
  /** The delegation that served as the login; absent after a login by invocation. */
  readonly login?: VerifiedDelegation;
  /** The delegation that came along, as sent: not verified yet. */
  readonly presentedDelegation: string | undefined;
  /** Charges the caller and its address for verifying further tokens. */
  readonly charge?: Charge | undefined;
}
