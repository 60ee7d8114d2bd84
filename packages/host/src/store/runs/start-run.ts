import { type Kysely, sql } from 'kysely';
import { prepared } from '../database/prepared.js';
import type { RunRow, Schema } from '../database/schema.js';
import type { StoreContext } from '../database/store-context.js';
import { claimKey, releaseKey } from '../idempotency/claim-key.js';
import { appendMessage } from '../messages/append-message.js';
import type { Message, MessageBody } from '../messages/message.js';
import { type Run, toRun } from './run.js';

export interface NewRun {
  readonly owner: string;
  readonly sessionId: string;
  readonly requestId: string;
  readonly status: 'queued' | 'running';
  readonly message: Pick<MessageBody, 'content' | 'attachments' | 'metadata'>;
  /** Runs the owner may have running or queued, this one included; default: any number. */
  readonly maxLive?: number | undefined;
  /** Makes a repeated request find this run instead of starting another. */
  readonly idempotency?:
    | { readonly key: string; readonly bodyHash: string; readonly expiresAt: number }
    | undefined;
}

export type StartResult =
  | { readonly state: 'started'; readonly run: Run; readonly message: Message }
  | { readonly state: 'unknown-session' }
  | { readonly state: 'too-many' }
  | { readonly state: 'existing'; readonly runId: string }
  | { readonly state: 'conflict' };

/** Who carries out a run and until when that holds without renewal. */
export interface Lease {
  readonly hostId: string;
  readonly until: number;
}

interface RunLeases {
  readonly lease: Lease;
  /** Whether the host that held a lease no longer does. */
  readonly isOver: (leaseUntil: number) => boolean;
}

/** Stores key, user message and run inside one unit, so that none is ever there without the others. */
export async function startRun(
  tables: Kysely<Schema>,
  request: NewRun,
  { lease, isOver, ...context }: StoreContext & RunLeases,
): Promise<StartResult> {
  const { owner, sessionId, requestId, idempotency } = request;
  const runId = context.newId();
  if (idempotency !== undefined) {
    const claim = await claimKey(tables, { ...idempotency, owner, runId }, context.clock());
    if (claim.state !== 'new') return claim;
  }
  const refuse = async (state: 'unknown-session' | 'too-many'): Promise<StartResult> => {
    if (idempotency !== undefined) await releaseKey(tables, { owner, key: idempotency.key });
    return { state };
  };
  const { maxLive = Number.POSITIVE_INFINITY } = request;
  const { rows: live } = await selectLive(tables, { owner });
  if (live.filter(({ leaseUntil }) => !isOver(leaseUntil)).length >= maxLive)
    return refuse('too-many');
  const message = await appendMessage(
    tables,
    { ...request.message, owner, sessionId, requestId, runId, type: 'human', isComplete: true },
    context,
  );
  if (message === undefined) return refuse('unknown-session');
  const row = newRow(runId, { request, message, lease });
  await insertRun(tables, row);
  return { state: 'started', run: toRun(row), message };
}

/** The owner's runs that a host is working on or will; those of a dead host count until their lease ends. */
const selectLive = prepared((tables, { owner }: { owner: string }) =>
  tables
    .selectFrom('runs')
    .select('lease_until as leaseUntil')
    .where('owner', '=', owner)
    // Literally as in the index `runs_live_by_owner`: neither engine would use it for parameters.
    .where(sql<boolean>`status in ('queued', 'running')`),
);

const insertRun = prepared((tables, row: RunRow) => tables.insertInto('runs').values(row));

function newRow(
  id: string,
  { request, message, lease }: { request: NewRun; message: Message; lease: Lease },
): RunRow {
  return {
    id,
    session_id: request.sessionId,
    owner: request.owner,
    request_id: request.requestId,
    turn: message.turn,
    status: request.status,
    error_kind: null,
    error_message: null,
    message_id: null,
    last_seq: 0,
    input_tokens: 0,
    output_tokens: 0,
    cached_tokens: 0,
    report: null,
    started_at: message.createdAt,
    updated_at: message.createdAt,
    host_id: lease.hostId,
    lease_until: lease.until,
  };
}
