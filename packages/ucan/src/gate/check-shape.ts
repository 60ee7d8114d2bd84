import { refuse, type UcanFault } from '../fault.js';
import { LIMITS } from './limits.js';
import type { Ucan } from './token.js';

/** Checks the size and the links of a chain; a UCAN is visited once a layer, whatever links to it. */
export function checkShape(root: Ucan, ucans: ReadonlyMap<string, Ucan>): UcanFault | undefined {
  if (ucans.size > LIMITS.ucans) return refuse('too_many_ucans', `${ucans.size} UCANs`).error;
  const seen = new Set<string>();
  let layer: readonly Ucan[] = [root];
  for (let depth = 1; layer.length > 0; depth += 1) {
    if (depth > LIMITS.depth) return refuse('too_deep', `over ${LIMITS.depth} layers`).error;
    const next: Ucan[] = [];
    for (const ucan of layer) {
      seen.add(ucan.cid);
      const fault = collectProofs(ucan, ucans, next);
      if (fault) return fault;
    }
    layer = [...new Set(next)];
  }
  return seen.size < ucans.size
    ? refuse('block_unreachable', `${ucans.size - seen.size} blocks`).error
    : undefined;
}

function collectProofs(
  ucan: Ucan,
  ucans: ReadonlyMap<string, Ucan>,
  into: Ucan[],
): UcanFault | undefined {
  if (ucan.proofs.length > LIMITS.proofs) {
    return refuse('too_many_proofs', `${ucan.proofs.length} proofs`).error;
  }
  for (const link of ucan.proofs) {
    const proof = ucans.get(link.toString());
    if (!proof) return refuse('proof_missing', link.toString()).error;
    into.push(proof);
  }
  return undefined;
}
