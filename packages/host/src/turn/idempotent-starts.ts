import { createHash } from 'node:crypto';
import { OracleError } from '@sibyl/protocol';
import type { IdempotencyStore } from '../store/idempotency/idempotency-store.js';
import type { TurnRequest } from './turn-request.js';

/** A key as it is claimed with the run it starts. */
export interface IdempotencyClaim {
  readonly key: string;
  readonly bodyHash: string;
  readonly expiresAt: number;
}

/** Starts a run under a claim, or without one, and returns its id. */
type Start = (claim?: IdempotencyClaim) => Promise<string>;

const KEPT_MS = 24 * 60 * 60 * 1000;

/** Lets requests that carry the same `Idempotency-Key` start one run between them. */
export class IdempotentStarts {
  readonly #store: IdempotencyStore;
  readonly #underWay = new Map<string, Promise<string>>();

  constructor(store: IdempotencyStore) {
    this.#store = store;
  }

  /** The id of the run the first request with this key started; without a key, of a new run. */
  async run(request: TurnRequest, start: Start): Promise<string> {
    const { idempotencyKey: key, caller } = request;
    if (key === undefined) return start();
    const claim = { key, bodyHash: hashOf(request), expiresAt: Date.now() + KEPT_MS };
    // Requests that arrive together share one start, whatever `multitask` says.
    const flight = JSON.stringify([caller.did, key, claim.bodyHash]);
    const shared = this.#underWay.get(flight) ?? this.#find(caller.did, claim, start);
    this.#underWay.set(flight, shared);
    return shared.finally(() => this.#underWay.delete(flight));
  }

  async #find(owner: string, claim: IdempotencyClaim, start: Start): Promise<string> {
    const known = await this.#store.find({ owner, key: claim.key });
    if (known === undefined) return start(claim);
    if (known.bodyHash !== claim.bodyHash) throw new OracleError('idempotency_conflict');
    return known.runId;
  }
}

/** Of all that makes one request the same as another. */
function hashOf({ sessionId, message }: TurnRequest): string {
  return createHash('sha256')
    .update(JSON.stringify([sessionId, message]))
    .digest('base64');
}
