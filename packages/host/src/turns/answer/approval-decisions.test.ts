import {
  type Approval,
  buildDecisionClaims,
  type DecideApproval,
  hashJson,
  hashTerms,
  OracleError,
} from '@sibyl/protocol';
import {
  createDidKeyResolver,
  createRevocationSet,
  createVerifier,
  generateSigner,
  mintDelegation,
  type Revocations,
  type Signer,
  systemClock,
} from '@sibyl/ucan';
import { pino } from 'pino';
import { describe, expect, it, vi } from 'vitest';
import { useStore } from '../../../test/support/test-database.js';
import { createApproval } from '../../../test/support/test-interrupts.js';
import { startTestRun } from '../../../test/support/test-runs.js';
import type { Caller } from '../../auth/caller.js';
import { OracleIdentity } from '../../auth/oracle-identity.js';
import { RunGrants } from '../../auth/run-grants.js';
import { Metrics } from '../../observability/metrics.js';
import type { Run } from '../../store/runs/run.js';
import type { Store } from '../../store/store.js';
import { StoreError } from '../../store/store-errors.js';
import { hostStopping } from '../start/turn-limits.js';
import { Approvals } from './approval-decisions.js';

const logger = pino({ level: 'silent' });
const oracle = new OracleIdentity('test', undefined, generateSigner());
const ARGS = { to: 'bob', amount: 50 };
const SCHEMA = { type: 'object', properties: { amount: { type: 'number', maximum: 100 } } };

const REQUEST = { args: ARGS, inputSchema: SCHEMA };

interface Signing {
  readonly signer?: Signer;
  readonly seconds?: number;
  readonly can?: string;
  readonly nb?: Readonly<Record<string, string>>;
}

describe('Approvals', () => {
  const test = useStore('sqlite');

  /** The service of a host, with the runs that it continues and what it counts. */
  function open({ isRevoked, store = test.store }: Partial<Revocations> & { store?: Store } = {}) {
    const adopted: Run[] = [];
    const state = { isStopping: false, refusal: undefined as OracleError | undefined };
    const turns = {
      assertOpen: () => {
        if (state.isStopping) throw hostStopping();
      },
      adopt: async (run: Run) => void adopted.push(run),
    };
    const revocations = createRevocationSet({ clock: systemClock });
    const verifier = createVerifier({
      audience: oracle.did,
      resolver: createDidKeyResolver(),
      revocations: isRevoked ? { isRevoked } : revocations,
    });
    const metrics = new Metrics();
    const count = vi.spyOn(metrics, 'count');
    const assertAdmitted = async () => {
      if (state.refusal) throw state.refusal;
    };
    const allowList = { findExclusion: async () => undefined };
    const grants = new RunGrants({ verifier, grants: store.grants, allowList });
    const deps = { store, turns, grants, assertAdmitted, verifier, oracle, metrics, logger };
    const approvals = new Approvals(deps);
    const counted = () => count.mock.calls.map(([name, labels]) => [name, labels?.outcome]);
    return { approvals, adopted, state, counted };
  }

  /** A turn of a new user that waits for approvals with these ids. */
  async function pause(
    ids: readonly string[] = ['a'],
    expiresInMs = 60_000,
    request: object = REQUEST,
  ) {
    const user = generateSigner();
    const { sessions, runs } = test.store;
    const owner = user.did;
    const { sessionId } = await sessions.create({ owner, oracleDid: oracle.did });
    const { key } = await startTestRun(test.store, { owner, sessionId });
    const approval = { expiresInMs, request, argsHash: await hashJson(ARGS) };
    const paused = await runs.pause({
      ...key,
      interrupts: ids.map((id) => createApproval(id, approval)),
      limit: 10,
      steps: [],
      request: { caller: { did: owner } },
      end: { message: { content: '', isComplete: false } },
    });
    expect(paused.state).toBe('paused');
    const caller: Caller = { did: owner, expiration: 0, presentedDelegation: undefined };
    return { user, owner, sessionId, runId: key.runId, caller };
  }

  type Paused = Awaited<ReturnType<typeof pause>>;
  type Decision = Omit<DecideApproval, 'invocation'>;

  /** Signs a decision about the approval `a` as the client does, or with something wrong. */
  async function sign({ user }: Paused, body: Decision, signing: Signing = {}) {
    const { signer = user, seconds = 120, can = 'oracle/approve' } = signing;
    const claims = await buildDecisionClaims({ id: 'a', originalArgs: ARGS, ...body });
    const { ok, error } = mintDelegation({
      signer,
      audience: oracle.did,
      capabilities: [{ can, with: `ixo:oracle:${oracle.did}`, nb: signing.nb ?? claims }],
      expiration: systemClock() + seconds,
      nonce: crypto.randomUUID(),
    });
    if (error) throw new Error(error.detail);
    return { ...ok, body: { ...body, invocation: ok.token } };
  }

  const findStatus = async ({ owner }: Paused): Promise<Approval['status'] | undefined> =>
    (await test.store.approvals.find({ owner, id: 'a' }))?.status;

  it('decide stores its delegation and the decision together, or neither', async () => {
    const { approvals } = open();
    const resource = `ixo:oracle:${oracle.did}:schedule/1`;
    const delegates = {
      ...{ can: 'oracle/run' as const, with: resource, terms: { message: 'Hi' } },
      expiresInSeconds: 60,
    };
    const paused = await pause(['a'], 60_000, { ...REQUEST, delegates });
    const { owner, caller, user } = paused;
    const capabilities = [
      { can: 'oracle/run', with: resource, nb: await hashTerms({ message: 'Hi' }) },
    ];
    const terms = { signer: user, audience: oracle.did, capabilities };
    const delegation = mintDelegation({ ...terms, expiration: systemClock() + 60 }).ok?.token;
    const { grants } = test.store;
    const facts = { owner, audience: oracle.did, capabilities, expiresAt: null, raw: '' };
    const cids = Array.from({ length: 200 }, (_, n) => `other-${n}`);
    for (const cid of cids) await grants.put({ ...facts, cid, purpose: 'schedule' });
    const { body } = await sign(paused, { decision: 'approve' });
    await expect(approvals.decide(caller, 'a', { ...body, delegation })).rejects.toMatchObject({
      code: 'invalid_delegation',
    });
    expect(await findStatus(paused)).toBe('pending');
    await grants.remove({ owner, cid: 'other-0', purpose: 'schedule' });
    await approvals.decide(caller, 'a', { ...body, delegation });
    const stored = await grants.list({ owner, purpose: 'schedule' });
    expect(stored.filter(({ raw }) => raw === delegation)).toHaveLength(1);
    expect(await findStatus(paused)).toBe('approved');
  });

  it('decide succeeds if the decision is stored although the reply of the database is lost', async () => {
    const stored: Store['approvals'] = Object.create(test.store.approvals);
    stored.decide = async (decided) => {
      await test.store.approvals.decide(decided);
      throw new StoreError('Connection terminated unexpectedly');
    };
    const { approvals, adopted } = open({ store: { ...test.store, approvals: stored } });
    const paused = await pause(['a', 'b']);
    const first = await approvals.decide(paused.caller, 'b', { decision: 'deny' });
    const pending = [{ id: 'a', kind: 'confirmation' }];
    expect(first).toEqual({ id: 'b', status: 'denied', runId: paused.runId, pending });
    const { body } = await sign(paused, { decision: 'approve' });
    const decided = await approvals.decide(paused.caller, 'a', body);
    expect(decided).toEqual({ id: 'a', status: 'approved', runId: adopted[0]?.runId });
    expect(adopted).toMatchObject([{ attempt: 2, status: 'running' }]);
  });

  it('decide fails if the database fails before the decision is stored', async () => {
    const stored: Store['approvals'] = Object.create(test.store.approvals);
    stored.decide = async () => {
      throw new StoreError('away');
    };
    const { approvals, adopted } = open({ store: { ...test.store, approvals: stored } });
    const paused = await pause();
    const { body } = await sign(paused, { decision: 'approve' });
    await expect(approvals.decide(paused.caller, 'a', body)).rejects.toThrow('away');
    expect([adopted, await findStatus(paused)]).toEqual([[], 'pending']);
  });

  it('decide refuses an approval that the gates refuse, without a receipt; it can be decided later', async () => {
    const { approvals, adopted, state } = open();
    const paused = await pause();
    const { body } = await sign(paused, { decision: 'approve' });
    state.refusal = new OracleError('insufficient_credit');
    await expect(approvals.decide(paused.caller, 'a', body)).rejects.toBe(state.refusal);
    expect([adopted, await findStatus(paused)]).toEqual([[], 'pending']);
    state.refusal = undefined;
    await approvals.decide(paused.caller, 'a', body);
    expect([adopted.length, await findStatus(paused)]).toEqual([1, 'approved']);
  });

  it('decide stores a denial although the gates refuse the turn', async () => {
    const { approvals, state } = open();
    const paused = await pause();
    state.refusal = new OracleError('insufficient_credit');
    await approvals.decide(paused.caller, 'a', { decision: 'deny' });
    expect(await findStatus(paused)).toBe('denied');
  });

  it('decide continues the turn with a signed approval, and countersigns it', async () => {
    const { approvals, adopted, counted } = open();
    const paused = await pause();
    const { owner, caller, runId, user } = paused;
    const args = { to: 'carol', amount: 20 };
    const before = Date.now();
    const { body } = await sign(paused, { decision: 'approve', args, reason: 'less' });
    const decided = await approvals.decide(caller, 'a', body);
    expect(adopted).toMatchObject([{ owner, attempt: 2, status: 'running' }]);
    expect(decided).toEqual({ id: 'a', status: 'approved', runId: adopted[0]?.runId });
    expect(decided.runId).not.toBe(runId);
    expect(await approvals.get({ owner, id: 'a' })).toMatchObject({
      status: 'approved',
      isSigned: true,
      approvedArgs: args,
      reason: 'less',
    });
    const receipt = await approvals.receipt({ owner, id: 'a' });
    const signed = JSON.parse(receipt);
    expect(signed).toMatchObject({
      approval: 'a',
      decision: 'approve',
      originalArgs: ARGS,
      args,
      reason: 'less',
      user: owner,
      userKey: user.did,
      oracle: oracle.did,
      invocation: body.invocation,
    });
    expect(Date.parse(signed.decidedAt)).toBeGreaterThanOrEqual(before);
    expect(counted()).toEqual([['sibyl_approvals_total', 'approved']]);
  });

  it('decide names what the turn still waits for, and continues it with the last decision', async () => {
    const { approvals, adopted, counted } = open();
    const { caller, owner, runId } = await pause(['a', 'b']);
    const first = await approvals.decide(caller, 'b', { decision: 'deny' });
    const pending = [{ id: 'a', kind: 'confirmation' }];
    expect(first).toEqual({ id: 'b', status: 'denied', runId, pending });
    expect(adopted).toEqual([]);
    // Again, while the turn still waits.
    expect(await approvals.deny({ owner, id: 'b' })).toEqual({ id: 'b', status: 'denied', runId });
    const last = await approvals.decide(caller, 'a', { decision: 'deny', reason: 'no' });
    expect(last).toEqual({ id: 'a', status: 'denied', runId: adopted[0]?.runId });
    expect(adopted).toHaveLength(1);
    const outcome = ['sibyl_approvals_total', 'denied'];
    expect(counted()).toEqual([outcome, outcome]);
  });

  it('decide accepts nothing while the host stops', async () => {
    const { approvals, state } = open();
    const paused = await pause();
    state.isStopping = true;
    const denial = approvals.decide(paused.caller, 'a', { decision: 'deny' });
    await expect(denial).rejects.toMatchObject({ code: 'host_stopping' });
    expect(await findStatus(paused)).toBe('pending');
  });

  it.each<[string, DecideApproval, string, RegExp]>([
    ['an approval without a signature', { decision: 'approve' }, 'decision_unsigned', /./],
    [
      'a denial with arguments',
      { decision: 'deny', args: ARGS },
      'validation_failed',
      /args: a denial/,
    ],
    [
      'arguments that do not fit the tool',
      { decision: 'approve', args: { amount: 500 }, invocation: 'x' },
      'validation_failed',
      /amount/,
    ],
    [
      'a reason with half a surrogate pair',
      { decision: 'deny', reason: '\ud800', invocation: 'x' },
      'validation_failed',
      /Unicode/,
    ],
    [
      'what is not an invocation',
      { decision: 'approve', invocation: 'x' },
      'invalid_decision',
      /exactly this decision/,
    ],
  ])('decide refuses %s', async (_, body, code, message) => {
    const { approvals, adopted } = open();
    const paused = await pause();
    const refused = await approvals.decide(paused.caller, 'a', body).catch((error) => error);
    expect(refused.code).toBe(code);
    expect(String(refused.lines ?? refused.message)).toMatch(message);
    expect(await findStatus(paused)).toBe('pending');
    expect(adopted).toEqual([]);
  });

  it.each<[string, Signing, RegExp]>([
    ['has expired', { seconds: -1 }, /has expired: sign the decision again/],
    ['is valid for too long', { seconds: 86_400 }, /expire within minutes/],
    ['is of another user', { signer: generateSigner() }, /signed by another user/],
    ['is of another ability', { can: 'oracle/rules' }, /exactly this decision/],
    ['says nothing', { nb: {} }, /exactly this decision/],
  ])('decide explains that an invocation %s, and counts it', async (_, signing, message) => {
    const { approvals, counted } = open();
    const paused = await pause();
    const { body } = await sign(paused, { decision: 'approve' }, signing);
    const refused = await approvals.decide(paused.caller, 'a', body).catch((error) => error);
    expect(refused).toMatchObject({ code: 'invalid_decision' });
    expect(refused.message).toMatch(message);
    expect(await findStatus(paused)).toBe('pending');
    expect(counted()).toEqual([['sibyl_approvals_total', 'refused']]);
  });

  it.each<[string, Decision, Decision]>([
    ['other arguments', { decision: 'approve', args: { amount: 1 } }, { decision: 'approve' }],
    ['another reason', { decision: 'deny', reason: 'a' }, { decision: 'deny', reason: 'b' }],
    ['another decision', { decision: 'deny' }, { decision: 'approve' }],
  ])('decide refuses a signature about %s', async (_, signed, sent) => {
    const { approvals } = open();
    const paused = await pause();
    const { token } = await sign(paused, signed);
    const decided = approvals.decide(paused.caller, 'a', { ...sent, invocation: token });
    await expect(decided).rejects.toMatchObject({ code: 'invalid_decision' });
    expect(await findStatus(paused)).toBe('pending');
  });

  it('decide refuses an invocation that was used before, and decides nothing', async () => {
    const { approvals, adopted, counted } = open();
    const paused = await pause();
    const { cid, body } = await sign(paused, { decision: 'approve' });
    await test.store.singleUse.of(paused.owner).claim(cid, systemClock() + 600);
    const refused = await approvals.decide(paused.caller, 'a', body).catch((error) => error);
    expect(refused).toMatchObject({ code: 'invalid_decision' });
    expect(refused.message).toMatch(/used before/);
    expect(await findStatus(paused)).toBe('pending');
    expect(adopted).toEqual([]);
    expect(counted()).toEqual([['sibyl_approvals_total', 'refused']]);
  });

  it('decide can be repeated after an invocation could not be checked', async () => {
    const { approvals, counted } = open({ isRevoked: () => Promise.reject(new Error('away')) });
    const paused = await pause();
    const { body } = await sign(paused, { decision: 'approve' });
    const decided = approvals.decide(paused.caller, 'a', body);
    await expect(decided).rejects.toMatchObject({ code: 'store_unavailable' });
    expect(counted()).toEqual([]);
    expect(await open().approvals.decide(paused.caller, 'a', body)).toMatchObject({
      status: 'approved',
    });
  });

  it('decide charges the caller for the verification', async () => {
    const { approvals } = open();
    const paused = await pause();
    const { body } = await sign(paused, { decision: 'approve' });
    const caller = { ...paused.caller, charge: () => undefined };
    const decided = approvals.decide(caller, 'a', body);
    await expect(decided).rejects.toMatchObject({ code: 'rate_limited' });
  });

  it('decide refuses what has been decided or has expired', async () => {
    const { approvals } = open();
    const closed = { code: 'approval_closed' };
    const { caller } = await pause();
    await approvals.decide(caller, 'a', { decision: 'deny' });
    const again = approvals.decide(caller, 'a', { decision: 'deny' });
    await expect(again).rejects.toMatchObject(closed);
    // Signing it would not help.
    const unsigned = approvals.decide(caller, 'a', { decision: 'approve' });
    await expect(unsigned).rejects.toMatchObject(closed);
    const late = await pause(['a'], -1);
    const denial = approvals.decide(late.caller, 'a', { decision: 'deny' });
    await expect(denial).rejects.toMatchObject(closed);
  });

  it('shows and decides only the calls of the user', async () => {
    const { approvals } = open();
    const paused = await pause();
    const { owner, sessionId } = paused;
    const stranger = await pause(['z']);
    const unknown = { code: 'approval_not_found' };
    const key = { owner: stranger.owner, id: 'a' };
    await expect(approvals.get(key)).rejects.toMatchObject(unknown);
    await expect(approvals.receipt(key)).rejects.toMatchObject(unknown);
    await expect(approvals.deny(key)).rejects.toMatchObject(unknown);
    const denial = approvals.decide(stranger.caller, 'a', { decision: 'deny' });
    await expect(denial).rejects.toMatchObject(unknown);
    const ids = async (of: string, session?: string) =>
      (await approvals.pending(of, session)).map(({ id }) => id);
    expect(await ids(owner)).toEqual(['a']);
    expect(await ids(owner, sessionId)).toEqual(['a']);
    expect(await ids(owner, stranger.sessionId)).toEqual([]);
    expect(await findStatus(paused)).toBe('pending');
  });

  it('receipt is missing until a decision is signed', async () => {
    const { approvals } = open();
    const { owner } = await pause();
    const missing = { code: 'receipt_not_found' };
    await expect(approvals.receipt({ owner, id: 'a' })).rejects.toMatchObject(missing);
    await approvals.deny({ owner, id: 'a' });
    await expect(approvals.receipt({ owner, id: 'a' })).rejects.toMatchObject(missing);
  });

  it('deny returns the same run when it is repeated', async () => {
    const { approvals, adopted } = open();
    const { owner } = await pause();
    const denied = await approvals.deny({ owner, id: 'a', reason: 'x'.repeat(401) });
    expect(denied).toEqual({ id: 'a', status: 'denied', runId: adopted[0]?.runId });
    expect(await approvals.deny({ owner, id: 'a', reason: 'other' })).toEqual(denied);
    expect(adopted).toHaveLength(1);
    // As long as a reason may be.
    expect(await approvals.get({ owner, id: 'a' })).toMatchObject({ reason: 'x'.repeat(400) });
  });

  it('deny refuses a call that was approved', async () => {
    const { approvals } = open();
    const paused = await pause();
    const { body } = await sign(paused, { decision: 'approve' });
    await approvals.decide(paused.caller, 'a', body);
    const denial = approvals.deny({ owner: paused.owner, id: 'a' });
    await expect(denial).rejects.toMatchObject({ code: 'approval_closed' });
    expect(await findStatus(paused)).toBe('approved');
  });

  it('activity is listed in pages, and the last one has no cursor', async () => {
    const { approvals } = open();
    const { owner, sessionId } = await pause(['a', 'b', 'c', 'd']);
    const all = await approvals.activity(owner, { limit: 4 });
    expect(all).toMatchObject({ nextCursor: null });
    const ids = all.entries.map(({ approvalId }) => approvalId);
    expect(ids.toSorted()).toEqual(['a', 'b', 'c', 'd']);
    const first = await approvals.activity(owner, { limit: 3, sessionId });
    expect(first).toEqual({ entries: all.entries.slice(0, 3), nextCursor: all.entries[2]?.id });
    const rest = await approvals.activity(owner, { limit: 3, before: first.nextCursor ?? '' });
    expect(rest).toEqual({ entries: all.entries.slice(3), nextCursor: null });
  });
});
