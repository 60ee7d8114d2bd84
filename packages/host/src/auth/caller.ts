import type { IncomingHttpHeaders } from 'node:http';
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

/** What a request or a handshake brings to prove who is calling. */
export interface Credentials {
  readonly invocation?: string | undefined;
  readonly delegation?: string | undefined;
}

/** The bearer counts only beside `X-Auth-Type: ucan` (contract A3). */
export function readCredentials(headers: IncomingHttpHeaders): Credentials {
  const delegation = readHeader(headers['x-ucan-delegation']);
  const invocation = isUcan(headers['x-auth-type']) ? readBearer(headers.authorization) : undefined;
  // Credentials of another scheme are for createUser else, such as a proxy; without a delegation they are all there is.
  const isForeign = invocation === '' && !isBearer(headers.authorization);
  return { invocation: isForeign && delegation ? undefined : invocation, delegation };
}

/** A header that came twice arrives as a list; a bad bearer must not go unread because of that. */
const isUcan = (header: string | string[] | undefined) =>
  String(header)
    .split(',')
    .some((type) => type.trim().toLowerCase() === 'ucan');

/** Another scheme beside `X-Auth-Type: ucan` is a bad invocation, not a missing one. */
function readBearer(header: string | undefined): string | undefined {
  if (!header?.trim()) return undefined;
  return /^bearer +(.*)$/i.exec(header.trim())?.[1] ?? '';
}

/** In a header that several parties wrote to, too: a bad invocation must not go unread. */
const isBearer = (header = '') => /\bbearer\b/i.test(header);

function readHeader(header: string | string[] | undefined): string | undefined {
  return typeof header === 'string' && header.trim() ? header.trim() : undefined;
}
