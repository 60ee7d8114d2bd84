import type { Charge } from '@sibyl/ucan';

/** Who is calling: the DID proven by the UCAN, never one a header claims. */
export interface Caller {
  readonly did: string;
  /** Unix seconds; the proof does not count after it. */
  readonly expiration: number;
  /** The delegation that came along, as sent: not verified yet. */
  readonly presentedDelegation: string | undefined;
  /** Charges the caller and its address for verifying further tokens. */
  readonly charge?: Charge | undefined;
}
