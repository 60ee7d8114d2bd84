import { describe, expect, it, vi } from 'vitest';
import { usePluginTables } from '../../../packages/host/test/support/plugin-tables.js';
import { engines, newOwner } from '../../../packages/host/test/support/test-database.js';
import { schedules } from './index.js';
import { ScheduleRuns, toRunKey } from './run-store.js';
import { type RunRow, ScheduleStore } from './schedule-store.js';

const MINUTE_MS = 60_000;

describe.each(engines)('ScheduleRuns on %s', (engine) => {
  const test = usePluginTables(engine, schedules);

  /** A schedule that is due every minute, with runs of the last minutes. */
  async function createSchedule(runs: readonly Partial<RunRow>[]) {
    const store = new ScheduleStore(test.database);
    const owner = newOwner();
    const trigger = { type: 'cron', cron: '* * * * *', timezone: 'UTC' } as const;
    const delegation = { cid: 'bafy' };
    const wanted = { name: 'x', message: 'x', trigger, catchUp: 'once', delegation } as const;
    const { id } = await store.create({ ...wanted, owner, sessionId: 'session' }, 1);
    const now = Math.floor((await store.now()) / MINUTE_MS) * MINUTE_MS;
    await store.change({ owner, id }, () => ({ next_due_at: now }));
    const rows = runs.map((run, i) => ({
      ...{ owner, schedule_id: id, due_at: now - (i + 1) * MINUTE_MS, cause: 'time' as const },
      ...{ status: 'skipped' as const, data: null, session_id: 'session', run_id: null },
      ...{ attempts: 0, error: null, check_at: null, ended_at: 1, delivery: null },
      ...{ delivery_attempts: 0, delivery_error: null, deliver_at: null },
      ...run,
    }));
    await test.database.write(async (tables) => {
      for (const row of rows) await tables.insertInto('schedules_runs').values(row).execute();
    });
    const list = () => store.listRuns({ owner, id, limit: 1000 });
    return { store, owner, id, list };
  }

  it('keeps 100 runs of a schedule whose times are all skipped, and those that are open or not delivered', async () => {
    const open = { status: 'paused', check_at: 9e12, ended_at: null } as const;
    const pending = { status: 'finished', delivery: 'pending', deliver_at: 9e12 } as const;
    const skipped = Array.from({ length: 120 }, () => ({}));
    const { list, owner } = await createSchedule([...skipped, open, open, pending]);
    const claimed = await new ScheduleRuns(test.database).claimDue();
    expect(claimed.filter((run) => run.owner === owner)).toEqual([]);
    const runs = await list();
    expect(runs).toHaveLength(103);
    expect(runs[0]).toMatchObject({ status: 'skipped', error: 'Earlier runs have not ended' });
    expect(runs.slice(-3).map(({ status }) => status)).toEqual(['paused', 'paused', 'finished']);
  });

  it('reads a schedule twice for 200 callers at once, each after its call', async () => {
    const { store, owner, id } = await createSchedule([]);
    const reads = vi.spyOn(test.database.tables, 'selectFrom');
    const first = Array.from({ length: 100 }, () => store.find({ owner, id }));
    const changed = store.change({ owner, id }, () => ({ name: 'y' }));
    await changed;
    const second = Array.from({ length: 100 }, () => store.find({ owner, id }));
    const names = await Promise.all(second.map(async (found) => (await found)?.name));
    expect(new Set(names)).toEqual(new Set(['y']));
    await Promise.all(first);
    expect(reads.mock.calls.length).toBeLessThanOrEqual(4);
    expect(await store.find({ owner: newOwner(), id })).toBeUndefined();
  });

  /** One of two hosts that work on the same run, which is frozen after it has read the run. */
  async function takeAndFreeze(values: Partial<RunRow>, column: 'check_at' | 'deliver_at') {
    const { list, owner } = await createSchedule([{ ended_at: null, ...values, [column]: 1 }]);
    const frozen = new ScheduleRuns(test.database);
    const other = new ScheduleRuns(await test.another());
    const take = () =>
      column === 'check_at'
        ? frozen.takeUnattended()
        : frozen.takeDeliveries(30_000, { owner, limit: 20 });
    // Other tests of this file leave rows that are due as well.
    const [run] = (await take()).filter((row) => row.owner === owner);
    if (!run) throw new Error('It is due');
    return { frozen, other, run, key: toRunKey(run), read: async () => (await list())[0] };
  }

  it('a host that was frozen while it started a run leaves the end that another one has stored', async () => {
    const { frozen, other, run, key, read } = await takeAndFreeze(
      { status: 'starting' },
      'check_at',
    );
    await other.attend(run, { run_id: 'run', status: 'running' }, 0);
    await other.end(key, { status: 'finished' });
    await frozen.attend(run, { run_id: 'run', status: 'running' }, 250);
    expect(await read()).toMatchObject({ status: 'finished', check_at: null });
  });

  it('a host that was frozen while it delivered a result leaves what another one has stored', async () => {
    const { frozen, other, run, read } = await takeAndFreeze(
      { status: 'finished', ended_at: 1, delivery: 'pending' },
      'deliver_at',
    );
    const delivered = { delivery: 'delivered', deliver_at: null, delivery_attempts: 1 } as const;
    await other.recordDelivery(run, delivered);
    await frozen.recordDelivery(run, { ...delivered, delivery: 'pending', deliver_at: 1 });
    expect(await read()).toMatchObject(delivered);
  });
});
