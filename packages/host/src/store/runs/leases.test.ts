import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { engines, newOwner, useStore } from '../../../test/support/test-database.js';
import { createHostProcess, DatabaseClock } from './leases.js';

const HOUR_MS = 3_600_000;

afterEach(() => void vi.restoreAllMocks());

describe.each(engines)('RunStore.closeInterrupted on %s', (engine) => {
  const test = useStore(engine);

  it.each([HOUR_MS, -HOUR_MS])(
    'closes no run of a living host when the time of day is set by %d ms',
    async (step) => {
      const owner = newOwner();
      const { id: sessionId } = await test.store.sessions.create({ owner, oracleDid: 'did:o' });
      const request = { owner, sessionId, requestId: 'r', message: { content: 'hi' } };
      const started = await test.store.runs.start({ ...request, status: 'running' });
      if (started.state !== 'started') throw new Error(started.state);
      const runId = started.run.id;
      const other = await test.another();
      const now = Date.now;
      vi.spyOn(Date, 'now').mockImplementation(() => now() + step);
      const late = await test.another();
      for (const { runs } of [test.store, other, late])
        expect(await runs.closeInterrupted(() => ({ status: 'interrupted' }))).toEqual([]);
      await test.store.runs.renewLeases();
      expect(await other.runs.closeInterrupted(() => ({ status: 'interrupted' }))).toEqual([]);
      expect(await test.store.runs.find({ owner, runId })).toMatchObject({ status: 'running' });
      await test.store.runs.finish({ owner, runId, ending: { status: 'finished' } });
    },
  );
});

describe('DatabaseClock', () => {
  it('follows the time of the database and lets leases expire only while it is steady', async () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    try {
      let database = 1_000_000_000;
      const pass = (ms: number) => {
        database += ms;
        vi.advanceTimersByTime(ms);
      };
      const clock = new DatabaseClock(async () => database);
      await clock.sync();
      const lease = clock.now() + 1_000;
      pass(14_000);
      await clock.sync();
      expect(clock.isOver(lease)).toBe(false);
      pass(1_000);
      expect(clock.isOver(lease)).toBe(true);
      const alive = clock.now() + 30_000;
      database += HOUR_MS;
      await clock.sync();
      expect(clock.isOver(alive)).toBe(false);
      pass(15_000);
      await clock.sync();
      expect(clock.isOver(alive)).toBe(true);
      expect(clock.now()).toBe(database);
    } finally {
      vi.useRealTimers();
    }
  });
});

const host = createHostProcess();

/** The id a process with this pid would have on this machine. */
function toHostId(pid: number | undefined): string {
  const [machine] = host.id.split('/');
  return `${machine}/${pid}/0000`;
}

it('HostProcess.isKnownDead is false for this process', () => {
  expect(host.isKnownDead(host.id)).toBe(false);
  expect(host.isKnownDead(createHostProcess().id)).toBe(false);
});

it('HostProcess.isKnownDead is true for an ended process of this machine', async () => {
  const child = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)']);
  await once(child, 'spawn');
  expect(host.isKnownDead(toHostId(child.pid))).toBe(false);
  child.kill('SIGKILL');
  await once(child, 'exit');
  expect(host.isKnownDead(toHostId(child.pid))).toBe(true);
});

it('HostProcess.isKnownDead is false for processes of other machines', () => {
  expect(host.isKnownDead('elsewhere/999999999/0000')).toBe(false);
  expect(host.isKnownDead('')).toBe(false);
});
