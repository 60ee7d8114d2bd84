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
        /** Set when somebody refused to let the turn go on. */
        readonly refusal?: OracleError | undefined;
      }
    | undefined;
}
