import { expect, it, onTestFinished, vi } from 'vitest';
import { newOwner, useStore } from '../../test/support/test-database.js';
import { parseQuery } from '../store/search/terms.js';
import { Erasure } from './erasure.js';

const test = useStore('sqlite', { hasTwins: false });

type Deps = ConstructorParameters<typeof Erasure>[0];

/** An erasure in which only the store is real. */
function createErasure(different: object): Erasure {
  const { search, runs, erasures, ownerRows, removals } = test.store;
  const deps = {
    oracleDid: 'did:key:zOracle',
    store: { search, runs, erasures, ownerRows, removals },
    ucan: { acceptOnce: async () => ({}) },
    delegations: { revokeAll: async () => undefined },
    bus: { hostId: 'a', send: () => undefined },
    liveness: { findDeadHosts: async (ids: readonly string[]) => ids },
    imports: { cancel: async () => undefined },
    files: { deleteAll: async () => undefined },
    plugins: [],
    logger: { warn: () => undefined, info: () => undefined },
    ...different,
  };
  return new Erasure(deps as unknown as Deps);
}

it('Erasure.erase leaves no words in the search index if the host is killed while it deletes the texts', async () => {
  const { search, runs, erasures } = test.store;
  const owner = newOwner();
  const text = { source: 'message', id: '1', scope: 's', createdAt: 1, parts: ['zebra'] };
  await search.put([{ owner, ...text }]);
  const ownerRows = { hasAny: async () => false, erase: () => Promise.reject(new Error('killed')) };
  const erasure = createErasure({ store: { search, runs, erasures, ownerRows } });
  const caller = { did: owner } as Parameters<Erasure['erase']>[0];
  await expect(erasure.erase(caller, 'signed')).rejects.toThrow('killed');
  const query = parseQuery('zebra');
  expect(await search.index.find({ owner, sources: ['message'], query, limit: 10 })).toEqual([]);
  await erasures.end(await erasures.add(owner, 'a'));
});

it('Erasure.erase is remembered before anything is deleted, for users with rows', async () => {
  const { search, runs, erasures, rooms, removals } = test.store;
  const [owner, stranger] = [newOwner(), newOwner()];
  await rooms.getRoom({ owner, oracleDid: 'did:key:zOracle' });
  const hasAny = (did: string) => test.store.ownerRows.hasAny(did);
  const ownerRows = { hasAny, erase: () => Promise.reject(new Error('killed')) };
  const store = { search, runs, erasures, ownerRows, removals };
  for (const did of [owner, stranger]) {
    const erasing = createErasure({ store }).erase({ did } as never, 'signed');
    await expect(erasing).rejects.toThrow('killed');
    await erasures.end(await erasures.add(did, 'a'));
  }
  const erased = (await removals.read())?.map((one) => 'erased' in one && one.erased);
  expect(erased).toContain(removals.hash(owner));
  expect(erased).not.toContain(removals.hash(stranger));
});

it('Erasure.erase deletes nothing if it cannot be remembered, and continues later', async () => {
  const { search, runs, erasures, rooms, ownerRows } = test.store;
  const owner = newOwner();
  await rooms.getRoom({ owner, oracleDid: 'did:key:zOracle' });
  const addErasure = vi.fn(() => Promise.reject(new Error('no space left')));
  const removals = { addErasure };
  const erasure = createErasure({ store: { search, runs, erasures, ownerRows, removals } });
  await expect(erasure.erase({ did: owner } as never, 'signed')).rejects.toThrow('no space left');
  expect(await ownerRows.hasAny(owner)).toBe(true);
  addErasure.mockResolvedValue(undefined as never);
  await erasure.continueAll();
  expect(await ownerRows.hasAny(owner)).toBe(false);
});

it('Erasure.continueAll waits longer after each failure of a plugin or storage, and ends once it works', async () => {
  vi.useFakeTimers({ toFake: ['performance'] });
  onTestFinished(() => void vi.useRealTimers());
  const { erasures } = test.store;
  await erasures.add(newOwner(), 'dead');
  const deleteAll = vi.fn(() => Promise.reject(new Error('The storage does not answer')));
  const warn = vi.fn();
  const files = { deleteAll };
  const erasure = createErasure({ files, logger: { warn, info: () => undefined } });
  const attempts: number[] = [];
  for (let seconds = 0; seconds < 3600; seconds += 5) {
    const before = deleteAll.mock.calls.length;
    await erasure.continueAll();
    if (deleteAll.mock.calls.length > before) attempts.push(seconds);
    vi.advanceTimersByTime(5_000);
  }
  expect(attempts).toEqual([0, 10, 30, 70, 150, 310, 630, 1230, 1830, 2430, 3030]);
  expect(warn).toHaveBeenCalledTimes(attempts.length);
  files.deleteAll.mockResolvedValue(undefined as never);
  vi.advanceTimersByTime(600_000);
  await erasure.continueAll();
  expect(await erasures.list()).toEqual([]);
});
