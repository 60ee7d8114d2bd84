import type { ModelUse } from './model.js';

/** A message that is about to start a turn. */
export interface GateRequest {
  /** The caller's DID. */
  readonly owner: string;
  readonly sessionId: string;
  readonly requestId: string;
  /** The model that will answer, as `/models` lists it. */
  readonly model: string;
  /** Characters of the message, for an estimate. */
  readonly length: number;
}

/** What a gate holds for a turn that it admitted. */
export interface TurnHold {
  /**
   * Called before each model call, also of sub-agents and titles, with the usage of the turn.
   * Throws an OracleError to end the turn. Any other error ends it too, as `gate_unavailable`.
   */
  check?(used: readonly ModelUse[]): void | Promise<void>;
  /**
   * Called once everything that belongs to the turn has ended. A call that fails or hangs is repeated,
   * so settling the same turn twice must change nothing.
   */
  settle(used: readonly ModelUse[]): Promise<void>;
}

/** May refuse a turn before it starts; one that hangs, fails or returns an invalid value refuses it as `gate_unavailable`. */
export interface MessageGate {
  /** Throws an OracleError to refuse: the caller receives it, and nothing is stored. */
  admit(request: GateRequest): Promise<TurnHold | undefined>;
}
