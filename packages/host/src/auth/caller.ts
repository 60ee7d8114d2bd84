import type { AccessKeyCaveats } from '@sibyl/protocol';
import type { Holder } from '@sibyl/server-kit';
import type { Charge, VerifiedDelegation } from '@sibyl/ucan';

/** The authenticated caller: the DID that the UCAN proves, never one from a header. */
export interface Caller {
  readonly did: string;
  /** Unix seconds; Infinity for a delegation that never expires. */
  readonly expiration: number;
  /** The delegation that served as the login; absent after a login by invocation. */
  readonly login?: VerifiedDelegation;
  /** The UCANs that this login depends on; kept with turns that wait. */
  readonly loginCids?: readonly string[] | undefined;
  /** The access key that served as the login: it permits no more than chatting. */
  readonly accessKey?: AccessKeyLogin | undefined;
  /** The delegation in the request, not verified yet. */
  readonly presentedDelegation: string | undefined;
  /** When it arrived, in Unix seconds. */
  readonly presentedAt?: number | undefined;
  /** Charges the caller and its address for verifying further tokens. */
  readonly charge?: Charge | undefined;
  /** What the limits of places count; absent for users that a plugin has authenticated, or who are not there. */
  readonly holder?: Holder | undefined;
}

/** A caller that a request has proven. */
export interface ProvenCaller extends Caller {
  readonly holder: Holder;
}

/** An access key and what it is restricted to. */
export interface AccessKeyLogin {
  readonly cid: string;
  readonly caveats: AccessKeyCaveats;
  /** Whom the request is for, if the key is for several people or for one that it names. */
  readonly subUser?: string | undefined;
}

/** A valid, registered key and what it is restricted to. */
export type VerifiedAccessKey = VerifiedDelegation & Pick<AccessKeyLogin, 'caveats'>;
