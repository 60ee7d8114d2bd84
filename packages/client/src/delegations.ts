import type { DelegationList, DelegationsRevoked, StoreDelegation } from '@sibyl/protocol';
import type { Delegations } from './oracle-client.js';
import type { Http } from './request/http.js';
import type { OracleSigner } from './signer/oracle-signer.js';
import { signingError } from './signer/signing-error.js';

const PATH = '/delegation';
const LIST_PATH = '/delegations';
const DAY_SECONDS = 86_400;

/** What the user lets the oracle do on his behalf. */
export function createDelegations(http: Http, signer: OracleSigner): Delegations {
  const create: Delegations['create'] = async ({ capabilities, expiration }) => {
    const { did: audience } = await http.discovery.card();
    const until = expiration ?? http.discovery.now() + DAY_SECONDS;
    const minting = signer.delegate({ audience, capabilities, expiration: until });
    return minting.catch((cause) => {
      throw signingError(cause);
    });
  };
  const store: Delegations['store'] = (raw) => {
    const body: StoreDelegation = { raw };
    return http.json({ method: 'POST', path: PATH, body });
  };
  return {
    create,
    store,
    grant: async (terms) => store((await create(terms)).token),
    status: (options = {}) => http.json({ path: PATH, ...options }),
    list: async (options = {}) =>
      (await http.json<DelegationList>({ path: LIST_PATH, ...options })).delegations,
    revoke: async (cid) => {
      const path = cid === undefined ? PATH : `${LIST_PATH}/${encodeURIComponent(cid)}`;
      await http.json({ method: 'DELETE', path });
    },
    revokeAll: async () =>
      (await http.json<DelegationsRevoked>({ method: 'DELETE', path: LIST_PATH })).revoked,
  };
}
