import { expect, it } from 'vitest';
import { newOwner, useStore } from '../../test/support/test-database.js';
import { parseQuery } from '../store/search/terms.js';
import { Erasure } from './erasure.js';

const test = useStore('sqlite', { hasTwins: false });

it('Erasure.erase leaves no words in the search index if the host is killed while it deletes the texts', async () => {
  const { search, runs, erasures } = test.store;
  const owner = newOwner();
  const text = { source: 'message', id: '1', scope: 's', createdAt: 1, parts: ['zebra'] };
  await search.put([{ owner, ...text }]);
  const deps = {
    oracleDid: 'did:key:zOracle',
    store: {
      search,
      runs,
      erasures,
      ownerRows: { erase: () => Promise.reject(new Error('killed')) },
    },
    ucan: { acceptOnce: async () => ({}) },
    delegations: { revokeAll: async () => undefined },
    bus: { hostId: 'a', send: () => undefined },
    imports: { cancel: async () => undefined },
    files: { deleteAll: async () => undefined },
    plugins: [],
  };
  const erasure = new Erasure(deps as unknown as ConstructorParameters<typeof Erasure>[0]);
  const caller = { did: owner } as Parameters<Erasure['erase']>[0];
  await expect(erasure.erase(caller, 'signed')).rejects.toThrow('killed');
  const query = parseQuery('zebra');
  expect(await search.index.find({ owner, sources: ['message'], query, limit: 10 })).toEqual([]);
});
