import { encodeDagJson } from '../codec/dag-json.js';
import type { Ipld } from '../codec/ipld.js';
import type { Capability } from '../codec/ucan-block.js';

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

// A service that normalises paths would read `x/../y` as `y`.
const DOT_SEGMENT = /(^|[/\\])(\.|%2e){1,2}([/\\]|$)/i;

function isBelow(prefix: string, claim: string): boolean {
  if (!claim.startsWith(prefix) || claim.length === prefix.length) return false;
  return !DOT_SEGMENT.test(claim.slice(prefix.length));
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
  return b !== undefined && encodeDagJson(a) === encodeDagJson(b);
}
