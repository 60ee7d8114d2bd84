import type { HostReport } from '@sibyl/protocol';
import { describe, expect, it } from 'vitest';
import { newOwner, useStore } from '../../../test/support/test-database.js';
import { COMMAND_LINE } from './operator-store.js';

// Operators see the lists of all users.
const options = { hasTwins: false };

describe('UserList', () => {
  let now = 1000;
  const test = useStore('sqlite', { ...options, clock: () => now });

  it('add lists a user once and keeps the first note and time', async () => {
    const { blockedUsers } = test.store;
    const did = newOwner();
    expect(await blockedUsers.has(did)).toBe(false);
    expect(await blockedUsers.add(did, 'spam')).toBe(true);
    const added = { did, note: 'spam', createdAt: now };
    now += 1;
    expect(await blockedUsers.add(did, 'again')).toBe(false);
    expect(await blockedUsers.has(did)).toBe(true);
    expect(await blockedUsers.list()).toEqual([added]);
    expect(await blockedUsers.has(newOwner())).toBe(false);
  });

  it('remove takes one user off one list', async () => {
    const { operators, sharedArguments } = test.store;
    const [did, other] = [newOwner(), newOwner()];
    await operators.add(did);
    await operators.add(other);
    await sharedArguments.add(did);
    expect(await operators.remove(newOwner())).toBe(false);
    expect(await operators.remove(did)).toBe(true);
    expect(await operators.remove(did)).toBe(false);
    expect(await operators.has(did)).toBe(false);
    expect(await operators.has(other)).toBe(true);
    expect(await sharedArguments.has(did)).toBe(true);
  });

  it('a user on one list is on no other', async () => {
    const { operators, blockedUsers, sharedArguments } = test.store;
    const did = newOwner();
    const readLists = () =>
      Promise.all([operators, blockedUsers, sharedArguments].map((list) => list.has(did)));
    await operators.add(did);
    expect(await readLists()).toEqual([true, false, false]);
    await operators.remove(did);
    await blockedUsers.add(did);
    expect(await readLists()).toEqual([false, true, false]);
    await blockedUsers.remove(did);
    await sharedArguments.add(did);
    expect(await readLists()).toEqual([false, false, true]);
  });
});

describe('UserList.list', () => {
  let now = 1000;
  const test = useStore('sqlite', { ...options, clock: () => now });

  it('returns the newest first, and those of the same time by their DID', async () => {
    const { operators } = test.store;
    await operators.add('did:key:zM');
    now += 1;
    for (const did of ['did:key:zC', 'did:key:zA', 'did:key:zB']) await operators.add(did, did);
    now += 1;
    await operators.add('did:key:zN', 'newest');
    expect(await operators.list()).toEqual([
      { did: 'did:key:zN', note: 'newest', createdAt: 1002 },
      { did: 'did:key:zA', note: 'did:key:zA', createdAt: 1001 },
      { did: 'did:key:zB', note: 'did:key:zB', createdAt: 1001 },
      { did: 'did:key:zC', note: 'did:key:zC', createdAt: 1001 },
      { did: 'did:key:zM', note: undefined, createdAt: 1000 },
    ]);
  });
});

describe('AuditStore', () => {
  let now = Date.UTC(2026, 0, 1);
  const test = useStore('sqlite', { ...options, clock: () => now });

  it('list returns what all operators did, newest first, in pages', async () => {
    const { audit } = test.store;
    const operator = newOwner();
    const target = newOwner();
    await audit.add({ operator: COMMAND_LINE, action: 'add_operator', target: operator });
    now += 1000;
    await audit.add({ operator, action: 'block_user', target, note: 'spam' });
    now += 1000;
    await audit.add({ operator, action: 'unblock_user', target });
    const actions = await audit.list(10);
    expect(actions.map(({ id: _, ...action }) => action)).toEqual([
      { operator, action: 'unblock_user', target, at: '2026-01-01T00:00:02.000Z' },
      { operator, action: 'block_user', target, at: '2026-01-01T00:00:01.000Z', note: 'spam' },
      {
        operator: 'command line',
        action: 'add_operator',
        target: operator,
        at: '2026-01-01T00:00:00.000Z',
      },
    ]);
    const [newest, middle, oldest] = actions;
    expect(await audit.list(2)).toEqual([newest, middle]);
    expect(await audit.list(10, newest?.id)).toEqual([middle, oldest]);
    expect(await audit.list(1, newest?.id)).toEqual([middle]);
    expect(await audit.list(10, oldest?.id)).toEqual([]);
  });
});

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
