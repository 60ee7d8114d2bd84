import type { JsonObject, PendingAnswer, ReplyPart, StoppedWork } from '@sibyl/protocol';

/** A message that a plugin received outside of the host's API. */
export interface PluginTurn {
  /** The user's id in the external system; the owner becomes `did:<plugin>:<user>`. */
  readonly user: string;
  readonly sessionId: string;
  readonly message: string;
  /** Where the message comes from, for the turn's context. */
  readonly client: string;
  readonly timezone?: string;
  /** Makes a repeated delivery find the first one's turn. */
  readonly idempotencyKey?: string;
  /** For plugins, in `turn.state.metadata`. */
  readonly metadata?: JsonObject | undefined;
}

/** Starts turns for users whom the plugin has authenticated itself. */
export interface PluginTurns {
  openSession(user: string): Promise<{ readonly sessionId: string }>;
  /** Resolves once the message is stored; the reply then ends with `done`. */
  start(turn: PluginTurn): Promise<AsyncIterable<ReplyPart>>;
  /** The reply of a run of this owner, from its beginning. */
  join(run: { readonly owner: string; readonly runId: string }): Promise<AsyncIterable<ReplyPart>>;
  abort(turn: Pick<PluginTurn, 'user' | 'sessionId'>): Promise<boolean>;
  /** The questions that the paused turn of a session asks. `owner` is the DID of a caller, or `did:<plugin>:<user>`. */
  pending(turn: {
    readonly owner: string;
    readonly sessionId: string;
  }): Promise<readonly OpenInterrupt[]>;
  /** Continues a paused turn: the run to join, or what the turn still waits for. */
  answer(answer: {
    readonly owner: string;
    readonly id: string;
    readonly value: unknown;
  }): Promise<{ readonly runId: string; readonly pending?: readonly PendingAnswer[] }>;
  /**
   * Denies a tool call that waits for approval, for a user who cannot sign there; only the user's own key approves. `id` is the
   * `approvalId` of an `approval_request`.
   */
  deny(denial: {
    readonly owner: string;
    readonly id: string;
    readonly reason?: string | undefined;
  }): Promise<{ readonly runId: string; readonly pending?: readonly PendingAnswer[] }>;
  /** Those of the runs that wait for answers of their users; one query for up to 1000 of them. */
  findPaused(runs: readonly RunReference[]): Promise<readonly RunReference[]>;
  /** What became of a run that waited for its user, wherever the user has answered; undefined while it waits. */
  continuation(run: RunReference): Promise<Continuation | undefined>;
  /**
   * Calls back when a turn has begun, paused or ended, or its session was deleted, on any host; a call may be missed.
   * Returns a function that stops it.
   */
  onTurn(
    listener: (turn: { readonly owner: string; readonly sessionId: string }) => void,
  ): () => void;
}

/** Identifies a run. */
export interface RunReference {
  readonly owner: string;
  readonly runId: string;
}

/** What became of a run that waited for its user. */
export interface Continuation {
  /** The run that continues the turn; undefined if the turn ended instead. */
  readonly runId?: string | undefined;
  /** Whether the user has stopped the turn. */
  readonly isStopped: boolean;
  /** What the run has asked; nothing if its session was deleted. */
  readonly interrupts: readonly EndedInterrupt[];
}

/** A question that was answered, or cannot be answered any more. */
export interface EndedInterrupt extends OpenInterrupt {
  readonly outcome: 'answered' | 'approved' | 'denied' | 'expired' | 'cancelled';
  /** The answer; undefined if there is none. */
  readonly value: unknown;
}

/** A question of a tool that the turn waits for. */
export interface OpenInterrupt extends PendingAnswer {
  /** The run that asks it. */
  readonly runId: string;
  /** Whether it asks for the approval of a call: `deny` answers it, or the user's signature. */
  readonly isApproval: boolean;
  /** JSON Schema of the answer. */
  readonly schema: JsonObject;
  readonly data: unknown;
  /** Milliseconds. */
  readonly expiresAt: number;
}

/** A stored delegation of `oracle/run`. */
export interface RunDelegation {
  readonly cid: string;
  /** Unix seconds; absent if it never expires. */
  readonly expiration?: number;
}

/** Identifies the delegation that a turn runs under, and what it must be for. */
export interface RunPermission {
  readonly owner: string;
  readonly cid: string;
  /** What the delegation must cover, such as `ixo:oracle:did:key:z6Mk…:schedule/7`. */
  readonly resource: string;
  /**
   * With caveats, the delegation must be for exactly this resource and have exactly these: hashes of what the turns do, for
   * example. Without, it must have none.
   */
  readonly caveats?: Readonly<Record<string, string>> | undefined;
}

/** A message that a plugin sends as the user. */
export interface DelegatedTurn extends RunPermission {
  readonly sessionId: string;
  readonly message: string;
  /** Where the message comes from, for the turn's context. */
  readonly client: string;
  readonly timezone?: string;
  /** A repeated start with this key finds the turn of the first one, on any host, for a day. */
  readonly idempotencyKey: string;
  /** For plugins, in `turn.state.metadata`. */
  readonly metadata?: JsonObject | undefined;
}

/** A turn as far as it is stored. */
export interface TurnOutcome {
  /** The latest attempt of the turn. */
  readonly runId: string;
  readonly status:
    | 'queued'
    | 'running'
    | 'paused'
    | 'finished'
    | 'aborted'
    | 'interrupted'
    | 'failed';
  /** The answer, also a partial one. */
  readonly text: string;
  /** Why there is no complete answer. */
  readonly error?: { readonly code: string; readonly message: string };
}

/**
 * Turns that run as a user who is not there, while a delegation of the user permits it. Revoking the delegation
 * aborts them on every host.
 */
export interface DelegatedTurns {
  /** Verifies and stores a delegation that the owner signed for this oracle; throws what is wrong with it. */
  authorize(
    request: Omit<RunPermission, 'cid'> & { readonly token: string },
  ): Promise<RunDelegation>;
  /** Why a turn may not run under a delegation now; undefined if it may. */
  check(permission: RunPermission): Promise<string | undefined>;
  /** Deletes a delegation that is not needed any more. */
  release(key: Pick<RunPermission, 'owner' | 'cid'>): Promise<void>;
  /**
   * Calls back when delegations were revoked, on any host; a call may be missed. The user learns what a listener says that
   * it has stopped. Returns a function that stops it.
   */
  onRevoked(listener: (cid: string) => Promise<readonly StoppedWork[]>): () => void;
  openSession(session: {
    readonly owner: string;
    readonly title: string;
  }): Promise<{ readonly sessionId: string }>;
  /** Deletes a session in which no turn has begun. */
  removeEmptySession(session: {
    readonly owner: string;
    readonly sessionId: string;
  }): Promise<void>;
  /** Resolves once the message is stored. A turn of the session that runs or is paused makes it wait. */
  start(turn: DelegatedTurn): Promise<{ readonly runId: string }>;
  /** Ends the turn of a run if it waits for its user; returns whether it did. A running turn ends with its delegation. */
  abortPaused(key: { readonly owner: string; readonly runId: string }): Promise<boolean>;
  /** Ends the running or paused turn of a session; returns whether there was one. */
  abort(turn: { readonly owner: string; readonly sessionId: string }): Promise<boolean>;
  /** The turn of a run; undefined if its session was deleted. */
  outcome(key: {
    readonly owner: string;
    readonly runId: string;
  }): Promise<TurnOutcome | undefined>;
}
