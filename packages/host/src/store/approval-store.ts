import { setImmediate as nextTick } from 'node:timers/promises';
import type { RunDelegation } from '@sibyl/plugin-kit';
import type { Approval, ApprovalDelegation, Decision, JsonObject } from '@sibyl/protocol';
import { type Kysely, sql } from 'kysely';
import type { StoreContext } from './database.js';
import type { Vault } from './encryption.js';
import { insertGrant, type NewGrant } from './grant-store.js';
import { claimOnce } from './revocation-store.js';
import { type AnswerResult, endInterrupt, recordEnd } from './runs/pauses.js';
import type { ApprovalRow } from './schema/approvals.js';
import type { Schema } from './schema/index.js';
import type { InterruptRow } from './schema/interrupts.js';

/** Each may have 128 KiB of arguments. */
const PENDING_PER_LIST = 100;
/** Of encrypted requests that are read at once. */
const PORTION_BYTES = 512 * 1024;

interface ApprovalKey {
  readonly owner: string;
  readonly id: string;
}

/** What is encrypted of the call. */
interface ApprovalRequest {
  readonly args: JsonObject;
  readonly inputSchema: JsonObject;
  readonly delegates?: ApprovalDelegation | undefined;
}

/** What the tool receives once its call is decided. */
export interface ApprovalAnswer {
  readonly decision: Decision;
  readonly reason?: string | undefined;
  /** If the user edited the arguments. */
  readonly args?: JsonObject | undefined;
  /** What the user delegated with it. */
  readonly delegation?: RunDelegation | undefined;
}

export interface StoredDecision extends ApprovalKey {
  readonly answer: ApprovalAnswer;
  /** Milliseconds. */
  readonly decidedAt: number;
  /** The invocation that is used up, and the receipt; undefined if the decision is not signed. */
  readonly proof?: {
    readonly cid: string;
    /** Unix seconds. */
    readonly expiration: number;
    readonly receipt: string;
  };
  /** What the user delegated with it. */
  readonly grant?: NewGrant | undefined;
}

interface RefusedDecision {
  readonly state: 'replayed' | 'too_many_grants';
}

/** How long a used invocation is remembered after its expiry, in seconds. */
const KEEP_SECONDS = 60;

/** Tool calls that need, or needed, the approval of their users. */
export class ApprovalStore {
  constructor(
    private readonly context: StoreContext,
    private readonly vault: Vault,
    private readonly hostId: string,
  ) {}

  /** The pending ones, oldest first. */
  async pending(owner: string, sessionId?: string): Promise<readonly Approval[]> {
    const { tables } = this.context.database;
    const pending: Approval[] = [];
    for (const ids of splitBySize(await listPending(tables, owner, sessionId))) {
      if (pending.length > 0) await nextTick();
      const rows = await selectApprovals(tables, owner)
        .where('a.id', 'in', ids)
        // It may have been decided meanwhile.
        .where('i.status', '=', 'open')
        .orderBy('a.created_at')
        .orderBy('a.id')
        .execute();
      pending.push(...rows.map((row) => this.toApproval(row)));
    }
    return pending;
  }

  async find({ owner, id }: ApprovalKey): Promise<Approval | undefined> {
    const row = await selectApprovals(this.context.database.tables, owner)
      .where('a.id', '=', id)
      .executeTakeFirst();
    return row && this.toApproval(row);
  }

  /** The text of the receipt, if the user signed the decision. */
  async receipt({ owner, id }: ApprovalKey): Promise<string | undefined> {
    const row = await this.context.database.tables
      .selectFrom('approvals')
      .select('receipt')
      .where('owner', '=', owner)
      .where('id', '=', id)
      .executeTakeFirst();
    return row?.receipt ? this.open('receipt', owner, row.receipt) : undefined;
  }

  /** Stores a decision, its receipt, its delegation and the use of its invocation, and continues the turn: all or nothing. */
  async decide(decided: StoredDecision): Promise<AnswerResult | RefusedDecision> {
    const { owner, id, answer, decidedAt, proof, grant } = decided;
    const sealed = this.vault.seal(JSON.stringify(answer), ['answer', owner]);
    const receipt = proof ? this.vault.seal(proof.receipt, ['receipt', owner]) : null;
    const end = { owner, interruptId: id, status: 'answered', answer: sealed } as const;
    const decision = { decision: answer.decision, decided_at: decidedAt, answer: sealed, receipt };
    try {
      return await this.context.database.writeFor(owner, async (tables) => {
        const result = await endInterrupt(tables, { ...end, hostId: this.hostId }, this.context);
        if (result.state === 'unknown' || result.state === 'closed') return result;
        if (proof && !(await spend(tables, owner, proof))) throw new RefusedError('replayed');
        if (grant) await this.storeGrant(tables, grant);
        await tables
          .updateTable('approvals')
          .set(decision)
          .where('owner', '=', owner)
          .where('id', '=', id)
          .execute();
        const outcome = answer.decision === 'approve' ? 'approved' : 'denied';
        const by = proof ? 'signature' : 'request';
        await recordEnd(tables, { owner, ids: [id], outcome, by }, this.context);
        return result;
      });
    } catch (error) {
      if (error instanceof RefusedError) return { state: error.state };
      throw error;
    }
  }

  private async storeGrant(tables: Kysely<Schema>, grant: NewGrant): Promise<void> {
    const sealing = { vault: this.vault, now: this.context.clock() };
    if (!(await insertGrant(tables, grant, sealing))) throw new RefusedError('too_many_grants');
  }

  private toApproval(row: SelectedApproval): Approval {
    const { owner } = row;
    // Empty if it cannot be read, because the oracle's key has changed: the hash of the arguments shows that.
    const {
      args = {},
      inputSchema = {},
      delegates,
    }: Partial<ApprovalRequest> = JSON.parse(this.open('approval', owner, row.request) ?? '{}');
    const answer: Partial<ApprovalAnswer> =
      row.answer === null ? {} : JSON.parse(this.open('answer', owner, row.answer) ?? '{}');
    return {
      id: row.id,
      facts: {
        sessionId: row.session_id,
        runId: row.run_id,
        call: row.call,
        tool: row.tool,
        plugin: row.plugin,
        argsHash: row.args_hash,
      },
      toolCallId: row.call_id,
      args,
      inputSchema,
      requiredBy: row.required_by,
      ...(delegates && { delegates }),
      status: toStatus(row),
      createdAt: new Date(row.created_at).toISOString(),
      expiresAt: new Date(row.expires_at).toISOString(),
      ...(row.decided_at !== null && {
        decidedAt: new Date(row.decided_at).toISOString(),
        isSigned: row.receipt !== null,
      }),
      ...(answer.reason !== undefined && { reason: answer.reason }),
      ...(answer.args && { approvedArgs: answer.args }),
    };
  }

  private open(kind: 'approval' | 'answer' | 'receipt', owner: string, sealed: string) {
    const opened = this.vault.open(sealed, [kind, owner]);
    return 'ok' in opened ? opened.ok : undefined;
  }
}

/** The ids of pending approvals, oldest first, and how large they are. Users have few open interrupts, and many approvals. */
function listPending(tables: Kysely<Schema>, owner: string, sessionId: string | undefined) {
  const query = tables
    .selectFrom('interrupts as i')
    // In this order also on SQLite.
    .crossJoin('approvals as a')
    .select(['a.id', sql<number>`octet_length(a.request)`.as('bytes')])
    .where('i.owner', '=', owner)
    .where('i.status', '=', sql.lit('open'))
    .whereRef('a.owner', '=', 'i.owner')
    .whereRef('a.id', '=', 'i.id')
    .orderBy('a.created_at')
    .orderBy('a.id')
    .limit(PENDING_PER_LIST);
  const listed = sessionId === undefined ? query : query.where('i.session_id', '=', sessionId);
  return listed.execute();
}

/** In portions that do not block the event loop for long; each has at least one. */
function splitBySize(
  approvals: readonly { readonly id: string; readonly bytes: number }[],
): string[][] {
  const portions: string[][] = [];
  let size = Number.POSITIVE_INFINITY;
  for (const { id, bytes } of approvals) {
    if (size + bytes > PORTION_BYTES) {
      portions.push([]);
      size = 0;
    }
    portions.at(-1)?.push(id);
    size += bytes;
  }
  return portions;
}

/** Rolls the decision back. */
class RefusedError extends Error {
  constructor(readonly state: RefusedDecision['state']) {
    super();
  }
}

function spend(
  tables: Kysely<Schema>,
  owner: string,
  { cid, expiration }: NonNullable<StoredDecision['proof']>,
): Promise<boolean> {
  return claimOnce(tables, { cid, owner, expires_at: expiration + KEEP_SECONDS });
}

/** The interrupt decides whether an approval is pending; it is deleted with its session, the approval is not. */
const selectApprovals = (tables: Kysely<Schema>, owner: string) =>
  tables
    .selectFrom('approvals as a')
    .leftJoin('interrupts as i', (join) =>
      join.onRef('i.owner', '=', 'a.owner').onRef('i.id', '=', 'a.id'),
    )
    .selectAll('a')
    .select('i.status')
    .where('a.owner', '=', owner);

type SelectedApproval = ApprovalRow & { readonly status: InterruptRow['status'] | null };

function toStatus({ decision, status }: SelectedApproval): Approval['status'] {
  if (decision !== null) return decision === 'approve' ? 'approved' : 'denied';
  if (status === 'open') return 'pending';
  return status === 'expired' ? 'expired' : 'cancelled';
}
