import type { Result } from '@sibyl/protocol';
import { type Ipld, isIpldMap } from '../codec/ipld.js';
import type { Capability } from '../codec/ucan-block.js';
import { refuse, type UcanFault } from '../fault.js';
import { LIMITS } from './limits.js';

/** Reads `att`, refusing any field besides can, with and nb: an unknown one might be a limit. */
export function readCapabilities(att: Ipld | undefined): Result<readonly Capability[], UcanFault> {
  if (!Array.isArray(att)) return refuse('ucan_malformed', 'att');
  if (att.length > LIMITS.capabilities) {
    return refuse('too_many_capabilities', `${att.length} capabilities`);
  }
  const capabilities = att.map(readCapability).filter((capability) => capability !== undefined);
  return capabilities.length === att.length
    ? { ok: capabilities }
    : refuse('ucan_malformed', 'a capability');
}

function readCapability(value: Ipld): Capability | undefined {
  if (!isIpldMap(value)) return undefined;
  const { can, with: resource, nb, ...others } = value;
  if (Object.keys(others).length > 0 || (nb !== undefined && !isIpldMap(nb))) return undefined;
  if (typeof can !== 'string' || !isAbility(can)) return undefined;
  if (typeof resource !== 'string' || !URL.canParse(resource)) return undefined;
  return { can, with: resource, ...(nb && { nb }) };
}

// ucanto lowers the case of abilities, so one with capitals would not keep its bytes there.
function isAbility(can: string): boolean {
  return can === '*' || (can.slice(1, -1).includes('/') && can === can.toLowerCase());
}
