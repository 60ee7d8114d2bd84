import { createHash } from 'node:crypto';
import { OracleError } from '@sibyl/protocol';
import type { IdempotencyStore } from '../store/idempotency-store.js';
import type { TurnRequest } from './turn-request.js';

/** An idempotency key, stored with the run that it starts. */
export interface IdempotencyClaim {
  readonly key: string;
  readonly bodyHash: string;
  readonly expiresAt: number;
}

/** Starts a run and returns its id. */
type Start = (claim?: IdempotencyClaim) => Promise<string>;

const IDEMPOTENCY_TTL_MS = 24 * 60 * 60 * 1000;

/** Makes requests with the same `Idempotency-Key` share one run. */
export class IdempotentStarts {
  private readonly store: IdempotencyStore;
  private readonly inProgress = new Map<string, Promise<string>>();

  constructor(store: IdempotencyStore) {
    this.store = store;
  }

  /**
   * Returns the id of the run that the first request with this key started, or of a new run if there is no key. If a
   * failed host left that run unanswered, the new run is the next attempt of the same turn.
   */
  async run(request: TurnRequest, start: Start): Promise<string> {
    const { idempotencyKey: key, caller } = request;
    if (key === undefined) return start();
    const claim = {
      key,
      bodyHash: hashRequest(request),
      expiresAt: Date.now() + IDEMPOTENCY_TTL_MS,
    };
    // Concurrent requests share one start regardless of `multitask`.
    const flight = JSON.stringify([caller.did, key, claim.bodyHash]);
    const shared = this.inProgress.get(flight) ?? this.find(caller.did, claim, start);
    this.inProgress.set(flight, shared);
    return shared.finally(() => this.inProgress.delete(flight));
  }

  private async find(owner: string, claim: IdempotencyClaim, start: Start): Promise<string> {
    const known = await this.store.find({ owner, key: claim.key });
    if (known === undefined) return start(claim);
    if (known.bodyHash !== claim.bodyHash) throw new OracleError('idempotency_conflict');
    return known.isUnanswered ? start(claim) : known.runId;
  }
}

/** Two requests are the same if these fields are. */
function hashRequest({ sessionId, message, origin }: TurnRequest): string {
  return createHash('sha256')
    .update(JSON.stringify([sessionId, message, ...(origin ? [origin] : [])]))
    .digest('base64');
}
