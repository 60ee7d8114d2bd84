import { GrpcError } from '../upstream/grpc-error.js';

/** Why a node cannot speak of a height. */
export interface HeightFault {
  readonly kind: 'pruned' | 'future';
  /** The first height it has, if it says. */
  readonly earliest: number | undefined;
}

const FUTURE =
  /height in the future|must be less than or equal to the (?:current|head) blockchain/i;
const PRUNED = /pruned|version does not exist|lowest height is|failed to load state at height/i;
const LOWEST = /lowest height is (\d{1,15})/i;

/** Reads a node's refusal of a height; nodes tell it only in words, and one text stands for both cases. */
export function heightFaultOf(
  fault: unknown,
  asked: number | undefined,
  latest: number,
): HeightFault | undefined {
  if (!(fault instanceof GrpcError) || fault.origin !== 'node') return undefined;
  if (asked === undefined) return undefined;
  if (FUTURE.test(fault.message)) return { kind: 'future', earliest: undefined };
  if (!PRUNED.test(fault.message)) return undefined;
  if (asked > latest) return { kind: 'future', earliest: undefined };
  const lowest = LOWEST.exec(fault.message)?.[1];
  return { kind: 'pruned', earliest: lowest === undefined ? undefined : Number(lowest) };
}
