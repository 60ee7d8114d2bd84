import type { Session } from '../store/session-store.js';
import type { TurnAccount } from './gates.js';
import type { LiveRun } from './run-log.js';
import type { RunRecorder } from './run-recorder.js';
import type { TurnSlot } from './turn-limits.js';
import type { TurnRequest } from './turn-request.js';
import type { TurnProgress } from './turn-setup.js';

/** A turn that this host executes or has accepted and queued. */
export interface LiveTurn {
  readonly live: LiveRun;
  readonly recorder: RunRecorder;
  readonly request: TurnRequest;
  readonly session: Session;
  readonly account: TurnAccount;
  readonly slot: TurnSlot;
  readonly progress?: TurnProgress | undefined;
  isExecuting: boolean;
}

/** A turn that the gates have admitted. */
export type NewTurn = Pick<LiveTurn, 'request' | 'session' | 'account' | 'slot' | 'progress'>;
