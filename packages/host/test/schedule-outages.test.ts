import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type ControlledModel, startControlledModel } from './support/controlled-model.js';
import { startHost, type TestHost } from './support/host.js';
import { createSchedule, readRuns, readSchedule } from './support/schedules.js';
import { TestUser } from './support/user.js';

const HOUR_MS = 3_600_000;
const dataDir = mkdtempSync(join(tmpdir(), 'sibyl-schedules-'));
const trigger = { type: 'cron', cron: '0 * * * *', timezone: 'UTC' } as const;

let model: ControlledModel;
let host: TestHost;
const start = () => startHost({ env: { ...model.env, DATA_DIR: dataDir } });

beforeAll(async () => {
  model = await startControlledModel();
  host = await start();
});
afterAll(async () => {
  await host.close();
  model.close();
  rmSync(dataDir, { recursive: true, force: true });
});

/** Stops the host, changes its database as time would, and starts it again. */
async function restartAfter(change: (database: DatabaseSync) => void): Promise<void> {
  await host.close();
  const database = new DatabaseSync(join(dataDir, 'sibyl.db'));
  change(database);
  database.close();
  host = await start();
}

/** Moves the next due time of all schedules back. */
const missHours = (hours: number) => (database: DatabaseSync) =>
  void database.exec(
    `update schedules_schedules set next_due_at = next_due_at - ${hours * HOUR_MS} where next_due_at is not null`,
  );

it('a schedule with catchUp once runs once after an outage, however many times it missed', async () => {
  const alice = new TestUser(host);
  const { id } = await createSchedule(alice, { trigger, catchUp: 'once' });
  // An hour less a minute at least, so that the latest missed time is not on time.
  await restartAfter(missHours(5));
  const again = alice.at(host);
  const isOnTime = Date.now() % HOUR_MS < 90_000;
  (await model.next()).answer('Caught up');
  await expect.poll(() => readRuns(again, id)).toMatchObject([{ status: 'finished' }]);
  if (!isOnTime) expect((await readRuns(again, id))[0]?.cause).toBe('catch-up');
  const { nextDueAt = '' } = await readSchedule(again, id);
  expect(Date.parse(nextDueAt)).toBeGreaterThan(Date.now());
  await restartAfter(() => {});
  await expect.poll(() => readRuns(alice.at(host), id)).toHaveLength(1);
  await again.at(host).request('DELETE', `/schedules/${id}`);
});

it('a schedule with catchUp skip notes what it missed, and runs at its next time', async () => {
  const alice = new TestUser(host);
  const { id } = await createSchedule(alice, { trigger });
  const missed = Math.floor(Date.now() / HOUR_MS) * HOUR_MS - HOUR_MS;
  const cron = JSON.stringify({ ...trigger, cron: `0 ${new Date(missed).getUTCHours()} * * *` });
  await restartAfter((database) => {
    database
      .prepare('update schedules_schedules set next_due_at = ?, trigger = ? where id = ?')
      .run(missed, cron, id);
  });
  const again = alice.at(host);
  await expect
    .poll(() => readRuns(again, id))
    .toMatchObject([
      { dueAt: new Date(missed).toISOString(), cause: 'catch-up', status: 'skipped' },
    ]);
  expect(model.arrived).toBe(0);
  await again.request('DELETE', `/schedules/${id}`);
});

it('a due time that was claimed runs once: a host that died before its start is replaced, a second claim is refused', async () => {
  const alice = new TestUser(host);
  const { id, sessionId } = await createSchedule(alice, { trigger, message: 'Left behind' });
  const due = Math.floor(Date.now() / HOUR_MS) * HOUR_MS;
  const insert = (database: DatabaseSync) =>
    database
      .prepare(
        `insert into schedules_runs (owner, schedule_id, due_at, cause, status, session_id, attempts, check_at, delivery_attempts)
         values (?, ?, ?, 'time', 'starting', ?, 0, 0, 0)`,
      )
      .run(alice.did, id, due, sessionId);
  await restartAfter((database) => {
    insert(database);
    database.prepare('update schedules_schedules set next_due_at = ? where id = ?').run(due, id);
  });
  const turn = await model.next();
  expect(turn.body.messages.at(-1).content).toBe('Left behind');
  turn.answer('Done');
  const again = alice.at(host);
  await expect.poll(() => readRuns(again, id)).toMatchObject([{ status: 'finished' }]);
  const { nextDueAt = '' } = await readSchedule(again, id);
  expect(Date.parse(nextDueAt)).toBeGreaterThan(Date.now());
  expect(model.arrived).toBe(0);
});
