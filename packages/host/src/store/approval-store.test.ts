import { describe, expect, it, onTestFinished } from 'vitest';
import { engines, newOwner, useStore } from '../../test/support/test-database.js';
import { createMailApproval } from '../../test/support/test-interrupts.js';
import { startTestRun } from '../../test/support/test-runs.js';
import { ApprovalStore } from './approval-store.js';
import { createVault, type Vault } from './encryption.js';
import { openDatabase } from './open-database.js';

describe.each(engines)('ApprovalStore on %s', (engine) => {
  const test = useStore(engine);

  /** Pauses a run in a new session, of a new user by default, until these approvals are decided. */
  async function requestApprovals(ids: readonly string[], owner = newOwner(), schema = {}) {
    const { runs, sessions } = test.store;
    const { sessionId } = await sessions.create({ owner, oracleDid: 'did:key:zOracle' });
    const { key } = await startTestRun(test.store, { owner, sessionId });
    const paused = await runs.pause({
      ...key,
      interrupts: ids.map((id) => createMailApproval(id, schema)),
      steps: [],
      request: {},
      limit: 10,
      end: { message: { content: '', isComplete: false } },
    });
    expect(paused.state).toBe('paused');
    return { owner, sessionId };
  }

  const listPending = async (owner: string, sessionId?: string) =>
    (await test.store.approvals.pending(owner, sessionId)).map(({ id }) => id).sort();

  const createDecision = (owner: string, id: string, cid?: string) =>
    ({
      owner,
      id,
      answer: { decision: 'approve', reason: `Yes to ${id}` },
      decidedAt: Date.now(),
      ...(cid && { proof: { cid, expiration: 10_000_000_000, receipt: `receipt of ${id}` } }),
    }) as const;

  it('ApprovalStore.pending returns the open ones of a user, or of one session', async () => {
    const { owner, sessionId } = await requestApprovals(['a', 'b', 'c']);
    const other = await requestApprovals(['d'], owner);
    await requestApprovals(['e']);
    await test.store.approvals.decide(createDecision(owner, 'b'));
    expect(await listPending(owner)).toEqual(['a', 'c', 'd']);
    expect(await listPending(owner, sessionId)).toEqual(['a', 'c']);
    expect(await listPending(owner, other.sessionId)).toEqual(['d']);
    expect(await listPending(newOwner(), sessionId)).toEqual([]);
  });

  it('ApprovalStore.pending returns at most 100', async () => {
    const { owner } = await requestApprovals(Array.from({ length: 101 }, (_, i) => `a${i}`));
    expect(await listPending(owner)).toHaveLength(100);
  });

  it('ApprovalStore.pending decrypts large requests in portions, between which others are served', async () => {
    const schema = { description: 'x'.repeat(200_000) };
    const { owner } = await requestApprovals(['a', 'b', 'c', 'd', 'e'], newOwner(), schema);
    const vault = createVault(test.options.secretKey);
    const database = await openDatabase(test.options);
    onTestFinished(() => database.close());
    let tick = 0;
    const opened: number[] = [];
    const countTicks = () => {
      tick += 1;
      if (opened.length < 5) setImmediate(countTicks);
    };
    countTicks();
    const open: Vault['open'] = (...sealed) => {
      opened.push(tick);
      return vault.open(...sealed);
    };
    const context = { database, clock: Date.now, newId: () => crypto.randomUUID() };
    const approvals = await new ApprovalStore(context, { ...vault, open }, 'host').pending(owner);
    expect(approvals.map(({ id, inputSchema }) => [id, inputSchema])).toEqual(
      ['a', 'b', 'c', 'd', 'e'].map((id) => [id, schema]),
    );
    const perTick = [...Map.groupBy(opened, (at) => at).values()].map(({ length }) => length);
    expect(Math.max(...perTick)).toBeLessThanOrEqual(2);
  });

  it('ApprovalStore.find returns one approval of its user', async () => {
    const { approvals } = test.store;
    const { owner, sessionId } = await requestApprovals(['a', 'b']);
    for (const id of ['a', 'b'])
      expect(await approvals.find({ owner, id })).toMatchObject({
        id,
        facts: { sessionId, tool: 'send' },
        args: { to: id },
        status: 'pending',
      });
    expect(await approvals.find({ owner, id: 'unknown' })).toBeUndefined();
    expect(await approvals.find({ owner: newOwner(), id: 'a' })).toBeUndefined();
  });

  it('ApprovalStore.decide stores the decision and the receipt of one approval', async () => {
    const { approvals } = test.store;
    const { owner } = await requestApprovals(['a', 'b', 'c']);
    const decide = (id: string) => approvals.decide(createDecision(owner, id, `${id}-${owner}`));
    expect(await decide('b')).toMatchObject({ state: 'waiting' });
    expect(await decide('c')).toMatchObject({ state: 'waiting' });
    expect(await approvals.find({ owner, id: 'a' })).toMatchObject({ status: 'pending' });
    for (const id of ['b', 'c']) {
      const decided = { status: 'approved', isSigned: true, reason: `Yes to ${id}` };
      expect(await approvals.find({ owner, id })).toMatchObject(decided);
      expect(await approvals.receipt({ owner, id })).toBe(`receipt of ${id}`);
      expect(await approvals.receipt({ owner: newOwner(), id })).toBeUndefined();
    }
    expect(await approvals.receipt({ owner, id: 'a' })).toBeUndefined();
    expect(await decide('b')).toMatchObject({ state: 'closed' });
    expect(await decide('a')).toMatchObject({ state: 'continued' });
  });

  it('ApprovalStore.decide accepts an invocation once, and changes nothing the second time', async () => {
    const { approvals } = test.store;
    const { owner } = await requestApprovals(['a', 'b']);
    const cid = `used-${owner}`;
    await approvals.decide(createDecision(owner, 'a', cid));
    expect(await approvals.decide(createDecision(owner, 'b', cid))).toEqual({ state: 'replayed' });
    expect(await listPending(owner)).toEqual(['b']);
    const foreign = createDecision(newOwner(), 'b', `foreign-${owner}`);
    expect(await approvals.decide(foreign)).toEqual({ state: 'unknown' });
    expect(await listPending(owner)).toEqual(['b']);
  });
});
