import type { NewApproval } from './approvals.js';
import type { RunWrites } from './frames.js';
import type { NewInterrupt } from './interrupts.js';

// What is encrypted in the store, as its callers see it.

/** A question whose approval, if it is one, is not encrypted yet. */
export interface UnsealedInterrupt extends Omit<NewInterrupt, 'approval'> {
  readonly approval?: (Omit<NewApproval, 'request'> & { readonly request: unknown }) | undefined;
}

/** What a host has to store of one run, before its steps are encrypted. */
export interface UnsealedWrites extends Omit<RunWrites, 'steps'> {
  readonly steps: readonly { readonly step: number; readonly value: unknown }[];
}

/** A question that a paused run asked. */
export interface Interrupt extends Omit<NewInterrupt, 'data' | 'expiresInMs' | 'approval'> {
  /** Milliseconds, by the clock of the database. */
  readonly expiresAt: number;
  readonly owner: string;
  readonly sessionId: string;
  readonly runId: string;
  readonly turn: number;
  readonly status: 'open' | 'answered' | 'expired' | 'cancelled';
  readonly createdAt: number;
  /** The attempt that continues with the answer. */
  readonly nextRunId: string | undefined;
  readonly data: unknown;
  /** The answer. */
  readonly value: unknown;
}
