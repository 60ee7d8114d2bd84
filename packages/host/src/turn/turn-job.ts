import type { Session } from '../store/sessions/session.js';
import type { TurnAccount } from './gates/turn-account.js';
import type { LiveRun } from './runs/live-run.js';
import type { RunRecorder } from './runs/run-recorder.js';
import type { TurnRequest } from './turn-request.js';

/** One turn and everything it works with. */
export interface TurnJob {
  readonly live: LiveRun;
  readonly recorder: RunRecorder;
  readonly request: TurnRequest;
  readonly session: Session;
  readonly account: TurnAccount;
}
