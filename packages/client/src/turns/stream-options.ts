/** Whether frames arrive, or the client is joining the run again. */
export type StreamState = 'live' | 'rejoining';

export interface StreamOptions {
  /** Stops reading; the turn goes on at the host. `abort` ends the turn itself. */
  readonly signal?: AbortSignal;
  readonly onState?: (state: StreamState) => void;
  /** How long to try to join again without success, in milliseconds; two minutes unless given. */
  readonly giveUpAfterMs?: number;
}
