import type { JsonObject } from '@bufbuild/protobuf';

/** A query and the reply of the node. */
export interface Query {
  readonly name: string;
  readonly method: string;
  readonly requestType: string;
  readonly replyType: string;
  readonly reply: JsonObject;
  /** Returns a different path of this query for each number. */
  buildPath(n: number): string;
  /** Returns the request of a path. */
  parsePath(path: string): JsonObject;
}

const did = (n: number) => `did:ixo:entity:${n.toString(16).padStart(32, '0')}`;
const coins = [{ denom: 'uixo', amount: '1000000' }];
const since = '2024-05-01T08:30:00.123Z';
const cid = 'bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy';
const address = 'ixo1qz6r8h0w3m6x2k5n9v4t7c1p0l8s3d2f5g7j9a';

const resource = (_: unknown, i: number) => ({
  type: 'Settings',
  id: `{id}#resource-${i}`,
  description: 'Readings of a metered stove, month by month',
  mediaType: 'application/ld+json',
  serviceEndpoint: `ipfs:${cid}`,
  proof: cid,
  encrypted: 'false',
});

const evaluation = (i: number) => ({
  claim_id: `${cid}-${i}`,
  collection_id: '1',
  oracle: did(1),
  agent_did: `did:ixo:${address}`,
  agent_address: address,
  status: 'APPROVED',
  verification_proof: cid,
  evaluation_date: since,
  amount: coins,
});

const claim = (_: unknown, i: number) => ({
  collection_id: '1',
  agent_did: `did:ixo:${address}`,
  agent_address: address,
  submission_date: since,
  claim_id: `${cid}-${i}`,
  evaluation: evaluation(i),
  payments_status: { submission: 'PAID', evaluation: 'PAID', approval: 'PAID' },
  amount: coins,
  evaluation_history: [evaluation(i)],
});

const repeat = <T>(length: number, make: (_: unknown, i: number) => T) =>
  Array.from({ length }, make);

export const SMALL: Query = {
  name: '50 B',
  method: 'ixo.bonds.v1beta1.Query/CurrentReserve',
  requestType: 'ixo.bonds.v1beta1.QueryCurrentReserveRequest',
  replyType: 'ixo.bonds.v1beta1.QueryCurrentReserveResponse',
  reply: { current_reserve: coins },
  buildPath: (n) => `/ixo/bonds/${did(n)}/current_reserve`,
  parsePath: (path) => ({ bond_did: path.split('/')[3] ?? '' }),
};

export const MEDIUM: Query = {
  name: '4.5 KB',
  method: 'ixo.entity.v1beta1.Query/Entity',
  requestType: 'ixo.entity.v1beta1.QueryEntityRequest',
  replyType: 'ixo.entity.v1beta1.QueryEntityResponse',
  reply: {
    entity: {
      id: did(1),
      type: 'asset/device',
      start_date: since,
      entity_verified: true,
      credentials: [cid],
      metadata: { version_id: cid, created: since, updated: since },
      accounts: [{ name: 'admin', address }],
    },
    iidDocument: {
      context: [{ key: 'ixo', val: 'https://w3id.org/ixo/ns/protocol/' }],
      id: did(1),
      controller: [did(2)],
      verificationMethod: [
        {
          id: did(1),
          type: 'CosmosAccountAddress',
          controller: did(1),
          blockchainAccountID: address,
        },
      ],
      linkedResource: repeat(10, resource),
      metadata: { versionId: cid, created: since, updated: since },
    },
  },
  buildPath: (n) => `/ixo/entity/${did(n)}`,
  parsePath: (path) => ({ id: path.split('/')[3] ?? '' }),
};

export const LARGE: Query = {
  name: '240 KB',
  method: 'ixo.claims.v1beta1.Query/ClaimList',
  requestType: 'ixo.claims.v1beta1.QueryClaimListRequest',
  replyType: 'ixo.claims.v1beta1.QueryClaimListResponse',
  reply: { claims: repeat(140, claim), pagination: { total: '140' } },
  buildPath: (n) => `/ixo/claims/claims?pagination.offset=${n}&pagination.limit=140`,
  parsePath: (path) => {
    const { searchParams } = new URL(path, 'http://gateway');
    const [offset, limit] = ['offset', 'limit'].map((key) => searchParams.get(`pagination.${key}`));
    return { pagination: { offset: offset ?? '0', limit: limit ?? '100' } };
  },
};

export const QUERIES: readonly Query[] = [SMALL, MEDIUM, LARGE];
