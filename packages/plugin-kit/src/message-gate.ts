import type { ModelUse } from './model.js';

/** A message that asks to become a turn. */
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

/** What a gate keeps of a turn it has let in. */
export interface TurnHold {
  /**
   * Called before each model call, also of sub-agents and titles, with what the turn has used so far.
   * Throws an OracleError to end the turn. Any other fault ends it too, as `gate_unavailable`.
   */
  check?(used: readonly ModelUse[]): void | Promise<void>;
  /**
   * Called once, when all that belongs to the turn is over, however it ended. A call that fails or
   * hangs is made again, so that the same turn may be settled twice: the second time changes nothing.
   */
  settle(used: readonly ModelUse[]): Promise<void>;
}

/** May refuse a turn before it starts; one that hangs, fails or gives rubbish refuses it as `gate_unavailable`. */
export interface MessageGate {
  /** Throws an OracleError to refuse: the caller gets it as the answer, and nothing of the turn is stored. */
  admit(request: GateRequest): Promise<TurnHold | undefined>;
}
