import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, expect, it } from 'vitest';
import { newOwner, useStore } from '../../test/support/test-database.js';
import { createMailApproval } from '../../test/support/test-interrupts.js';
import { openTestSession, startTestRun } from '../../test/support/test-runs.js';
import type { ApprovalAnswer } from './approval-store.js';

const ONE_HOUR_MS = 3_600_000;
const inputSchema = { type: 'object' };

const createInterrupt = (id: string) => createMailApproval(id, inputSchema);

describe('the outcome of an approval', () => {
  let now = 1_700_000_000_000;
  const test = useStore('sqlite', { clock: () => now });

  /** Pauses a run until these approvals are decided. */
  async function request(ids: readonly string[], session?: { owner: string; sessionId: string }) {
    const { runs } = test.store;
    const { owner, sessionId } = session ?? (await openTestSession(test.store));
    const { key } = await startTestRun(test.store, { owner, sessionId });
    await runs.pause({
      ...key,
      interrupts: ids.map((id) => createInterrupt(id)),
      steps: [],
      request: {},
      limit: 10,
      end: { message: { content: '', isComplete: false } },
    });
    const decide = (
      id: string,
      answer: ApprovalAnswer,
      proof?: { cid: string; expiration?: number },
    ) =>
      test.store.approvals.decide({
        owner,
        id,
        answer,
        decidedAt: now,
        ...(proof && { proof: { expiration: 2_000_000_000, receipt: 'receipt', ...proof } }),
      });
    const find = (id: string) => test.store.approvals.find({ owner, id });
    return { owner, sessionId, key, decide, find };
  }

  const listEnds = async (owner: string) =>
    (await test.store.activity.list({ owner, limit: 10 }))
      .filter(({ kind }) => kind === 'approval_decided')
      .map(({ approvalId, outcome, decidedBy }) => [approvalId, outcome, decidedBy]);

  it('a pending approval has all that the user needs to decide', async () => {
    const { sessionId, key, find } = await request(['a']);
    expect(await find('a')).toEqual({
      id: 'a',
      facts: {
        sessionId,
        runId: key.runId,
        call: '1',
        tool: 'send',
        plugin: 'mail',
        argsHash: 'hash',
      },
      toolCallId: 'call-a',
      args: { to: 'a' },
      inputSchema,
      requiredBy: 'tool',
      status: 'pending',
      createdAt: new Date(now).toISOString(),
      expiresAt: new Date(now + ONE_HOUR_MS).toISOString(),
    });
  });

  it('an approval has its edited arguments, and who decided is recorded', async () => {
    const { owner, decide, find } = await request(['a', 'b', 'c']);
    now += 1_000;
    await decide('a', { decision: 'approve', args: { to: 'b' } });
    const signed = { cid: `cid-${owner}` };
    await decide('b', { decision: 'deny', reason: 'No' }, signed);
    const decidedAt = new Date(now).toISOString();
    const approved = await find('a');
    expect(approved).toMatchObject({ status: 'approved', approvedArgs: { to: 'b' }, decidedAt });
    expect(approved).toMatchObject({ isSigned: false, args: { to: 'a' } });
    expect(approved).not.toHaveProperty('reason');
    const denied = await find('b');
    expect(denied).toMatchObject({ status: 'denied', reason: 'No', decidedAt, isSigned: true });
    expect(denied).not.toHaveProperty('approvedArgs');
    expect(await find('c')).not.toHaveProperty('decidedAt');
    expect(await listEnds(owner)).toEqual([
      ['b', 'denied', 'signature'],
      ['a', 'approved', 'request'],
    ]);
    expect(await test.store.approvals.receipt({ owner, id: 'a' })).toBeUndefined();
  });

  it('what is not decided uses up no invocation and records nothing', async () => {
    const { owner, decide } = await request(['a', 'b']);
    const { singleUse } = test.store;
    await decide('a', { decision: 'approve' });
    const before = await listEnds(owner);
    const cid = `late-${owner}`;
    expect(await decide('unknown', { decision: 'deny' }, { cid })).toEqual({ state: 'unknown' });
    expect(await decide('a', { decision: 'deny' }, { cid })).toMatchObject({ state: 'closed' });
    expect(await singleUse.has(cid)).toBe(false);
    expect(await listEnds(owner)).toEqual(before);
    expect(await decide('b', { decision: 'deny' }, { cid })).toMatchObject({ state: 'continued' });
    expect(await singleUse.has(cid)).toBe(true);
  });

  it('a decision that cannot be stored is not taken for a repeated one, and uses up nothing', async () => {
    const { owner, decide, find } = await request(['a']);
    const cid = `failed-${owner}`;
    const file = new DatabaseSync(join(test.options.dataDir, 'sibyl.db'), { timeout: 5_000 });
    file.exec(`create trigger refuse before update on approvals when new.owner = '${owner}'
      begin select raise(abort, 'refused'); end`);
    await expect(decide('a', { decision: 'approve' }, { cid })).rejects.toThrow(/refused/);
    file.exec('drop trigger refuse');
    file.close();
    expect(await test.store.singleUse.has(cid)).toBe(false);
    expect(await find('a')).toMatchObject({ status: 'pending' });
    expect(await decide('a', { decision: 'approve' }, { cid })).toMatchObject({
      state: 'continued',
    });
  });

  it('a used invocation is remembered for a minute after its expiry', async () => {
    const { owner, decide } = await request(['a']);
    const { singleUse } = test.store;
    const cid = `short-${owner}`;
    await decide('a', { decision: 'approve' }, { cid, expiration: 1_000 });
    await test.forAllUsers(() => singleUse.prune(1_060));
    expect(await singleUse.has(cid)).toBe(true);
    await test.forAllUsers(() => singleUse.prune(1_061));
    expect(await singleUse.has(cid)).toBe(false);
  });

  it('an approval that expires, or that waits in a canceled turn, cannot be decided', async () => {
    const { runs, approvals } = test.store;
    const expired = await request(['a']);
    await runs.endInterrupt({ owner: expired.owner, interruptId: 'a', status: 'expired' });
    const canceled = await request(['b']);
    await runs.cancel(canceled.key, 'aborted');
    for (const [{ owner, decide, find }, id, status] of [
      [expired, 'a', 'expired'],
      [canceled, 'b', 'cancelled'],
    ] as const) {
      expect(await decide(id, { decision: 'approve' })).toMatchObject({ state: 'closed' });
      expect(await find(id)).toMatchObject({ status });
      expect(await approvals.pending(owner)).toEqual([]);
      expect(await listEnds(owner)).toEqual([[id, status, 'host']]);
    }
  });

  it('a decided approval is kept when its session is deleted, an open one is cancelled', async () => {
    const { owner, sessionId, decide, find } = await request(['a', 'b']);
    await decide('a', { decision: 'approve' });
    await test.store.sessions.delete({ owner, sessionId });
    expect(await find('a')).toMatchObject({ status: 'approved' });
    expect(await find('b')).toMatchObject({ status: 'cancelled' });
  });

  it('the arguments of unsigned approvals are deleted with their session', async () => {
    const { owner, sessionId, decide, find } = await request(['a', 'b', 'c']);
    const edited = { decision: 'approve', reason: 'sure', args: { to: 'Bob' } } as const;
    await decide('a', edited);
    await decide('b', edited, { cid: 'bafy' });
    const { sessionId: id } = await test.store.sessions.create({
      owner,
      oracleDid: 'did:key:zOracle',
    });
    const other = await request(['d'], { owner, sessionId: id });
    const before = await find('b');
    await test.store.sessions.delete({ owner, sessionId });
    expect(await find('a')).toMatchObject({ status: 'approved', args: {} });
    expect(await find('a')).not.toHaveProperty('approvedArgs');
    expect(await find('a')).not.toHaveProperty('reason');
    expect(await find('c')).toMatchObject({ status: 'cancelled', args: {} });
    expect(await find('b')).toEqual(before);
    expect((await other.find('d'))?.args).not.toEqual({});
  });

  it('pending approvals are in the order in which they were requested', async () => {
    const first = await request(['z', 'y']);
    const { owner } = first;
    now += 10;
    const { sessionId } = await test.store.sessions.create({ owner, oracleDid: 'did:o' });
    await request(['a'], { owner, sessionId });
    const ids = (await test.store.approvals.pending(owner)).map(({ id }) => id);
    expect(ids).toEqual(['z', 'y', 'a']);
  });

  it('what was encrypted with another key is left out', async () => {
    const { owner, decide } = await request(['a']);
    await decide('a', { decision: 'deny', reason: 'No' }, { cid: `cid-${owner}` });
    const { approvals } = await test.another({ secretKey: new Uint8Array(32).fill(8) });
    const found = await approvals.find({ owner, id: 'a' });
    expect(found).toMatchObject({ id: 'a', status: 'denied', isSigned: true });
    expect(found).toMatchObject({ args: {}, inputSchema: {} });
    expect(found).not.toHaveProperty('reason');
    expect(await approvals.receipt({ owner, id: 'a' })).toBeUndefined();
    expect(await approvals.receipt({ owner: newOwner(), id: 'a' })).toBeUndefined();
  });
});
