import type { SessionKey } from '../../src/bus/event-bus.js';
import type { Frame } from '../../src/store/runs/frames.js';
import type { Run, RunEnd } from '../../src/store/runs/run.js';
import type { RunStore, StartResult } from '../../src/store/runs/run-store.js';
import type { RunKey } from '../../src/store/schema/runs.js';
import type { Store } from '../../src/store/store.js';
import { readRows } from './stored-rows.js';
import { newOwner } from './test-database.js';

export type RunRequest = Parameters<RunStore['start']>[0];

/** The request of a run with sensible defaults; each has a new id. */
export function createRunRequest(
  request: Pick<RunRequest, 'owner' | 'sessionId'> & Partial<RunRequest>,
): RunRequest {
  return {
    runId: crypto.randomUUID(),
    requestId: 'request',
    message: { content: 'hi' },
    multitask: 'enqueue',
    limits: { live: 100, waiting: 10 },
    request: { message: 'hi' },
    ...request,
  };
}

/** Opens a session of a new user. */
export async function openTestSession({ sessions }: Pick<Store, 'sessions'>) {
  const owner = newOwner();
  const { sessionId } = await sessions.create({ owner, oracleDid: 'did:key:zOracle' });
  return { owner, sessionId };
}

/** A session of another user with the same id, as an import can create it. */
export async function copySession(store: Store, owner: string, from: SessionKey) {
  const untouched = { last_turn: 0, last_seq: 0, active_message_id: null };
  const rows = await readRows(store, 'sessions', from.owner);
  await store.imports.insert(
    owner,
    'sessions',
    rows.map((row) => ({ ...row, ...untouched })),
  );
  return { owner, sessionId: from.sessionId };
}

export function expectStarted(result: StartResult): Run {
  if (result.state !== 'started') throw new Error(`The run was not started: ${result.state}`);
  return result.run;
}

/** Starts a run in a new session, or in the given one. */
export async function startTestRun(
  store: Pick<Store, 'sessions' | 'runs'>,
  overrides: Partial<RunRequest> = {},
): Promise<{ run: Run; key: RunKey; session: { owner: string; sessionId: string } }> {
  const { owner, sessionId } = overrides;
  const session = owner && sessionId ? { owner, sessionId } : await openTestSession(store);
  const run = expectStarted(await store.runs.start(createRunRequest({ ...session, ...overrides })));
  return { run, session, key: { owner: run.owner, runId: run.runId } };
}

/** Stores frames of one run. */
export const flushFrames = (runs: RunStore, key: RunKey, frames: readonly Frame[]) =>
  runs.flush([{ ...key, frames, steps: [] }]);

/** Ends a run; this host does not execute the next one unless `takesNext` is set. */
export const finishTestRun = (
  runs: RunStore,
  key: RunKey,
  { content = '', ...ending }: Partial<RunEnd> & { readonly content?: string } = {},
  takesNext = true,
) =>
  runs.finish({
    ...key,
    takesNext,
    end: { status: 'finished', message: { content, isComplete: true }, ...ending },
  });
