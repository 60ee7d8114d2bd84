import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { scale } from '../../../scripts/test-scale.ts';
import { runStatement } from './support/cluster.js';
import { useControlledCluster } from './support/host-cluster.js';
import { createSchedule, readRuns, readSchedule, signSchedule } from './support/schedules.js';

const SECONDS = scale(60, 20);
/** A busy machine may take longer. */
const MAX_ABORT_MS = scale(1_000, 60_000);

const cluster = useControlledCluster({
  SCHEDULES_MIN_INTERVAL_SECONDS: '1',
  SCHEDULES_PER_USER: '3',
});

const EVERY_SECOND = { type: 'cron', cron: '* * * * * *', timezone: 'UTC' } as const;

/** Answers every call of the model until it is stopped. */
function answerAll(): { stop(): void; readonly count: number } {
  const state = { isStopped: false, count: 0 };
  const answer = async () => {
    while (!state.isStopped) {
      const turn = await cluster.model.next();
      if (state.isStopped) return;
      state.count += 1;
      turn.answer('Done');
    }
  };
  void answer();
  return {
    stop: () => {
      state.isStopped = true;
    },
    get count() {
      return state.count;
    },
  };
}

it('DELETE /delegations/:cid at one host aborts the scheduled turn of another and stops the schedule', async () => {
  const [atA, atB, atC] = cluster.newUser();
  const { id, delegation, sessionId } = await createSchedule(atA);
  expect((await atA.request('POST', `/schedules/${id}/run`)).status).toBe(200);
  const turn = await cluster.model.next();
  turn.say('This takes');
  await expect.poll(() => readRuns(atC, id)).toMatchObject([{ status: 'running' }]);
  const revokedAt = performance.now();
  await atB.request('DELETE', `/delegations/${delegation?.cid}`);
  await turn.left;
  expect(performance.now() - revokedAt).toBeLessThan(MAX_ABORT_MS);
  await expect
    .poll(() => readRuns(atC, id))
    .toMatchObject([{ status: 'aborted', error: expect.stringContaining('revoked') }]);
  expect(await readSchedule(atC, id)).toMatchObject({
    status: 'stopped',
    reason: expect.stringContaining('revoked'),
  });
  const { body } = await atB.request('GET', `/messages/${sessionId}`);
  expect(body.messages).toMatchObject([
    { type: 'human' },
    { type: 'ai', isComplete: false, error: { code: 'access_revoked' } },
  ]);
  expect((await atB.request('POST', `/schedules/${id}/run`)).body.code).toBe('delegation_ended');
});

it('a host looks again and again how the turn of a schedule is doing, also if it takes long', async () => {
  const [atA] = cluster.newUser();
  const { id } = await createSchedule(atA);
  expect((await atA.request('POST', `/schedules/${id}/run`)).status).toBe(200);
  const turn = await cluster.model.next();
  const statement = 'select attempts from schedules_runs where schedule_id = $1';
  const countChecks = async () =>
    Number(
      (await runStatement(cluster.database.env.DATABASE_URL ?? '', statement, [id]))[0]?.attempts,
    );
  await expect.poll(countChecks, { timeout: 60_000 }).toBeGreaterThan(3);
  turn.answer('Done');
  await expect
    .poll(() => readRuns(atA, id), { timeout: 60_000 })
    .toMatchObject([{ status: 'finished' }]);
}, 180_000);

it('a schedule that is changed at one host without a signature does not run at any, and what a thief sends never does', async () => {
  const [atA, atB, atC] = cluster.newUser();
  const id = randomUUID();
  const delegation = await signSchedule(atA, { id, ttlSeconds: 365 * 86_400 });
  await createSchedule(atA, { id, delegation });
  const token = atA.delegate({ ttlSeconds: null });
  const stolen = { message: 'Send me everything', trigger: EVERY_SECOND };
  const steal = async (host: { readonly url: string }) => {
    const response = await fetch(`${host.url}/schedules/${id}`, {
      method: 'PATCH',
      headers: { 'x-ucan-delegation': token, 'content-type': 'application/json' },
      body: JSON.stringify({ ...stolen, resultUrl: 'https://thief.example/' }),
    });
    return [response.status, ((await response.json()) as { code?: string }).code];
  };
  for (const host of cluster.hosts) expect(await steal(host)).toEqual([403, 'own_key_required']);
  // As any login of the user that signs nothing, and as an intruder who can write into the database.
  const changed = await atB.request('PATCH', `/schedules/${id}`, { body: stolen });
  expect(changed.body).toMatchObject({ status: 'unauthorized', reason: expect.any(String) });
  const statement =
    "update schedules_schedules set status = 'active', next_due_at = 1, catch_up = 'once', delegation_cid = $2 where id = $1";
  const { body } = await atA.request('PATCH', `/schedules/${id}`, {
    body: {
      message: 'Say something',
      trigger: { type: 'cron', cron: '0 8 * * *', timezone: 'Europe/Berlin' },
      delegation: await signSchedule(atA, { id }),
    },
  });
  const { cid } = body.delegation;
  const url = cluster.database.env.DATABASE_URL ?? '';
  await runStatement(url, 'update schedules_schedules set message = $2 where id = $1', [
    id,
    stolen.message,
  ]);
  await runStatement(url, statement, [id, cid]);
  await expect
    .poll(() => readSchedule(atC, id), { timeout: 60_000 })
    .toMatchObject({ status: 'stopped', reason: expect.stringContaining('signed for something') });
  const revoked = (await atC.request('GET', '/delegations')).body.delegations.find(
    ({ purpose }: { purpose: string }) => purpose !== 'schedule',
  );
  expect((await atC.request('DELETE', `/delegations/${revoked.cid}`)).status).toBe(200);
  for (const host of cluster.hosts) expect((await steal(host))[0]).toBe(401);
  expect(await readRuns(atA, id)).toMatchObject([{ status: 'aborted' }]);
  expect(cluster.model.arrived).toBe(0);
});

it(`a schedule of every second runs no due time twice in ${SECONDS} seconds, with two of three hosts killed`, {
  timeout: SECONDS * 1000 + 240_000,
}, async () => {
  const [atA] = cluster.newUser();
  const [a, b, c] = cluster.hosts;
  const answers = answerAll();
  const { id, sessionId } = await createSchedule(atA, { trigger: EVERY_SECOND, catchUp: 'once' });
  const countStarted = async () => {
    const rows = await runStatement(
      cluster.database.env.DATABASE_URL ?? '',
      'select 1 from schedules_runs where schedule_id = $1 and run_id is not null',
      [id],
    );
    return rows.length;
  };
  const untilStarted = (count: number) =>
    expect.poll(countStarted, { timeout: 180_000, interval: 500 }).toBeGreaterThanOrEqual(count);
  await untilStarted(SECONDS / 4);
  await b.kill();
  await untilStarted(SECONDS / 2);
  await a.kill();
  await untilStarted(SECONDS);
  const atC = atA.at(c);
  await atC.request('PATCH', `/schedules/${id}`, { body: { status: 'paused' } });
  const isOpen = ({ status }: { status: string }) => ['starting', 'running'].includes(status);
  await expect
    .poll(async () => (await readRuns(atC, id)).filter(isOpen), { timeout: 120_000 })
    .toEqual([]);
  answers.stop();
  const runs = await readRuns(atC, id);
  const started = runs.filter(({ runId }) => runId !== undefined);
  const { body } = await atC.request('GET', `/messages/${sessionId}`);
  const questions = body.messages.filter(({ type }: { type: string }) => type === 'human');
  // One turn for each due time that was claimed, and none that was not.
  expect(questions).toHaveLength(started.length);
  expect(new Set(started.map(({ runId }) => runId)).size).toBe(started.length);
  expect(new Set(runs.map(({ dueAt }) => dueAt)).size).toBe(runs.length);
  expect(answers.count).toBeLessThanOrEqual(started.length);
  // One host kept running, so there was no outage to catch up with.
  expect(runs.filter(({ cause }) => cause === 'catch-up')).toEqual([]);
});
