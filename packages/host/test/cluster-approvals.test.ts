import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join as joinPath } from 'node:path';
import { type Approval, buildDecisionClaims } from '@sibyl/protocol';
import { mintDelegation } from '@sibyl/ucan';
import pg from 'pg';
import { afterAll, describe, expect, it } from 'vitest';
import { useControlledCluster } from './support/host-cluster.js';
import { join, openSession, stream } from './support/stream.js';
import type { TestUser } from './support/user.js';

const JOURNAL = joinPath(import.meta.dirname, 'support/journal-process.ts');
const folder = mkdtempSync(joinPath(tmpdir(), 'sibyl-approvals-'));
const traceFile = joinPath(folder, 'trace');
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const holdFile = joinPath(folder, 'hold');

const test = useControlledCluster(
  { TRACE_FILE: traceFile, HOLD_FILE: holdFile },
  { main: JOURNAL },
);

const countTraces = (text: string) =>
  existsSync(traceFile)
    ? readFileSync(traceFile, 'utf8')
        .split('\n')
        .filter((line) => line === text).length
    : 0;

function sign(user: TestUser, can: string, nb: object): string {
  const { did } = user.host;
  const minted = mintDelegation({
    signer: user.signer,
    audience: did,
    capabilities: [{ can, with: `ixo:oracle:${did}`, nb: nb as never }],
    expiration: Math.floor(Date.now() / 1000) + 300,
    nonce: crypto.randomUUID(),
  });
  return minted.ok?.token ?? '';
}

/** A turn of the first host that waits for approval. */
async function wait(text: string) {
  const users = test.newUser();
  const sessionId = await openSession(users[0]);
  const live = await stream(users[0], sessionId, { message: 'Act' });
  (await test.model.next()).call({ name: 'act_if_approved', input: { text } });
  await live.toEnd();
  const { approvals } = (await users[2].request('GET', '/approvals')).body;
  const approval: Approval = approvals[0];
  const { id, args: originalArgs } = approval;
  const claims = await buildDecisionClaims({ id, decision: 'approve', originalArgs });
  const invocation = sign(users[0], 'oracle/approve', claims);
  return { users, sessionId, approval, body: { decision: 'approve', invocation } };
}

describe('approvals on several hosts', () => {
  it('POST /approvals/:id at three hosts at once: one is accepted, and the tool runs once', async () => {
    const { users, approval, body } = await wait('at once');
    const replies = await Promise.all(
      users.flatMap((user) =>
        [1, 2, 3].map(() => user.request('POST', `/approvals/${approval.id}`, { body })),
      ),
    );
    const accepted = replies.filter(({ status }) => status === 200);
    expect(accepted).toHaveLength(1);
    (await test.model.next()).answer('Done.');
    await (await join(users[1], accepted[0]?.body.runId, 0)).toEnd();
    expect(countTraces('at once')).toBe(1);
    const receipts = await Promise.all(
      users.map((user) => user.request('GET', `/approvals/${approval.id}/receipt`)),
    );
    expect(new Set(receipts.map((receipt) => JSON.stringify(receipt.body))).size).toBe(1);
  });

  it('POST /approvals/:id at a host that dies before the tool has begun: another host runs it, once', {
    timeout: 240_000,
  }, async () => {
    const { users, sessionId, approval, body } = await wait('after a crash');
    writeFileSync(holdFile, '');
    const { status } = await users[1].request('POST', `/approvals/${approval.id}`, { body });
    expect(status).toBe(200);
    await test.hosts[1].kill();
    rmSync(holdFile);
    const next = await test.model.next();
    expect(next.results[0]).toContain('after a crash');
    next.answer('Done.');
    const readRun = async () =>
      (await users[2].request('GET', `/sessions/${sessionId}/run`)).body.run;
    await expect.poll(readRun).toMatchObject({ status: 'finished' });
    expect(countTraces('after a crash')).toBe(1);
    await test.hosts[1].start();
  });

  it('POST /approvals/:id at a host that dies while the tool runs: the tool does not run again', {
    timeout: 240_000,
  }, async () => {
    const { users, sessionId, approval, body } = await wait('then hang');
    expect((await users[1].request('POST', `/approvals/${approval.id}`, { body })).status).toBe(
      200,
    );
    await expect.poll(() => countTraces('then hang')).toBe(1);
    await test.hosts[1].kill();
    const readRun = async () =>
      (await users[2].request('GET', `/sessions/${sessionId}/run`)).body.run;
    await expect.poll(readRun).toMatchObject({ status: 'interrupted' });
    expect(countTraces('then hang')).toBe(1);
    await test.hosts[1].start();
  });

  it('are not answered through a plugin, which has no signature', async () => {
    const { users, sessionId, approval } = await wait('by a plugin');
    const value = { decision: 'approve' };
    const answered = await users[1].request('POST', `/journal/answers/${approval.id}`, {
      body: { value },
    });
    expect([answered.status, answered.body.code]).toEqual([403, 'decision_unsigned']);
    const { run } = (await users[2].request('GET', `/sessions/${sessionId}/run`)).body;
    expect(run.status).toBe('paused');
    expect(countTraces('by a plugin')).toBe(0);
  });

  it('expire: the turn continues, the tool does not run, and GET /activity says so', {
    timeout: 120_000,
  }, async () => {
    const { users, approval, body } = await wait('too late');
    const client = new pg.Client(test.database.env.DATABASE_URL);
    await client.connect();
    await client.query('update interrupts set expires_at = 1 where id = $1', [approval.id]);
    await client.end();
    const late = await users[1].request('POST', `/approvals/${approval.id}`, { body });
    expect([late.status, late.body.code]).toEqual([409, 'approval_closed']);
    const next = await test.model.next();
    expect(next.results[0]).toContain('expired');
    next.answer('Too late.');
    await expect
      .poll(async () => (await users[0].request('GET', `/approvals/${approval.id}`)).body.status)
      .toBe('expired');
    const { entries } = (await users[0].request('GET', '/activity')).body;
    expect(entries).toContainEqual(
      expect.objectContaining({ kind: 'approval_decided', outcome: 'expired', decidedBy: 'host' }),
    );
    expect(countTraces('too late')).toBe(0);
  });
});

describe('rules on several hosts', () => {
  it('PUT /rules at one host aborts what they block at another', async () => {
    const users = test.newUser();
    const live = await stream(users[0], await openSession(users[0]), { message: 'Act' });
    (await test.model.next()).call({ name: 'act_and_hang', input: { text: 'hanging' } });
    await expect.poll(() => countTraces('hanging'), { timeout: 30_000 }).toBe(1);
    const token = sign(users[1], 'oracle/rules', {
      rules: [{ match: 'plugin:journal', effect: 'block' }],
    });
    expect((await users[1].request('PUT', '/rules', { body: { token } })).status).toBe(200);
    const next = await test.model.next();
    expect(next.results[0]).toContain('changed the rules');
    next.answer('Stopped.');
    expect((await live.toEnd()).at(-1)?.data).toMatchObject({ status: 'finished' });
  });
});
