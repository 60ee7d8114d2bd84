import { expect, it } from 'vitest';
import { useStore } from '../../test/support/test-database.js';

const test = useStore('postgres');

it('JobClaims.take lets one of several hosts do what is due, once for each time', async () => {
  const stores = [test.store, await test.another(), await test.another()];
  for (const due of [1_000, 2_000]) {
    const taken = await Promise.all(stores.map(({ jobs }) => jobs.take('sweep', due)));
    expect(taken.filter(Boolean)).toHaveLength(1);
  }
  expect(await test.store.jobs.take('sweep', 1_000)).toBe(false);
  expect(await test.store.jobs.take('other', 1_000)).toBe(true);
});
