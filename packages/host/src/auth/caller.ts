import type { IncomingHttpHeaders } from 'node:http';
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

/** The credentials in a request or handshake. */
export interface Credentials {
  readonly invocation?: string | undefined;
  readonly delegation?: string | undefined;
  /** Only on routes that accept access keys. */
  readonly accessKey?: string | undefined;
}

/** The bearer token counts only with `X-Auth-Type: ucan`. */
export function readCredentials(headers: IncomingHttpHeaders): Credentials {
  const delegation = readHeader(headers['x-ucan-delegation']);
  const invocation = isUcan(headers['x-auth-type']) ? readBearer(headers.authorization) : undefined;
  // Credentials of another scheme are no invocation; they may be for a proxy. An empty one is invalid beside a delegation.
  const isMissing = !isBearer(headers.authorization) || (!delegation && isEmpty(headers));
  return { invocation: isMissing ? undefined : invocation, delegation };
}

/** An access key counts only without `X-Auth-Type`. */
export function readAccessKey(headers: IncomingHttpHeaders): string | undefined {
  if (headers['x-auth-type'] !== undefined) return undefined;
  return readHeader(headers['x-api-key']) ?? (readBearer(headers.authorization) || undefined);
}

/** The value of the caveat `user` with which each request names its user. */
export const ANY_USER = '*';

/** What a request says about the use of an access key; it can only narrow it. */
export function narrowToRequest(
  { caveats, ...key }: AccessKeyLogin,
  headers: IncomingHttpHeaders,
): AccessKeyLogin {
  const isTask = readHeader(headers['x-background-task']) !== undefined;
  const restricted = isTask ? { ...caveats, tools: [] } : caveats;
  if (caveats.user !== ANY_USER) return { ...key, caveats: restricted, subUser: caveats.user };
  // Open WebUI sends the second one.
  const named = readHeader(headers['x-sub-user']) ?? readHeader(headers['x-openwebui-user-id']);
  return { ...key, caveats: restricted, subUser: named };
}

/** A repeated header arrives as a list; an invalid bearer token must not be ignored because of that. */
const isUcan = (header: string | string[] | undefined) =>
  String(header)
    .split(',')
    .some((type) => type.trim().toLowerCase() === 'ucan');

/** Empty if it cannot be read. */
function readBearer(header: string | undefined): string | undefined {
  if (!header?.trim()) return undefined;
  return /^bearer +(.*)$/i.exec(header.trim())?.[1] ?? '';
}

const isEmpty = ({ authorization = '' }: IncomingHttpHeaders) =>
  authorization.trim().toLowerCase() === 'bearer';

/** Also finds a bearer token among several values, so that an invalid one is not ignored. */
const isBearer = (header = '') => /\bbearer\b/i.test(header);

function readHeader(header: string | string[] | undefined): string | undefined {
  return typeof header === 'string' && header.trim() ? header.trim() : undefined;
}
