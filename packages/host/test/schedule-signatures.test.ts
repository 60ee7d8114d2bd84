import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { DatabaseSync } from 'node:sqlite';
import { describe, expect, it, onTestFinished } from 'vitest';
import { useControlledHost } from './support/controlled-host.js';
import {
  createSchedule,
  readRuns,
  readSchedule,
  signSchedule,
  toResource,
} from './support/schedules.js';
import { TestUser } from './support/user.js';

const YEAR_SECONDS = 365 * 86_400;
const EVERY_SECOND = { type: 'cron', cron: '* * * * * *', timezone: 'UTC' } as const;

const at = useControlledHost({
  env: { SCHEDULES_MIN_INTERVAL_SECONDS: '1', OUTGOING_ALLOW: '127.0.0.1' },
});

/** Receives results at a separate address. */
async function startReceiver() {
  const received: string[] = [];
  const server = createServer((request, response) => {
    received.push(request.url ?? '');
    response.end();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  return { received, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/` };
}

/** Signs a schedule for a year, and gives a service a delegation that never expires. */
async function begin() {
  const alice = new TestUser(at.host);
  const id = crypto.randomUUID();
  const delegation = await signSchedule(alice, { id, ttlSeconds: YEAR_SECONDS });
  const schedule = await createSchedule(alice, { id, delegation });
  const token = alice.delegate({ ttlSeconds: null });
  const steal = async (method: string, path: string, body?: object) => {
    const response = await fetch(at.host.url + path, {
      method,
      headers: { 'x-ucan-delegation': token, 'content-type': 'application/json' },
      ...(body && { body: JSON.stringify(body) }),
    });
    return { status: response.status, body: (await response.json()) as { code?: string } };
  };
  const change = async (body: object) =>
    (await alice.request('PATCH', `/schedules/${id}`, { body })).body;
  return { alice, id, schedule, steal, change };
}

/** The contents of all messages that models have received since the test began. */
const asked = async (count: number) => {
  const contents: unknown[] = [];
  for (let n = 0; n < count; n++) {
    const turn = await at.model.next();
    contents.push(turn.body.messages.at(-1)?.content);
    turn.answer('Done');
  }
  return contents;
};

const refused = { id: 'a-refused-one', name: 'x', message: 'x', trigger: EVERY_SECOND };

describe('POST /schedules', () => {
  it.each([
    ['of another user', () => signSchedule(new TestUser(at.host), refused), 'foreign_delegation'],
    [
      'for another schedule',
      (alice: TestUser) => signSchedule(alice, { ...refused, id: 'another-one' }),
      'invalid_delegation',
    ],
    [
      'for all schedules',
      (alice: TestUser) => signSchedule(alice, { ...refused, id: '*' }),
      'invalid_delegation',
    ],
    [
      'for another message',
      (alice: TestUser) => signSchedule(alice, { ...refused, message: 'y' }),
      'invalid_delegation',
    ],
    [
      'for another time',
      (alice: TestUser) => signSchedule(alice, { ...refused, trigger: { type: 'webhook' } }),
      'invalid_delegation',
    ],
    [
      'for another address',
      (alice: TestUser) => signSchedule(alice, { ...refused, resultUrl: 'https://a.example' }),
      'invalid_delegation',
    ],
    [
      'without caveats',
      (alice: TestUser) =>
        alice.delegate({
          capabilities: [{ can: 'oracle/run', with: toResource(alice, refused.id) }],
        }),
      'invalid_delegation',
    ],
    [
      'that has expired',
      (alice: TestUser) => signSchedule(alice, { ...refused, ttlSeconds: -10 }),
      'invalid_delegation',
    ],
    ['of another ability', (alice: TestUser) => alice.delegate(), 'invalid_delegation'],
    [
      'with other caveats',
      (alice: TestUser) =>
        alice.delegate({
          capabilities: [
            { can: 'oracle/run', with: toResource(alice, refused.id), nb: { model: 'x' } },
          ],
        }),
      'invalid_delegation',
    ],
    [
      'with two capabilities',
      (alice: TestUser) => {
        const run = { can: 'oracle/run', with: toResource(alice, refused.id) };
        return alice.delegate({ capabilities: [run, { can: 'store/*', with: alice.did }] });
      },
      'invalid_delegation',
    ],
    [
      'for another oracle',
      (alice: TestUser) =>
        alice.delegate({
          audience: new TestUser(at.host).did,
          capabilities: [{ can: 'oracle/run', with: toResource(alice, refused.id) }],
        }),
      'invalid_delegation',
    ],
    ['that is not a token', () => 'AAAA', 'invalid_delegation'],
  ])('refuses a delegation %s', async (_, sign, code) => {
    const alice = new TestUser(at.host);
    const { body } = await alice.request('POST', '/schedules', {
      body: { ...refused, delegation: await sign(alice) },
    });
    expect(body.code).toBe(code);
    expect((await alice.request('GET', '/schedules')).body).toEqual({ schedules: [] });
  });
});

describe('a schedule that its user has signed for a year', () => {
  it('PATCH, POST and DELETE /schedules refuse a thief with a delegation, who can read until it is revoked', async () => {
    const { alice, id, steal } = await begin();
    const { url } = await startReceiver();
    const before = await readSchedule(alice, id);
    for (const [method, path, body] of [
      ['PATCH', `/schedules/${id}`, { message: 'Send me everything' }],
      ['PATCH', `/schedules/${id}`, { trigger: EVERY_SECOND }],
      ['PATCH', `/schedules/${id}`, { resultUrl: url }],
      ['POST', '/schedules', { name: 'x', message: 'x', trigger: EVERY_SECOND }],
      ['POST', `/schedules/${id}/run`, undefined],
      ['POST', `/schedules/${id}/secret`, undefined],
      ['DELETE', `/schedules/${id}`, undefined],
    ] as const)
      expect(await steal(method, path, body)).toMatchObject({
        status: 403,
        body: { code: 'own_key_required' },
      });
    expect(await readSchedule(alice, id)).toEqual(before);
    expect((await steal('GET', `/schedules/${id}`)).status).toBe(200);
    const { body } = await alice.request('GET', '/delegations');
    const stolen = body.delegations.find(
      ({ purpose }: { purpose: string }) => purpose !== 'schedule',
    );
    await alice.request('DELETE', `/delegations/${stolen.cid}`);
    expect((await steal('GET', `/schedules/${id}`)).status).toBe(401);
    // What the user has signed still runs.
    await alice.request('POST', `/schedules/${id}/run`);
    expect(await asked(1)).toEqual(['Say something']);
  });

  it.each([
    ['the message', { message: 'Send me everything' }],
    ['the times', { trigger: EVERY_SECOND }],
    ['the address', { resultUrl: 'http://127.0.0.1:9/' }],
  ])(
    'PATCH /schedules/:id of %s without a signature pauses it until there is one',
    async (_, changes) => {
      const { alice, id, schedule, change } = await begin();
      const changed = await change(changes);
      expect(changed).toMatchObject({
        ...changes,
        status: 'unauthorized',
        reason: 'What the schedule does was changed without a signature',
      });
      expect(changed.delegation).toBeUndefined();
      expect(changed.nextDueAt).toBeUndefined();
      const run = await alice.request('POST', `/schedules/${id}/run`);
      expect([run.status, run.body.code]).toEqual([403, 'delegation_ended']);
      expect((await change({ status: 'active' })).code).toBe('delegation_ended');
      // The delegation for what it did before does not cover what it does now.
      const { delegation } = schedule;
      const listed = (await alice.request('GET', '/delegations')).body.delegations;
      expect(listed.map(({ cid }: { cid: string }) => cid)).not.toContain(delegation?.cid);
      const old = await signSchedule(alice, { id });
      expect((await change({ delegation: old })).code).toBe('invalid_delegation');
      const signed = await change({ delegation: await signSchedule(alice, { id, ...changes }) });
      expect(signed).toMatchObject({ ...changes, status: 'active' });
      expect(signed.reason).toBeUndefined();
      await change({ status: 'paused' });
      at.model.discard();
    },
  );

  it.each([
    ['message', 'Send me everything'],
    ['trigger', JSON.stringify({ ...EVERY_SECOND, cron: '0 0 1 1 *' })],
    ['result_url', 'http://127.0.0.1:9/'],
  ])(
    'does not run, and shows why, when the %s of its row is changed in the database',
    async (column, value) => {
      const { alice, id } = await begin();
      const database = new DatabaseSync(`${at.host.dataDir}/sibyl.db`, { timeout: 10_000 });
      const due = `update schedules_schedules set ${column} = ?, next_due_at = ? where id = ?`;
      database.prepare(due).run(value, Date.now(), id);
      database.close();
      await expect
        .poll(() => readSchedule(alice, id))
        .toMatchObject({
          status: 'stopped',
          reason: expect.stringMatching(/signed for something/),
        });
      expect(await readRuns(alice, id)).toMatchObject([{ status: 'aborted' }]);
      expect(at.model.arrived).toBe(0);
    },
  );

  it('posts the result of an earlier run to no address that was not signed', async () => {
    const { alice, id, change } = await begin();
    const { received, url } = await startReceiver();
    await alice.request('POST', `/schedules/${id}/run`);
    const turn = await at.model.next();
    await change({ resultUrl: url });
    turn.answer('Private');
    await expect
      .poll(() => readRuns(alice, id))
      .toMatchObject([{ status: 'finished', delivery: { status: 'failed' } }]);
    expect(received).toEqual([]);
  });

  it('PATCH /schedules/:id refuses a signature that another change has overtaken', async () => {
    const { alice, id, change } = await begin();
    const delegation = await signSchedule(alice, { id, message: 'First' });
    await change({ resultUrl: 'http://127.0.0.1:9/' });
    expect((await change({ message: 'First', delegation })).code).toBe('invalid_delegation');
    expect(await readSchedule(alice, id)).toMatchObject({ status: 'unauthorized' });
  });
});
