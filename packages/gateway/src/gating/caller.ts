import type { IncomingHttpHeaders } from 'node:http';
import type { Charge } from '@sibyl/ucan';

/** Who asks, as far as the deployment wants to know. */
export interface Caller {
  /** What counts towards a limit and stands in the log. */
  readonly name: string;
  /** The address that counts towards limits too, where a name costs nothing; unset for known callers. */
  readonly address: string | undefined;
  /** Requests a minute, where the caller has a limit of its own. */
  readonly perMinute: number | undefined;
  /** When the right to ask ends, in milliseconds of the clock, if it does. */
  readonly expiresAt: number | undefined;
  /** Whether the route of this template is open to the caller. */
  mayAsk(template: string): boolean;
}

/** What a request says about who sent it. */
export interface Credentials {
  readonly headers: IncomingHttpHeaders;
  /** The sender's address as limits count it: an IPv6 address by its /64. */
  readonly address: string;
}

/** Decides who may ask; throws a `QueryFault` for those who may not. */
export interface Gate {
  /** `charge` is asked before expensive work; credentials that are cheap to check do not need it. */
  admit(credentials: Credentials, charge: Charge): Caller | Promise<Caller>;
}
