import {
  type ActivityPage,
  APPROVE_ABILITY,
  type Approval,
  type ApprovalDecided,
  type ApprovalDecision,
  buildDecisionClaims,
  type DecideApproval,
  type DecisionClaims,
  hashTerms,
  type ListActivity,
  OracleError,
  toOracleResource,
} from '@sibyl/protocol';
import {
  didFromPublicKey,
  hasExactly,
  signReceipt,
  type UcanError,
  type VerifiedStatement,
  type Verifier,
} from '@sibyl/ucan';
import type { Logger } from 'pino';
import { checkAnswer } from '../../agent/json-schema.js';
import { toTemporaryError } from '../../auth/authenticator.js';
import type { Caller } from '../../auth/caller.js';
import type { OracleIdentity } from '../../auth/oracle-identity.js';
import { type RunGrants, tooManyGrants } from '../../auth/run-grants.js';
import type { Metrics } from '../../observability/metrics.js';
import type { StoredDecision } from '../../store/approval-store.js';
import type { Store } from '../../store/store.js';
import { confirmWrite } from '../start/idempotent-starts.js';
import { fromStoredRequest, type TurnRequest } from '../turn-request.js';
import type { Turns } from '../turns.js';

interface ApprovalsDeps {
  readonly store: Pick<Store, 'approvals' | 'activity' | 'runs' | 'now'>;
  readonly turns: Pick<Turns, 'assertOpen' | 'adopt'>;
  readonly grants: Pick<RunGrants, 'verify'>;
  /** Throws if the gates would not let a turn continue now, for example without credit. */
  readonly assertAdmitted: (request: TurnRequest) => Promise<void>;
  readonly verifier: Verifier;
  readonly oracle: OracleIdentity;
  readonly metrics: Metrics;
  readonly logger: Logger;
}

interface ApprovalKey {
  readonly owner: string;
  readonly id: string;
}

/** Tool calls that wait for the approval of their users, and the decisions. */
export class Approvals {
  constructor(private readonly deps: ApprovalsDeps) {}

  pending(owner: string, sessionId?: string): Promise<readonly Approval[]> {
    return this.deps.store.approvals.pending(owner, sessionId);
  }

  async get(key: ApprovalKey): Promise<Approval> {
    const approval = await this.deps.store.approvals.find(key);
    if (!approval) throw new OracleError('approval_not_found');
    return approval;
  }

  /** The text of the receipt of a signed decision. */
  async receipt(key: ApprovalKey): Promise<string> {
    const { isSigned } = await this.get(key);
    const receipt = await this.deps.store.approvals.receipt(key);
    if (receipt === undefined && isSigned)
      throw new OracleError('key_changed', { message: UNREADABLE_RECEIPT });
    if (receipt === undefined) throw new OracleError('receipt_not_found');
    return receipt;
  }

  async activity(owner: string, { limit, ...query }: ListActivity): Promise<ActivityPage> {
    // One more than asked for shows whether there is another page.
    const found = await this.deps.store.activity.list({ owner, limit: limit + 1, ...query });
    const entries = found.slice(0, limit);
    return { entries, nextCursor: found.length > limit ? (entries.at(-1)?.id ?? null) : null };
  }

  /** Decides a call that waits, and continues its turn. Without a signature, a call can only be denied. */
  async decide(caller: Caller, id: string, body: DecideApproval): Promise<ApprovalDecided> {
    this.deps.turns.assertOpen();
    const { did: owner } = caller;
    const approval = await this.get({ owner, id });
    if (approval.status !== 'pending') throw new OracleError('approval_closed');
    assertPossible(approval, body);
    const { decision, reason, args } = body;
    const decidedAt = this.deps.store.now();
    const proof = await this.prove(caller, approval, { ...body, decidedAt });
    const { delegation, grant } = await this.verifyDelegation(owner, approval, body);
    const answer = { decision, reason, args, delegation };
    const decided = { owner, id, answer, decidedAt, grant };
    if (decision === 'approve') await this.assertAdmitted(owner, approval);
    return this.store(approval, proof ? { ...decided, proof } : decided);
  }

  /** Denies a call for a user who cannot sign; again, it returns the same run. */
  async deny({
    owner,
    id,
    reason,
  }: ApprovalKey & { readonly reason?: string | undefined }): Promise<ApprovalDecided> {
    const { status, facts } = await this.get({ owner, id });
    if (status === 'denied') {
      const interrupt = await this.deps.store.runs.findInterrupt({ owner, interruptId: id });
      return { id, status, runId: interrupt?.nextRunId ?? facts.runId };
    }
    const caller = { did: owner, expiration: 0, presentedDelegation: undefined };
    return this.decide(caller, id, { decision: 'deny', reason: reason?.slice(0, MAX_REASON) });
  }

  /** What the user delegates with the approval: exactly what the approval asks for. */
  private async verifyDelegation(
    owner: string,
    { delegates }: Approval,
    { decision, args, delegation: token }: DecideApproval,
  ): Promise<Partial<Awaited<ReturnType<RunGrants['verify']>>>> {
    if (token === undefined) return {};
    if (!delegates || decision === 'deny' || args)
      throw new OracleError('validation_failed', { message: [UNWANTED_DELEGATION] });
    const caveats = await hashTerms(delegates.terms);
    return this.deps.grants.verify({ owner, token, resource: delegates.with, caveats });
  }

  /** Before it is stored: a receipt must not say that a call was approved that cannot run. */
  private async assertAdmitted(owner: string, { facts: { runId } }: Approval): Promise<void> {
    const request = fromStoredRequest(await this.deps.store.runs.request({ owner, runId }));
    if (request) await this.deps.assertAdmitted(request);
  }

  private async store(approval: Approval, decided: StoredDecision): Promise<ApprovalDecided> {
    const { id, answer } = decided;
    const result = await this.deps.store.approvals
      .decide(decided)
      .catch((error) => confirmWrite(error, () => this.findDecided(decided)));
    const status = answer.decision === 'approve' ? 'approved' : 'denied';
    switch (result.state) {
      case 'continued':
        this.count(status);
        // A decision that was confirmed late may have been continued, and even have paused again.
        if (result.run.status === 'running') void this.deps.turns.adopt(result.run);
        return { id, status, runId: result.run.runId };
      case 'waiting':
        this.count(status);
        return { id, status, runId: approval.facts.runId, pending: [...result.pending] };
      case 'replayed':
        throw this.refuse({ code: 'replayed', detail: 'used before', issuer: decided.owner });
      case 'too_many_grants':
        throw tooManyGrants();
      case 'unknown':
      case 'closed':
        throw new OracleError('approval_closed');
      default:
        return result satisfies never;
    }
  }

  /** How far the turn has got with exactly this decision; undefined if it is not stored. */
  private async findDecided({ owner, id, decidedAt }: StoredDecision) {
    const { approvals, runs } = this.deps.store;
    const approval = await approvals.find({ owner, id });
    if (approval?.decidedAt !== new Date(decidedAt).toISOString()) return undefined;
    const interrupt = await runs.findInterrupt({ owner, interruptId: id });
    const runId = interrupt?.nextRunId;
    const run = runId === undefined ? undefined : await runs.find({ owner, runId });
    if (run) return { state: 'continued', run } as const;
    const asked = interrupt ? await runs.interrupts(interrupt) : [];
    const pending = asked.filter(({ status }) => status === 'open');
    return { state: 'waiting', pending: pending.map(({ id, kind }) => ({ id, kind })) } as const;
  }

  private count(outcome: 'approved' | 'denied' | 'refused'): void {
    this.deps.metrics.count('sibyl_approvals_total', { outcome });
  }

  /** Verifies what the user signed, and countersigns it. */
  private async prove(
    { did, charge }: Caller,
    { id, facts, args: originalArgs }: Approval,
    { invocation, decision, args = originalArgs, reason = null, decidedAt }: ProvenDecision,
  ): Promise<StoredDecision['proof']> {
    if (invocation === undefined) return undefined;
    const { verifier, oracle } = this.deps;
    const claims = await buildClaims({ id, decision, originalArgs, args, reason });
    if (claims.originalArgsHash !== facts.argsHash) {
      // A denial needs no signature.
      if (decision === 'deny') return undefined;
      throw new OracleError('key_changed', { message: UNREADABLE_CALL });
    }
    const { ok, error } = await verifier.verifyStatement(invocation, {
      can: APPROVE_ABILITY,
      with: toOracleResource(oracle.did),
      issuer: did,
      isShortLived: true,
      charge,
    });
    if (error) throw toTemporaryError(error) ?? this.refuse(error);
    const mismatch = findMismatch(ok, claims);
    if (mismatch) throw this.refuse({ ...mismatch, cid: ok.cid, issuer: did });
    const receipt = signReceipt(
      {
        approval: id,
        facts,
        decision,
        originalArgs,
        args,
        reason,
        user: did,
        userKey: didFromPublicKey(ok.key),
        invocation,
        decidedAt: new Date(decidedAt).toISOString(),
      },
      oracle.signer,
    );
    return { cid: ok.cid, expiration: ok.expiration, receipt };
  }

  private refuse({ code, detail, cid, issuer }: UcanError): OracleError {
    this.count('refused');
    this.deps.logger.warn({ reason: code, detail, cid, did: issuer }, 'decision refused');
    return new OracleError('invalid_decision', { message: explainRefusal(code) });
  }
}

const UNWANTED_DELEGATION =
  'delegation: only for approving, without args, a call whose approval has `delegates`; leave it out';
const UNREADABLE_RECEIPT =
  'The receipt was encrypted with an earlier key of this oracle and cannot be read any more';
const UNREADABLE_CALL =
  'The arguments were encrypted with an earlier key of this oracle and cannot be read any more; deny the call and ask again';

/** As the schema of decisions allows. */
const MAX_REASON = 400;

type ProvenDecision = Omit<DecideApproval, 'reason'> & {
  readonly reason?: string | null | undefined;
  readonly decidedAt: number;
};

/** Throws if a decision cannot be made like this, even with a signature. */
function assertPossible({ inputSchema }: Approval, body: DecideApproval): void {
  const { decision, args, invocation } = body;
  if (decision === 'approve' && invocation === undefined)
    throw new OracleError('decision_unsigned');
  if (!args) return;
  if (decision === 'deny')
    throw new OracleError('validation_failed', { message: ['args: a denial has none'] });
  const { error } = checkAnswer(inputSchema, args);
  if (error) throw new OracleError('validation_failed', { message: [...error] });
}

/** Half a surrogate pair cannot be signed. */
async function buildClaims(decided: ApprovalDecision): Promise<DecisionClaims> {
  try {
    return await buildDecisionClaims(decided);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    const message = ['args, reason: must be valid Unicode'];
    throw new OracleError('validation_failed', { message, cause: error });
  }
}

function findMismatch(
  { nb }: VerifiedStatement,
  claims: DecisionClaims,
): Pick<UcanError, 'code' | 'detail'> | undefined {
  if (hasExactly(nb, claims)) return undefined;
  const names = Object.keys(claims) as (keyof DecisionClaims)[];
  const wrong = names.filter((name) => nb[name] !== claims[name]).join();
  return { code: 'wrong_capability', detail: `nb differs: ${wrong || 'other fields'}` };
}

/** Explains errors that the user can fix; all others have the same text. */
function explainRefusal(code: UcanError['code']): string {
  switch (code) {
    case 'expired':
      return 'The invocation has expired: sign the decision again';
    case 'replayed':
      return 'The invocation was used before: sign the decision again';
    case 'expiry_too_far':
    case 'expiry_missing':
      return 'The invocation is valid for too long: let it expire within minutes';
    case 'wrong_issuer':
      return 'The invocation was signed by another user';
    default:
      return 'The invocation does not sign exactly this decision about exactly these arguments';
  }
}
