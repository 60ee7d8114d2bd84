import { DatabaseSync } from 'node:sqlite';
import { defineTool } from '@sibyl/plugin-kit';
import {
  type Approval,
  buildDecisionClaims,
  hashJson,
  type JsonObject,
  toApprovalId,
} from '@sibyl/protocol';
import { generateSigner, mintDelegation, type Signer, verifyReceipt } from '@sibyl/ucan';
import { afterEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { useControlledHost } from './support/controlled-host.js';
import { testPlugin } from './support/plugin.js';
import { joinSession } from './support/session-socket.js';
import { join, openSession, stream } from './support/stream.js';
import { forAllUsers } from './support/twins.js';
import { TestUser } from './support/user.js';

const ran: unknown[] = [];
afterEach(() => ran.splice(0));

const transfer = defineTool({
  name: 'transfer',
  description: 'Transfers an amount.',
  inputSchema: z.object({ to: z.string(), amount: z.number().max(1000) }),
  needsApproval: ({ amount }) => {
    if (amount < 0) throw new Error('no such amount');
    return amount >= 10;
  },
  run: (input) => {
    ran.push(input);
    return { transferred: input.amount };
  },
});

const harmless = defineTool({
  name: 'harmless',
  description: 'Does nothing much.',
  inputSchema: z.object({}),
  run: () => void ran.push('harmless'),
});

const operated = defineTool({ ...harmless, name: 'operated_tool' });

const bank = testPlugin('bank', {
  getTools: () => [transfer, harmless, operated],
  getSubAgents: () => [
    { name: 'teller', description: 'Transfers.', prompt: 'You transfer.', tools: [transfer] },
  ],
});

const test = useControlledHost({ plugins: [bank], env: { APPROVALS: 'operated_*' } });

/** A turn that really waits. */
async function wait(
  { input = { to: 'bob', amount: 50 }, name = 'transfer' }: { input?: object; name?: string } = {},
  user = new TestUser(test.host),
) {
  const sessionId = await openSession(user);
  const live = await stream(user, sessionId, { message: 'Transfer' });
  (await test.model.next()).call({ name, input });
  const frames = await live.toEnd();
  const { approvals } = (await user.request('GET', '/approvals')).body;
  const approval: Approval = approvals.find(({ facts }: Approval) => facts.sessionId === sessionId);
  return { user, sessionId, live, frames, approval };
}

interface Signing {
  readonly signer?: Signer;
  readonly audience?: string;
  readonly seconds?: number;
  readonly can?: string;
  readonly resource?: string;
  readonly nb?: Readonly<Record<string, unknown>>;
  readonly more?: readonly { readonly can: string; readonly with: string }[];
}

interface Decided {
  readonly decision?: 'approve' | 'deny';
  readonly args?: JsonObject;
  readonly reason?: string;
}

/** Signs a decision as the client does, or with something wrong. */
async function sign(
  { user, approval }: { user: TestUser; approval: Approval },
  { decision = 'approve', args, reason }: Decided = {},
  signing: Signing = {},
): Promise<string> {
  const claims = await buildDecisionClaims({
    id: approval.id,
    decision,
    originalArgs: approval.args,
    args,
    reason,
  });
  const { did } = test.host;
  const { signer = user.signer, audience = did, seconds = 120, more = [] } = signing;
  const { can = 'oracle/approve', resource = `ixo:oracle:${did}` } = signing;
  const capability = { can, with: resource, nb: (signing.nb ?? claims) as never };
  const minted = mintDelegation({
    signer,
    audience,
    capabilities: [capability, ...more],
    expiration: Math.floor(Date.now() / 1000) + seconds,
    nonce: crypto.randomUUID(),
  });
  return minted.ok?.token ?? '';
}

const decide = (user: TestUser, id: string, body: object) =>
  user.request('POST', `/approvals/${id}`, { body });

const expectWaiting = async ({ user, sessionId }: { user: TestUser; sessionId: string }) => {
  expect((await user.request('GET', `/sessions/${sessionId}/run`)).body.run.status).toBe('paused');
  expect(ran).toEqual([]);
};

describe('a tool that needs approval', () => {
  it('pauses the turn, sends approval_request and appears in GET /approvals', async () => {
    const { user, sessionId, live, frames, approval } = await wait();
    const [request, done] = frames.slice(-2);
    expect(request).toMatchObject({
      event: 'approval_request',
      data: {
        sessionId,
        runId: live.runId,
        approvalId: approval.id,
        toolName: 'transfer',
        plugin: 'bank',
        args: { to: 'bob', amount: 50 },
        argsHash: await hashJson({ amount: 50, to: 'bob' }),
        requiredBy: 'tool',
      },
    });
    expect(done).toMatchObject({
      event: 'done',
      data: { status: 'interrupted', pending: [{ id: approval.id, kind: 'confirmation' }] },
    });
    expect(approval).toMatchObject({ status: 'pending', args: { to: 'bob', amount: 50 } });
    expect(approval.id).toBe(await toApprovalId(approval.facts));
    expect(Date.parse(approval.expiresAt)).toBeGreaterThan(Date.now());
    const found = await user.request('GET', `/approvals/${approval.id}`);
    expect(found.body).toEqual(approval);
    await expectWaiting({ user, sessionId });
  });

  it.each([
    ['runs without asking if needsApproval returns false', { to: 'bob', amount: 5 }, 0],
    ['asks if needsApproval throws', { to: 'bob', amount: -1 }, 1],
  ])('%s', async (_, input, asked) => {
    const user = new TestUser(test.host);
    const sessionId = await openSession(user);
    const live = await stream(user, sessionId, { message: 'Transfer' });
    (await test.model.next()).call({ name: 'transfer', input });
    if (asked === 0) (await test.model.next()).answer('Done.');
    await live.toEnd();
    expect((await user.request('GET', '/approvals')).body.approvals).toHaveLength(asked);
    expect(ran).toHaveLength(1 - asked);
  });

  it('GET /rules names what APPROVALS requires', async () => {
    const { body } = await new TestUser(test.host).request('GET', '/rules');
    expect(body).toEqual({ rules: [], operator: ['operated_*'] });
  });

  it('is any tool that APPROVALS names', async () => {
    const { approval } = await wait({ name: 'operated_tool', input: {} });
    expect(approval).toMatchObject({ status: 'pending', requiredBy: 'operator' });
    expect(ran).toEqual([]);
  });

  it('runs once after a signed approval, and the receipt verifies', async () => {
    const waiting = await wait();
    const { user, approval } = waiting;
    const invocation = await sign(waiting);
    const decided = await decide(user, approval.id, { decision: 'approve', invocation });
    expect(decided).toMatchObject({ status: 200, body: { status: 'approved' } });
    const next = await test.model.next();
    expect(next.results).toEqual([JSON.stringify({ transferred: 50 })]);
    next.answer('Done.');
    const frames = await (await join(user, decided.body.runId, 0)).toEnd();
    expect(frames.at(-1)?.data).toMatchObject({ status: 'finished' });
    expect(ran).toEqual([{ to: 'bob', amount: 50 }]);
    const receipt = await fetch(`${test.host.url}/approvals/${approval.id}/receipt`, {
      headers: user.headers,
    });
    expect(receipt.headers.get('content-type')).toContain('application/json');
    const { ok } = await verifyReceipt(new Uint8Array(await receipt.arrayBuffer()));
    expect(ok).toMatchObject({
      decision: 'approve',
      user: user.did,
      userKey: user.did,
      oracle: test.host.did,
      args: { to: 'bob', amount: 50 },
      reason: null,
    });
  });

  it('sends the model the reason of a denial', async () => {
    const waiting = await wait();
    const { user, approval } = waiting;
    const reason = 'Not to "Bob", please.';
    const invocation = await sign(waiting, { decision: 'deny', reason });
    const decided = await decide(user, approval.id, { decision: 'deny', reason, invocation });
    expect(decided.status).toBe(200);
    const next = await test.model.next();
    expect(JSON.parse(next.results[0] ?? '').error).toContain(reason);
    next.answer('Fine.');
    await (await join(user, decided.body.runId, 0)).toEnd();
    expect(ran).toEqual([]);
    expect((await user.request('GET', `/approvals/${approval.id}`)).body).toMatchObject({
      status: 'denied',
      reason,
      isSigned: true,
    });
  });

  it('runs with edited arguments that fit its schema; the receipt has both', async () => {
    const waiting = await wait();
    const { user, approval } = waiting;
    const wrong = { to: 'bob', amount: 5000 };
    const refused = await decide(user, approval.id, {
      decision: 'approve',
      args: wrong,
      invocation: await sign(waiting, { args: wrong }),
    });
    expect([refused.status, refused.body.code]).toEqual([400, 'validation_failed']);
    expect(refused.body.message).toEqual([expect.stringContaining('amount')]);
    await expectWaiting(waiting);
    const args = { to: 'carol', amount: 20 };
    const invocation = await sign(waiting, { args });
    const decided = await decide(user, approval.id, { decision: 'approve', args, invocation });
    expect(decided.status).toBe(200);
    const next = await test.model.next();
    expect(JSON.parse(next.results[0] ?? '')).toMatchObject({
      input: args,
      result: { transferred: 20 },
    });
    next.answer('Done.');
    await (await join(user, decided.body.runId, 0)).toEnd();
    expect(ran).toEqual([args]);
    const { body } = await user.request('GET', `/approvals/${approval.id}/receipt`);
    expect(body).toMatchObject({ args, originalArgs: { to: 'bob', amount: 50 } });
  });

  it('can be denied, but not approved, without a signature', async () => {
    const waiting = await wait();
    const { user, approval } = waiting;
    const unsigned = await decide(user, approval.id, { decision: 'approve' });
    expect([unsigned.status, unsigned.body.code]).toEqual([403, 'decision_unsigned']);
    await expectWaiting(waiting);
    const decided = await decide(user, approval.id, { decision: 'deny', reason: 'no' });
    expect(decided.status).toBe(200);
    (await test.model.next()).answer('Fine.');
    await (await join(user, decided.body.runId, 0)).toEnd();
    const receipt = await user.request('GET', `/approvals/${approval.id}/receipt`);
    expect([receipt.status, receipt.body.code]).toEqual([404, 'receipt_not_found']);
    expect(ran).toEqual([]);
  });

  it('asks inside of a sub-agent too', async () => {
    const user = new TestUser(test.host);
    const sessionId = await openSession(user);
    const live = await stream(user, sessionId, { message: 'Transfer' });
    (await test.model.next()).call({ name: 'call_teller_agent', input: { task: 'Transfer 50' } });
    (await test.model.next()).call({ name: 'transfer', input: { to: 'bob', amount: 50 } });
    await live.toEnd();
    const [approval] = (await user.request('GET', '/approvals')).body.approvals;
    expect(approval.facts.tool).toBe('transfer');
    expect(ran).toEqual([]);
    const invocation = await sign({ user, approval });
    const decided = await decide(user, approval.id, { decision: 'approve', invocation });
    (await test.model.next()).answer('Transferred.');
    (await test.model.next()).answer('Done.');
    await (await join(user, decided.body.runId, 0)).toEnd();
    expect(ran).toEqual([{ to: 'bob', amount: 50 }]);
  });

  it('sends approval_request to the sockets of its session', async () => {
    const user = new TestUser(test.host);
    const sessionId = await openSession(user);
    const socket = await joinSession(user, sessionId);
    const live = await stream(user, sessionId, { message: 'Transfer' });
    (await test.model.next()).call({ name: 'transfer', input: { to: 'bob', amount: 50 } });
    await live.toEnd();
    const [approval] = (await user.request('GET', '/approvals')).body.approvals;
    const received = { approvalId: approval.id, toolName: 'transfer', sessionId };
    expect(await socket.until('approval_request')).toMatchObject(received);
    expect(socket.all('approval_request')).toHaveLength(1);
  });

  it('that is denied is not shown as a tool call in GET /activity', async () => {
    const { user, approval } = await wait();
    const denied = await decide(user, approval.id, { decision: 'deny' });
    (await test.model.next()).answer('Fine.');
    await (await join(user, denied.body.runId, 0)).toEnd();
    const { entries } = (await user.request('GET', '/activity')).body;
    expect(entries).toMatchObject([
      { kind: 'approval_decided', outcome: 'denied', decidedBy: 'request' },
      { kind: 'approval_requested' },
    ]);
  });

  it('is shown in GET /activity, to its user alone, in pages', async () => {
    const waiting = await wait();
    const { user, approval } = waiting;
    const invocation = await sign(waiting);
    const decided = await decide(user, approval.id, { decision: 'approve', invocation });
    (await test.model.next()).answer('Done.');
    await (await join(user, decided.body.runId, 0)).toEnd();
    const { entries } = (await user.request('GET', '/activity')).body;
    expect(entries).toMatchObject([
      { kind: 'tool_call', tool: 'transfer', outcome: 'done' },
      { kind: 'approval_decided', outcome: 'approved', decidedBy: 'signature' },
      { kind: 'approval_requested', tool: 'transfer', approvalId: approval.id },
    ]);
    const first = (await user.request('GET', '/activity?limit=2')).body;
    expect(first.entries).toEqual(entries.slice(0, 2));
    const rest = (await user.request('GET', `/activity?limit=2&before=${first.nextCursor}`)).body;
    expect(rest).toEqual({ entries: entries.slice(2), nextCursor: null });
    const stranger = new TestUser(test.host);
    expect((await stranger.request('GET', '/activity')).body.entries).toEqual([]);
  });
});

/** Lets only the approval of this user expire, if it has a twin. */
function expire(owner: string, id: string): void {
  const database = new DatabaseSync(`${test.host.dataDir}/sibyl.db`);
  const keep = "update interrupts set expires_at = 1e15 where owner like 'did:copy:%'";
  database.exec('begin immediate');
  database
    .prepare('update interrupts set expires_at = 1 where owner = ? and id = ?')
    .run(owner, id);
  database.exec(`${keep}; commit`);
  database.close();
}

describe('POST /approvals/:id refuses', () => {
  it.each<[string, Signing]>([
    ['forged: signed by another key', { signer: generateSigner() }],
    ['for another oracle', { audience: generateSigner().did }],
    ['expired', { seconds: -1 }],
    ['valid for too long', { seconds: 3600 }],
    ['of another ability', { can: 'oracle/rules' }],
    ['of another resource', { resource: 'ixo:oracle' }],
    ['with a second capability', { more: [{ can: 'store/get', with: 'a:b' }] }],
    ['without caveats', { nb: {} }],
  ])('a decision that is %s', async (_, signing) => {
    const waiting = await wait();
    const { user, approval } = waiting;
    const invocation = await sign(waiting, {}, signing);
    const refused = await decide(user, approval.id, { decision: 'approve', invocation });
    expect([refused.status, refused.body.code]).toEqual([403, 'invalid_decision']);
    await expectWaiting(waiting);
  });

  it.each<[string, (claims: Record<string, string>) => object]>([
    ['decision', (claims) => ({ ...claims, decision: 'deny' })],
    ['argsHash', (claims) => ({ ...claims, argsHash: '0'.repeat(64) })],
    ['originalArgsHash', (claims) => ({ ...claims, originalArgsHash: '0'.repeat(64) })],
    ['reasonHash', (claims) => ({ ...claims, reasonHash: '0'.repeat(64) })],
    ['approval', (claims) => ({ ...claims, approval: '0'.repeat(64) })],
    ['missing field', ({ reasonHash: _, ...claims }) => claims],
    ['additional field', (claims) => ({ ...claims, note: 'x' })],
  ])('a signature about another %s', async (_, change) => {
    const waiting = await wait();
    const { user, approval } = waiting;
    const id = approval.id;
    const claims = await buildDecisionClaims({
      id,
      decision: 'approve',
      originalArgs: approval.args,
    });
    const nb = change(claims) as Signing['nb'];
    const invocation = await sign(waiting, {}, { ...(nb && { nb }) });
    const refused = await decide(user, id, { decision: 'approve', invocation });
    expect([refused.status, refused.body.code]).toEqual([403, 'invalid_decision']);
    await expectWaiting(waiting);
  });

  it('modified: other arguments, reason or decision than signed', async () => {
    const waiting = await wait();
    const { user, approval } = waiting;
    const invocation = await sign(waiting);
    for (const body of [
      { decision: 'approve', args: { to: 'mallory', amount: 50 } },
      { decision: 'approve', reason: 'changed' },
      { decision: 'deny' },
    ]) {
      const refused = await decide(user, approval.id, { ...body, invocation });
      expect([refused.status, refused.body.code]).toEqual([403, 'invalid_decision']);
    }
    await expectWaiting(waiting);
  });

  it('half a surrogate pair in a reason or argument, with 400', async () => {
    const waiting = await wait();
    const { user, approval } = waiting;
    const invocation = await sign(waiting);
    for (const body of [{ reason: '\ud800' }, { args: { to: '\ud800', amount: 50 } }]) {
      const refused = await decide(user, approval.id, { decision: 'approve', invocation, ...body });
      expect([refused.status, refused.body.code]).toEqual([400, 'validation_failed']);
    }
    await expectWaiting(waiting);
  });

  it('replayed: a used decision, for the same call or another', async () => {
    const first = await wait();
    const { user } = first;
    const invocation = await sign(first);
    const body = { decision: 'approve', invocation };
    const decided = await decide(user, first.approval.id, body);
    expect(decided.status).toBe(200);
    (await test.model.next()).answer('Done.');
    await (await join(user, decided.body.runId, 0)).toEnd();
    const again = await decide(user, first.approval.id, body);
    expect([again.status, again.body.code]).toEqual([409, 'approval_closed']);
    expect(ran.splice(0)).toHaveLength(1);
    const second = await wait({}, user);
    const elsewhere = await decide(user, second.approval.id, body);
    expect([elsewhere.status, elsewhere.body.code]).toEqual([403, 'invalid_decision']);
    await expectWaiting(second);
  });

  it('concurrent: one of many copies is accepted, and the tool runs once', async () => {
    const waiting = await wait();
    const { user, approval } = waiting;
    const invocation = await sign(waiting);
    const replies = await Promise.all(
      Array.from({ length: 8 }, () =>
        decide(user, approval.id, { decision: 'approve', invocation }),
      ),
    );
    const accepted = replies.filter(({ status }) => status === 200);
    expect(accepted).toHaveLength(1);
    (await test.model.next()).answer('Done.');
    await (await join(user, accepted[0]?.body.runId, 0)).toEnd();
    expect(ran).toHaveLength(1);
  });

  it('foreign: another user, who cannot see, decide or read it', async () => {
    const waiting = await wait();
    const { approval } = waiting;
    const stranger = new TestUser(test.host);
    const own = await sign({ user: stranger, approval });
    const stolen = await sign(waiting);
    for (const body of [
      { decision: 'approve', invocation: own },
      { decision: 'approve', invocation: stolen },
      { decision: 'deny' },
    ]) {
      const refused = await decide(stranger, approval.id, body);
      expect([refused.status, refused.body.code]).toEqual([404, 'approval_not_found']);
    }
    for (const path of [`/approvals/${approval.id}`, `/approvals/${approval.id}/receipt`])
      expect((await stranger.request('GET', path)).status).toBe(404);
    expect((await stranger.request('GET', '/approvals')).body.approvals).toEqual([]);
    await expectWaiting(waiting);
  });

  it('late: an approval that has expired, even before the host notices', async () => {
    const waiting = await wait();
    const { user, approval } = waiting;
    const invocation = await sign(waiting);
    await forAllUsers(test.host.dataDir, () => expire(user.did, approval.id));
    const late = await decide(user, approval.id, { decision: 'approve', invocation });
    expect([late.status, late.body.code]).toEqual([409, 'approval_closed']);
    // Once the host notices, the turn continues without the tool.
    const next = await test.model.next();
    expect(next.results[0]).toContain('expired');
    next.answer('Too late.');
    expect(ran).toEqual([]);
  });

  it('a decision after the user has sent another message', async () => {
    const waiting = await wait();
    const { user, approval, sessionId } = waiting;
    const invocation = await sign(waiting);
    const second = await stream(user, sessionId, { message: 'Never mind' });
    (await test.model.next()).answer('Fine.');
    await second.toEnd();
    const late = await decide(user, approval.id, { decision: 'approve', invocation });
    expect([late.status, late.body.code]).toEqual([409, 'approval_closed']);
    expect((await user.request('GET', `/approvals/${approval.id}`)).body.status).toBe('cancelled');
    expect(ran).toEqual([]);
  });

  it('a decision as a login, as a delegation and as rules', async () => {
    const waiting = await wait();
    const invocation = await sign(waiting);
    const { url } = test.host;
    for (const headers of [
      { authorization: `Bearer ${invocation}`, 'x-auth-type': 'ucan' },
      { 'x-ucan-delegation': invocation },
    ])
      expect((await fetch(`${url}/sessions`, { headers })).status).toBe(401);
    const { user } = waiting;
    const stored = await user.request('POST', '/delegation', { body: { raw: invocation } });
    expect(stored.status).toBe(400);
    const rules = await user.request('PUT', '/rules', { body: { token: invocation } });
    expect([rules.status, rules.body.code]).toEqual([400, 'invalid_rules']);
    await expectWaiting(waiting);
  });
});
