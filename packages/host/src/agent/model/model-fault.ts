import type { FaultKind } from '@sibyl/protocol';

export interface ModelFaultOptions extends ErrorOptions {
  readonly kind: FaultKind;
  /** Whether the same call may go well a little later. */
  readonly retryable: boolean;
  readonly retryAfterSeconds?: number | undefined;
}

/** Why a model gave no answer, or not a whole one; the text is fit for the user to read. */
export class ModelFault extends Error {
  override readonly name = 'ModelFault';
  readonly kind: FaultKind;
  readonly retryable: boolean;
  readonly retryAfterSeconds: number | undefined;

  constructor(message: string, options: ModelFaultOptions) {
    super(message, options);
    this.kind = options.kind;
    this.retryable = options.retryable;
    this.retryAfterSeconds = options.retryAfterSeconds;
  }
}
