import type { HostReport } from '@sibyl/protocol';
import { describe, expect, it } from 'vitest';
import { useStore } from '../../../test/support/test-database.js';

const DAY_MS = 24 * 60 * 60 * 1000;

const check = { status: 'ok', message: '' } as const;
const checks = { host: check, store: check, disk: check, model: check, plugins: check };

const createReport = (startedAt: number, sockets = 0): HostReport => ({
  version: '1.0.0',
  startedAt: new Date(startedAt).toISOString(),
  readiness: { status: 'ready', timestamp: new Date(startedAt).toISOString(), checks },
  turns: { running: 0, queued: 0 },
  sockets,
  streams: 0,
  busLagMs: 0,
  memoryBytes: 0,
  errors: [],
  limited: [],
  modelFailures: [],
});

describe('HostStore', () => {
  const start = Date.UTC(2026, 0, 1);
  let now = start;
  const test = useStore('sqlite', { clock: () => now });
  const listIds = async () => (await test.store.hosts.list()).map(({ id }) => id);

  it('lists the last report of each host, in the order in which they started', async () => {
    const { hosts } = test.store;
    const [first, second] = [createReport(start), createReport(start + 1)];
    await hosts.save('a', second);
    await hosts.save('b', first);
    expect(await hosts.list()).toEqual([
      { id: 'b', report: first, updatedAt: start },
      { id: 'a', report: second, updatedAt: start },
    ]);
    now += 1000;
    const changed = createReport(start, 7);
    await hosts.save('b', changed);
    expect(await hosts.list()).toEqual([
      { id: 'b', report: changed, updatedAt: start + 1000 },
      { id: 'a', report: second, updatedAt: start },
    ]);
  });

  it('does not list a host that has ended', async () => {
    const { hosts } = test.store;
    await hosts.save('ends', createReport(now));
    await hosts.save('stays', createReport(now));
    await hosts.remove('ends');
    expect(await listIds()).not.toContain('ends');
    expect(await listIds()).toContain('stays');
  });

  it('lists a host that reports nothing for a day, and no longer', async () => {
    const { hosts } = test.store;
    await hosts.save('silent', createReport(now));
    now += DAY_MS;
    await hosts.save('other', createReport(now));
    expect(await listIds()).toContain('silent');
    now += 1;
    await hosts.save('other', createReport(now));
    expect(await listIds()).toEqual(['other']);
  });
});
