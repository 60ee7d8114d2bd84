import { setTimeout as sleep } from 'node:timers/promises';
import type { Config } from '../config/config.js';
import { toQuestionParts } from '../store/message.js';
import type { RunKey } from '../store/runs/run.js';
import type { RunStore } from '../store/runs/run-store.js';
import type { StartResult } from '../store/runs/start-run.js';
import { isStoreError } from '../store/store-errors.js';
import type { IdempotencyClaim } from './idempotent-starts.js';
import { type TurnRequest, toStoredRequest } from './turn-request.js';

/** Turns of one session that may wait behind the running one. */
const MAX_WAITING = 10;

/** How long to look for a run whose start was not confirmed, and how often. */
const UNCONFIRMED_MS = 1_500;
const UNCONFIRMED_POLL_MS = 250;

interface RunStart {
  readonly id: string;
  readonly request: TurnRequest;
  readonly idempotency: IdempotencyClaim | undefined;
  readonly settings: Pick<Config['turns'], 'maxPerUser' | 'resumesTurns'>;
}

/** Stores a message and the run that will answer it; the store decides whether the run starts now. */
export async function storeRun(runs: RunStore, start: RunStart): Promise<StartResult> {
  const { id, request, idempotency, settings } = start;
  const { caller, sessionId, requestId, message, origin, waitsForPaused } = request;
  const { message: content, attachments, metadata, multitask } = message;
  try {
    return await runs.start({
      id,
      owner: caller.did,
      sessionId,
      requestId,
      message: { content, parts: toQuestionParts(content, attachments), metadata },
      origin,
      multitask,
      waitsForPaused,
      limits: { live: settings.maxPerUser, waiting: MAX_WAITING },
      request: toStoredRequest(request),
      isResumable: settings.resumesTurns,
      idempotency,
    });
  } catch (error) {
    return findUnconfirmed(runs, { owner: caller.did, runId: id }, error);
  }
}

/** The database may have committed a run although its reply was lost. */
async function findUnconfirmed(runs: RunStore, key: RunKey, error: unknown): Promise<StartResult> {
  if (!isStoreError(error)) throw error;
  for (const deadline = performance.now() + UNCONFIRMED_MS; performance.now() < deadline; ) {
    await sleep(UNCONFIRMED_POLL_MS);
    const run = await runs.find(key).catch(() => undefined);
    if (run) return { state: 'started', run, canceled: [] };
  }
  throw error;
}
