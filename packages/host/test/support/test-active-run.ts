import { pino } from 'pino';
import { MemoryEventBus } from '../../src/bus/event-bus.js';
import type { Run } from '../../src/store/runs/run.js';
import type { RunStore } from '../../src/store/runs/run-store.js';
import { ActiveRun } from '../../src/turns/run/active-run.js';
import { RunLog } from '../../src/turns/run/run-log.js';
import { FlushLoop, type Recording, RunRecorder } from '../../src/turns/run/run-recorder.js';
import { TurnAccount } from '../../src/turns/start/gates.js';
import { createTurnRequest } from './test-turns.js';

type Recorded = ConstructorParameters<typeof RunRecorder>[0];

const ignore = () => {};

/** What recorders of a host share: their runs are neither canceled nor taken over. */
export function createRecording(runs: RunStore, changes: Partial<Recording> = {}): Recording {
  const { logger = pino({ level: 'silent' }) } = changes;
  return {
    ...{ runs, logger, events: new MemoryEventBus(), flushes: new FlushLoop(runs, logger) },
    ...{ storeWaitMs: 10_000, isResumable: false, shutdown: new AbortController().signal },
    ...{ isStoreLost: () => false, takesNext: () => true },
    ...{ onLost: ignore, onCanceled: ignore, onPromoted: ignore },
    ...changes,
  };
}

/** The recorder of a run that a test does not execute. */
export function createRecorder(
  run: Run,
  { log = new RunLog(), settle = ignore, fail = ignore, ...recording }: RecorderOptions,
): RunRecorder {
  return new RunRecorder({ run, log, settle, fail }, createRecording(recording.runs, recording));
}

export interface RecorderOptions
  extends Partial<Recording>,
    Partial<Pick<Recorded, 'log' | 'settle' | 'fail'>> {
  readonly runs: RunStore;
}

interface ActiveRunOptions
  extends Partial<Pick<ActiveRun, 'request' | 'session' | 'account' | 'progress'>> {
  /** Unset if nothing is recorded. */
  readonly recording?: Recording;
  readonly onFrame?: ConstructorParameters<typeof ActiveRun>[3];
}

/** A run in the memory of a host. */
export function createActiveRun(
  run: Run,
  { recording, onFrame, ...turn }: ActiveRunOptions = {},
): ActiveRun {
  const settle = async () => {};
  const known = {
    request: createTurnRequest(run),
    session: {} as ActiveRun['session'],
    account: new TurnAccount({ check: settle, add: ignore, settle }),
    progress: undefined,
    freeSlot: ignore,
    ...turn,
  };
  return new ActiveRun(run, known, recording ?? ({} as Recording), onFrame);
}
