import { refuse, type UcanFault } from '../fault.js';
import type { Capability, Token } from '../gate/token.js';
import { checkTime, checkTtl } from './time-rules.js';

export interface InvocationRules {
  readonly audiences: ReadonlySet<string>;
  readonly capability: Capability;
  /** Whoever else signed is refused; unset: anybody may call. */
  readonly issuer?: string;
  readonly now: number;
  readonly maxTtlSeconds: number;
}

/** Everything about an invocation that can be judged without network and signature. */
export function checkInvocation({ root }: Token, rules: InvocationRules): UcanFault | undefined {
  const { audiences, issuer, now, maxTtlSeconds } = rules;
  if (!audiences.has(root.audience)) return refuse('wrong_audience', root.audience).error;
  if (issuer !== undefined && root.issuer !== issuer) {
    return refuse('wrong_issuer', `not ${issuer}`).error;
  }
  if (root.proofs.length > 0) return refuse('has_proofs', `${root.proofs.length} proofs`).error;
  return (
    checkTtl(root, now, maxTtlSeconds) ??
    checkTime(root, now) ??
    checkCapability(root.capabilities, rules.capability)
  );
}

function checkCapability(
  capabilities: readonly Capability[],
  expected: Capability,
): UcanFault | undefined {
  const [capability, ...others] = capabilities;
  if (!capability || others.length > 0) {
    return refuse('wrong_capability', `${capabilities.length} capabilities`).error;
  }
  if (capability.can !== expected.can || capability.with !== expected.with) {
    return refuse('wrong_capability', `${capability.can} at ${capability.with}`).error;
  }
  // ucanto writes an empty `nb` when it is handed one, so that one says nothing.
  if (Object.keys(capability.nb ?? {}).length > 0) {
    return refuse('has_caveats', Object.keys(capability.nb ?? {}).join()).error;
  }
  return undefined;
}
