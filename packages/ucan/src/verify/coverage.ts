import { equalBytes } from '../codec/bytes.js';
import { type Ipld, isIpldMap, Link } from '../codec/ipld.js';
import type { Capability } from '../codec/ucan.js';

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
