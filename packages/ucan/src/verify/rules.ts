import { equalBytes } from '../codec/bytes.js';
import { type Ipld, isIpldMap, Link } from '../codec/ipld.js';
import {
  AUTH_CAPABILITY,
  type Capability,
  type Token,
  type Ucan,
  type UcanPayload,
} from '../codec/ucan.js';
import { refuse, type UcanError } from '../errors.js';
import { named } from '../read/read-token.js';

interface InvocationRules {
  readonly audiences: ReadonlySet<string>;
  readonly capability: Capability;
  /** The only issuer that is accepted; unset: any. */
  readonly issuer?: string;
  readonly now: number;
  /** Unset: it may never expire. */
  readonly maxTtlSeconds?: number | undefined;
  /** Whether the capability may have caveats. */
  readonly allowsCaveats?: boolean | undefined;
}

/** Every check of an invocation that needs neither the network nor a signature. */
export function checkInvocation({ root }: Token, rules: InvocationRules): UcanError | undefined {
  const { audiences, issuer, now, maxTtlSeconds } = rules;
  if (!audiences.has(root.audience)) return refuse('wrong_audience', root.audience).error;
  if (issuer !== undefined && root.issuer !== issuer) {
    return refuse('wrong_issuer', `not ${issuer}`).error;
  }
  if (root.proofs.length > 0) return refuse('has_proofs', `${root.proofs.length} proofs`).error;
  return (
    (maxTtlSeconds === undefined ? undefined : checkTtl(root, now, maxTtlSeconds)) ??
    checkTime(root, now) ??
    checkCapability(root.capabilities, rules)
  );
}

function checkCapability(
  capabilities: readonly Capability[],
  { capability: expected, allowsCaveats }: InvocationRules,
): UcanError | undefined {
  const [capability, ...others] = capabilities;
  if (!capability || others.length > 0) {
    return refuse('wrong_capability', `${capabilities.length} capabilities`).error;
  }
  if (capability.can !== expected.can || capability.with !== expected.with) {
    return refuse('wrong_capability', `${capability.can} at ${capability.with}`).error;
  }
  // ucanto writes an empty `nb` when it is handed one, so that one says nothing.
  if (!allowsCaveats && Object.keys(capability.nb ?? {}).length > 0) {
    return refuse('has_caveats', Object.keys(capability.nb ?? {}).join()).error;
  }
  return undefined;
}

interface GrantRules {
  readonly audiences: ReadonlySet<string>;
  readonly now: number;
  readonly can: string;
}

interface DelegationRules extends Omit<GrantRules, 'can'> {
  /** Of an auth invocation. */
  readonly maxTtlSeconds: number;
}

/** Every check of a delegation, or of an auth invocation in its place, that needs neither the network nor a signature. */
export function checkDelegation(token: Token, rules: DelegationRules): UcanError | undefined {
  const { root, ucans } = token;
  if (isAuthInvocation(root)) {
    const error = checkInvocation(token, { ...rules, capability: AUTH_CAPABILITY });
    return error && refuse('wrong_purpose', `an auth invocation: ${error.code}`).error;
  }
  if (!rules.audiences.has(root.audience)) return refuse('wrong_audience', root.audience).error;
  if (root.capabilities.length === 0) return refuse('wrong_capability', 'none delegated').error;
  const call = root.capabilities.find(({ can }) => isCall(can));
  if (call) return refuse('wrong_purpose', `${call.can} is an invocation`).error;
  for (const ucan of ucans.values()) {
    const error = checkTime(ucan, rules.now) ?? checkProofs(ucan, findProofs(ucan, ucans));
    if (error) return named(error, ucan);
  }
  return undefined;
}

/** Every check of a grant that needs neither the network nor a signature. */
export function checkGrant({ root }: Token, rules: GrantRules): UcanError | undefined {
  if (!rules.audiences.has(root.audience)) return refuse('wrong_audience', root.audience).error;
  if (root.proofs.length > 0) return refuse('has_proofs', `${root.proofs.length} proofs`).error;
  const error = checkTime(root, rules.now);
  if (error) return error;
  const [capability, ...others] = root.capabilities;
  if (capability && others.length === 0 && capability.can === rules.can) return undefined;
  return refuse('wrong_capability', `not exactly one ${rules.can}`).error;
}

/** Whether a token has the capability that makes it an auth invocation, wherever it is presented. */
export const isAuthInvocation = ({ capabilities }: Pick<Ucan, 'capabilities'>): boolean =>
  capabilities.some((one) => one.can === AUTH_CAPABILITY.can && one.with === AUTH_CAPABILITY.with);

/**
 * Whether an ability calls the oracle or a tool. UCANs have no type, and such tokens are passed on to
 * other services: as delegations they would let those services act as the user.
 */
const isCall = (can: string): boolean => can.startsWith('oracle/') || can.startsWith('mcp/');

/** The proofs of a UCAN; `readToken` refuses tokens where one is missing. */
export function findProofs(ucan: Ucan, ucans: ReadonlyMap<string, Ucan>): readonly Ucan[] {
  return ucan.proofs.flatMap((link) => ucans.get(link.toString()) ?? []);
}

/** Checks that proofs are meant for the issuer and grant all that is claimed, for as long. */
export function checkProofs(ucan: UcanPayload, proofs: readonly Ucan[]): UcanError | undefined {
  // Without proofs a UCAN speaks for its issuer alone, which is all the authority there is.
  if (proofs.length === 0) return undefined;
  for (const proof of proofs) {
    if (proof.audience !== ucan.issuer) {
      return refuse('chain_broken', `proof ${proof.cid} is for ${proof.audience}`).error;
    }
    if (!isWithin(ucan, proof)) return refuse('time_bounds', `outside ${proof.cid}`).error;
  }
  const grants = proofs.flatMap((proof) => proof.capabilities);
  const beyond = ucan.capabilities.find((capability) => !isCovered(capability, grants));
  return beyond && refuse('escalation', `${beyond.can} at ${beyond.with}`).error;
}

function isWithin(ucan: UcanPayload, proof: UcanPayload): boolean {
  return (
    (ucan.expiration ?? Number.POSITIVE_INFINITY) <=
      (proof.expiration ?? Number.POSITIVE_INFINITY) &&
    (ucan.notBefore ?? 0) >= (proof.notBefore ?? 0)
  );
}

/** How far the clock of an issuer may run ahead of ours. */
const SKEW_SECONDS = 30;

/** The end of the year 9999: later times are mistakes, such as milliseconds, and overflow dates. */
const LATEST_TIME = 253_402_300_799;

/** Expiry has no grace; only `nbf` allows for skew. */
function checkTime(ucan: Ucan, now: number): UcanError | undefined {
  if ((ucan.expiration ?? 0) > LATEST_TIME) {
    return refuse('expiry_too_far', `${ucan.expiration} is after the year 9999`).error;
  }
  if (ucan.expiration !== null && ucan.expiration <= now) {
    return refuse('expired', `${now - ucan.expiration} s ago`).error;
  }
  if ((ucan.notBefore ?? 0) > now + SKEW_SECONDS) {
    return refuse('not_yet_valid', `in ${(ucan.notBefore ?? 0) - now} s`).error;
  }
  return undefined;
}

/** A token presented as proof of who is calling must run out soon. */
function checkTtl(ucan: Ucan, now: number, maxTtlSeconds: number): UcanError | undefined {
  if (ucan.expiration === null) return refuse('expiry_missing', 'no exp').error;
  if (ucan.expiration > now + maxTtlSeconds + SKEW_SECONDS) {
    return refuse('expiry_too_far', `in ${ucan.expiration - now} s`).error;
  }
  return undefined;
}

/** Whether holding `grant` allows `claim`: ability, resource and caveats may only narrow. */
export function covers(grant: Capability, claim: Capability): boolean {
  return (
    coversAbility(grant.can, claim.can) &&
    coversResource(grant.with, claim.with) &&
    coversCaveats(grant.nb ?? {}, claim.nb ?? {})
  );
}

/** Whether one of the grants alone covers the claim; grants do not add up. */
export function isCovered(claim: Capability, grants: readonly Capability[]): boolean {
  return grants.some((grant) => covers(grant, claim));
}

function coversAbility(grant: string, claim: string): boolean {
  if (grant === '*' || grant === claim) return true;
  return grant.endsWith('/*') && isBelow(grant.slice(0, -1), claim);
}

function coversResource(grant: string, claim: string): boolean {
  if (grant === claim) return true;
  if (!grant.endsWith('/*') && !grant.endsWith(':*')) return false;
  return isBelow(grant.slice(0, -1), claim);
}

// A service that normalizes paths would read `x/../y` as `y`, before a query and with encoded slashes too.
const DOT_SEGMENT = /(^|[/\\]|%2f|%5c)(\.|%2e){1,2}([/\\?#]|%2f|%5c|$)/i;
/** A URL parser drops these without a word, and what stood apart becomes a dot segment. */
const DROPPED = /[\t\n\r]/;

function isBelow(prefix: string, claim: string): boolean {
  if (!claim.startsWith(prefix) || claim.length === prefix.length) return false;
  const rest = claim.slice(prefix.length);
  return !DOT_SEGMENT.test(rest) && !DROPPED.test(rest);
}

/** Every caveat of the grant stands unchanged in the claim, which may add its own. */
function coversCaveats(
  grant: NonNullable<Capability['nb']>,
  claim: NonNullable<Capability['nb']>,
): boolean {
  return Object.entries(grant).every(
    ([name, value]) => Object.hasOwn(claim, name) && isEqual(value, claim[name]),
  );
}

function isEqual(a: Ipld, b: Ipld | undefined): boolean {
  if (a instanceof Uint8Array) return b instanceof Uint8Array && equalBytes(a, b);
  if (a instanceof Link) return b instanceof Link && equalBytes(a.bytes, b.bytes);
  if (Array.isArray(a)) {
    return Array.isArray(b) && a.length === b.length && a.every((item, i) => isEqual(item, b[i]));
  }
  if (!isIpldMap(a)) return a === b;
  return isIpldMap(b) && Object.keys(a).length === Object.keys(b).length && coversCaveats(a, b);
}
