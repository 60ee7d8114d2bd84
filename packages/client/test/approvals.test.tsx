import './support/dom.js';
import { type ApprovalRequestEvent, addPart, emptyTurn, type OracleClient } from '@sibyl/client';
import { useApprovals } from '@sibyl/client/react';
import { verifyReceipt } from '@sibyl/ucan';
import { act, renderHook, waitFor } from '@testing-library/react';
import { afterEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { testPlugin } from '../../host/test/support/plugin.js';
import { createUser, POLL_OPTIONS, useReactPages } from './support/react-page.js';

const ran: unknown[] = [];
afterEach(() => ran.splice(0));

const pay = {
  name: 'pay',
  description: 'Pays',
  inputSchema: z.object({ amount: z.number() }),
  needsApproval: true,
  run: (input: unknown) => {
    ran.push(input);
    return 'paid';
  },
};

const pages = useReactPages({ plugins: [testPlugin('bank', { getTools: () => [pay] })] });

/** A turn that waits for approval. */
async function wait(client: OracleClient) {
  const { sessionId } = await client.sessions.create();
  let turn = emptyTurn;
  const reading = (async () => {
    for await (const part of client.stream(sessionId, 'Pay')) turn = addPart(turn, part);
  })();
  (await pages.model.next()).call({ name: 'pay', input: { amount: 5 } });
  await reading;
  return { sessionId, turn };
}

async function readResult(client: OracleClient, runId: string): Promise<void> {
  (await pages.model.next()).answer('Done.');
  for await (const part of client.runs.join(runId)) void part;
}

describe('client.approvals', () => {
  it('list, approve with edited arguments, and receipt', async () => {
    const { client } = pages.open(createUser());
    const { sessionId, turn } = await wait(client);
    expect(turn).toMatchObject({ status: 'interrupted', approvals: [{ toolName: 'pay' }] });
    const events: readonly ApprovalRequestEvent[] = turn.approvals;
    const [approval] = await client.approvals.list({ sessionId });
    expect(approval?.id).toBe(events[0]?.approvalId);
    if (!approval) return;
    const decided = await client.approvals.approve(approval, { args: { amount: 3 }, reason: 'ok' });
    expect(decided.status).toBe('approved');
    await readResult(client, decided.runId);
    expect(ran).toEqual([{ amount: 3 }]);
    expect(await client.approvals.get(approval.id)).toMatchObject({
      status: 'approved',
      approvedArgs: { amount: 3 },
    });
    const receipt = await client.approvals.receipt(approval.id);
    const { ok } = await verifyReceipt(new TextEncoder().encode(receipt));
    expect(ok).toMatchObject({ args: { amount: 3 }, originalArgs: { amount: 5 }, reason: 'ok' });
    const { entries } = await client.activity({ limit: 1 });
    expect(entries).toMatchObject([{ kind: 'tool_call', tool: 'pay' }]);
  });

  it('approve signs nothing if the id does not belong to the call that is shown', async () => {
    const { client } = pages.open(createUser());
    await wait(client);
    const [approval] = await client.approvals.list();
    if (!approval) throw new Error('nothing waits');
    for (const shown of [
      { ...approval, args: { amount: 1 } },
      { ...approval, facts: { ...approval.facts, tool: 'harmless' } },
    ])
      await expect(client.approvals.approve(shown)).rejects.toMatchObject({
        code: 'invalid_reply',
      });
    expect(ran).toEqual([]);
  });
});

describe('client.approvals.approve of schedule_task', () => {
  /** A turn that waits for the approval of a schedule. */
  async function waitForSchedule(client: OracleClient) {
    const { sessionId } = await client.sessions.create();
    const reply = client.messages.send(sessionId, 'Every day at 9');
    const input = { name: 'Daily', message: 'Do it', cron: '0 9 * * *', timezone: 'UTC' };
    (await pages.model.next()).call({ name: 'load_capability', input: { names: ['schedules'] } });
    (await pages.model.next()).call({ name: 'schedule_task', input });
    await reply;
    const [approval] = await client.approvals.list();
    if (!approval?.delegates) throw new Error('nothing waits');
    return { approval, delegates: approval.delegates, input };
  }

  it('signs the schedule too, which is active then', async () => {
    const { client } = pages.open(createUser());
    const { approval, delegates } = await waitForSchedule(client);
    const { runId } = await client.approvals.approve(approval);
    await readResult(client, runId);
    expect(await client.schedules.list()).toMatchObject([
      { name: 'Daily', status: 'active', resource: delegates.with },
    ]);
    expect(await client.delegation.list()).toMatchObject([{ purpose: 'schedule' }]);
  });

  it('with edited arguments leaves the schedule to be authorized', async () => {
    const { client } = pages.open(createUser());
    const { approval, input } = await waitForSchedule(client);
    const args = { ...input, message: 'Do more' };
    const { runId } = await client.approvals.approve(approval, { args });
    await readResult(client, runId);
    const [schedule] = await client.schedules.list();
    expect(schedule).toMatchObject({ message: 'Do more', status: 'unauthorized' });
    if (!schedule) throw new Error('no schedule');
    expect(await client.schedules.authorize(schedule)).toMatchObject({ status: 'active' });
  });

  it('signs nothing that would delegate more than turns at this oracle for what is shown', async () => {
    const { client } = pages.open(createUser());
    const { approval, delegates } = await waitForSchedule(client);
    for (const changed of [
      { can: 'oracle/*' as 'oracle/run' },
      { with: 'ixo:oracle' },
      { with: 'ixo:oracle:did:key:z6Mkother:schedule/7' },
      { terms: {} },
    ])
      await expect(
        client.approvals.approve({ ...approval, delegates: { ...delegates, ...changed } }),
      ).rejects.toMatchObject({ code: 'invalid_reply' });
    expect(await client.approvals.list()).toMatchObject([{ id: approval.id }]);
  });
});

describe('client.rules', () => {
  it('set, get and delete', async () => {
    const { client } = pages.open(createUser());
    const rules = [{ match: 'plugin:bank', effect: 'block' as const }];
    expect(await client.rules.set(rules)).toMatchObject({ rules });
    expect(await client.rules.get()).toMatchObject({ rules, cid: expect.any(String) });
    await client.rules.delete();
    expect(await client.rules.get()).toEqual({ rules: [] });
  });
});

describe('useApprovals', () => {
  it('lists what waits and denies it with a reason', async () => {
    const { client, wrapper } = pages.open(createUser());
    const { sessionId } = await wait(client);
    const { result } = renderHook(() => useApprovals({ sessionId }), { wrapper });
    await waitFor(() => expect(result.current.approvals).toHaveLength(1), POLL_OPTIONS);
    const [approval] = result.current.approvals;
    if (!approval) return;
    const decided = await act(() => result.current.deny(approval, { reason: 'too much' }));
    await waitFor(() => expect(result.current.approvals).toEqual([]), POLL_OPTIONS);
    const next = await pages.model.next();
    expect(next.results[0]).toContain('too much');
    next.answer('Fine.');
    for await (const part of client.runs.join(decided.runId)) void part;
    expect(ran).toEqual([]);
  });
});
