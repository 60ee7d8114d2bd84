import { createHash } from 'node:crypto';
import { canonicalJson } from '../canonical-json.js';
import type { WantedCall } from './wanted-call.js';

const RUNS_LIMIT = 3;
const REFUSALS_LIMIT = 3;

/** Notices a model that goes round in circles: the same tool with the same arguments, over and over. */
export class RepetitionGuard {
  /** By a hash of the call, since inputs may be large; as many as a turn makes calls. */
  private readonly runs = new Map<string, number>();
  private refusals = 0;

  /** Whether the call may run once more. */
  admits({ name, args, fault }: WantedCall): boolean {
    const key = createHash('sha256')
      .update(canonicalJson([name, args, fault]))
      .digest('base64');
    const runs = (this.runs.get(key) ?? 0) + 1;
    this.runs.set(key, runs);
    if (runs <= RUNS_LIMIT) return true;
    this.refusals += 1;
    return false;
  }

  /** Whether refusing has not helped either. */
  get isTired(): boolean {
    return this.refusals >= REFUSALS_LIMIT;
  }
}
