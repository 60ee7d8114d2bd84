import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { OracleError } from '@sibyl/protocol';
import type { Config } from '../../config/config.js';
import { createTraceparent, findScope } from '../../observability/spans.js';
import { KEY_LIFE_MS } from '../../store/idempotency-store.js';
import { toQuestionParts } from '../../store/message-store.js';
import type { NewRun, RunStore, StartResult } from '../../store/runs/run-store.js';
import type { RunKey } from '../../store/schema/runs.js';
import type { Store } from '../../store/store.js';
import { isStoreError, UnsyncedError } from '../../store/store-errors.js';
import { type TurnRequest, toStoredRequest } from '../turn-request.js';

/** An idempotency key, stored with the run that it starts. */
export interface IdempotencyClaim {
  readonly key: string;
  readonly bodyHash: string;
  readonly expiresAt: number;
}

/** Starts a run and returns its id. */
type Start = (claim?: IdempotencyClaim) => Promise<string>;

/** Makes requests with the same `Idempotency-Key` share one run. */
export class IdempotentStarts {
  private readonly inProgress = new Map<string, Promise<string>>();

  constructor(private readonly store: Pick<Store, 'idempotency' | 'now'>) {}

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
      expiresAt: this.store.now() + KEY_LIFE_MS,
    };
    // Concurrent requests share one start regardless of `multitask`.
    const flight = JSON.stringify([caller.did, key, claim.bodyHash]);
    const shared = this.inProgress.get(flight) ?? this.find(caller.did, claim, start);
    this.inProgress.set(flight, shared);
    return shared.finally(() => this.inProgress.delete(flight));
  }

  private async find(owner: string, claim: IdempotencyClaim, start: Start): Promise<string> {
    const known = await this.store.idempotency.find({ owner, key: claim.key });
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

/** The claim of a request that creates a session. A space keeps it apart from the keys of messages, which have none. */
export const claimSession = (key: string, title: string | undefined) => ({
  key: `session ${key}`,
  bodyHash: createHash('sha256')
    .update(JSON.stringify([title ?? null]))
    .digest('base64'),
});

/** Turns of one session that may wait behind the running one. */
const MAX_WAITING = 10;

/** How long to look for what was written but not confirmed, and how often. */
const UNCONFIRMED_MS = 1_500;
const UNCONFIRMED_POLL_MS = 250;

interface StartDeps {
  readonly store: { readonly runs: RunStore };
  readonly settings: Pick<Config['turns'], 'maxPerUser' | 'resumesTurns'>;
}

/** Stores a message and its run, or returns why not. */
export async function storeStart(
  { store: { runs }, settings }: StartDeps,
  request: TurnRequest,
  start: Pick<NewRun, 'runId' | 'idempotency' | 'onCommit'>,
): Promise<StartResult> {
  const { caller, sessionId, requestId, message, origin, surface, waitsForPaused } = request;
  const { message: content, attachments, metadata, multitask } = message;
  try {
    return await runs.start({
      ...start,
      owner: caller.did,
      sessionId,
      requestId,
      traceparent: findTraceparent(),
      message: { content, parts: toQuestionParts(content, attachments), metadata },
      origin,
      clientIds: surface?.clientIds,
      multitask,
      waitsForPaused,
      limits: { live: settings.maxPerUser, waiting: MAX_WAITING },
      request: toStoredRequest(request),
      isResumable: settings.resumesTurns,
    });
  } catch (error) {
    return findUnconfirmed(runs, { owner: caller.did, runId: start.runId }, error);
  }
}

/** Also of a turn that is not traced, so that its log lines have one id on all hosts. */
function findTraceparent(): string | undefined {
  const scope = findScope();
  return scope && (scope.traceparent ?? createTraceparent(scope));
}

async function findUnconfirmed(runs: RunStore, key: RunKey, error: unknown): Promise<StartResult> {
  return confirmWrite(error, async () => {
    const run = await runs.find(key);
    return run && { state: 'started', run, canceled: [] };
  });
}

/** The database may have committed a write although its reply was lost: throws the error unless its result is found. */
export async function confirmWrite<T>(
  error: unknown,
  find: () => Promise<T | undefined>,
): Promise<T> {
  if (!isStoreError(error) || error instanceof UnsyncedError) throw error;
  for (const deadline = performance.now() + UNCONFIRMED_MS; performance.now() < deadline; ) {
    await sleep(UNCONFIRMED_POLL_MS);
    const found = await find().catch(() => undefined);
    if (found !== undefined) return found;
  }
  throw error;
}
