import type { FaultKind, OracleError } from '@sibyl/protocol';

/** How a run ended, for whoever waits for the whole answer. */
export interface RunOutcome {
  readonly status: 'finished' | 'aborted' | 'interrupted' | 'failed';
  readonly messageId: string | undefined;
  readonly text: string;
  readonly fault?:
    | {
        readonly kind: FaultKind;
        readonly message: string;
        /** Whether the same message may go well a little later; unknown for a run read from the store. */
        readonly retryable?: boolean | undefined;
        /** Set when somebody refused to let the turn go on. */
        readonly refusal?: OracleError | undefined;
      }
    | undefined;
}
