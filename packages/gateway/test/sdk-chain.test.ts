import { create, fromBinary, type JsonObject, toBinary } from '@bufbuild/protobuf';
import { FileDescriptorSetSchema } from '@bufbuild/protobuf/wkt';
import { GrpcCode, GrpcError } from '@sibyl/grpc-client';
import { afterEach, describe, expect, it } from 'vitest';
import {
  FILE_DESCRIPTORS,
  loadChainSchema,
  readCompiledProtos,
  reflectionStreams,
} from '../../demo-chain/src/chain-schema.js';
import { createDemoChain, type DemoChain } from '../../demo-chain/src/demo-chain.js';
import { ManualBlocks } from '../../demo-chain/test/support/manual-blocks.js';
import { startTestNode } from '../../demo-chain/test/support/test-node.js';
import { descriptorFiles } from './schema/descriptor-set.js';
import type { Facts, FieldFact } from './schema/facts.js';
import { startGateway } from './support/running-gateway.js';

const PAGE = { no: 2, name: 'pagination', type: 'cosmos.base.query.v1beta1.PageRequest' };
const NEXT = { no: 2, name: 'pagination', type: 'cosmos.base.query.v1beta1.PageResponse' };
const COIN = 'cosmos.base.v1beta1.Coin';
const text = (no: number, name: string): FieldFact => ({ no, name, type: 'string' });
const DENOM_OWNERS: readonly FieldFact[] = [
  { no: 1, name: 'denom_owners', type: 'cosmos.bank.v1beta1.DenomOwner', repeated: true },
  NEXT,
];

/** Some modules of the SDK and a chain's own one, written for this test. */
const FACTS: Facts = {
  messages: {
    'cosmos.auth.v1beta1.QueryAccountRequest': [text(1, 'address')],
    'cosmos.auth.v1beta1.QueryAccountResponse': [
      { no: 1, name: 'account', type: 'google.protobuf.Any' },
    ],
    'cosmos.vesting.v1.Account': [text(1, 'address'), { no: 2, name: 'sequence', type: 'uint64' }],
    'cosmos.bank.v1beta1.DenomOwner': [
      text(1, 'address'),
      { no: 2, name: 'balance', type: COIN, nullable: false },
    ],
    'cosmos.bank.v1beta1.QueryDenomOwnersRequest': [text(1, 'denom'), PAGE],
    'cosmos.bank.v1beta1.QueryDenomOwnersResponse': DENOM_OWNERS,
    'cosmos.staking.v1beta1.HistoricalInfo': [
      { no: 2, name: 'valset', type: 'string', repeated: true },
    ],
    'cosmos.staking.v1beta1.QueryHistoricalInfoRequest': [{ no: 1, name: 'height', type: 'int64' }],
    'cosmos.staking.v1beta1.QueryHistoricalInfoResponse': [
      { no: 1, name: 'hist', type: 'cosmos.staking.v1beta1.HistoricalInfo' },
    ],
    'osmosis.gamm.v1beta1.QueryNumPoolsRequest': [],
    'osmosis.gamm.v1beta1.QueryNumPoolsResponse': [{ no: 1, name: 'num_pools', type: 'uint64' }],
  },
  services: {
    'cosmos.auth.v1beta1.Query': {
      Account: {
        request: 'cosmos.auth.v1beta1.QueryAccountRequest',
        response: 'cosmos.auth.v1beta1.QueryAccountResponse',
        path: '/cosmos/auth/v1beta1/accounts/{address}',
      },
    },
    'cosmos.bank.v1beta1.Query': {
      DenomOwners: {
        request: 'cosmos.bank.v1beta1.QueryDenomOwnersRequest',
        response: 'cosmos.bank.v1beta1.QueryDenomOwnersResponse',
        path: '/cosmos/bank/v1beta1/denom_owners/{denom}',
      },
    },
    'cosmos.staking.v1beta1.Query': {
      HistoricalInfo: {
        request: 'cosmos.staking.v1beta1.QueryHistoricalInfoRequest',
        response: 'cosmos.staking.v1beta1.QueryHistoricalInfoResponse',
        path: '/cosmos/staking/v1beta1/historical_info/{height}',
      },
    },
    'osmosis.gamm.v1beta1.Query': {
      NumPools: {
        request: 'osmosis.gamm.v1beta1.QueryNumPoolsRequest',
        response: 'osmosis.gamm.v1beta1.QueryNumPoolsResponse',
        path: '/osmosis/gamm/v1beta1/num_pools',
      },
    },
  },
};

/** The method that chain reflection lacks, and the field that it adds. */
const NODE_FACTS: Facts = {
  messages: {
    ...FACTS.messages,
    'cosmos.bank.v1beta1.QueryDenomOwnersByQueryRequest': [text(1, 'denom'), PAGE],
    'cosmos.bank.v1beta1.QueryDenomOwnersByQueryResponse': DENOM_OWNERS,
  },
  services: {
    ...FACTS.services,
    'cosmos.bank.v1beta1.Query': {
      ...FACTS.services?.['cosmos.bank.v1beta1.Query'],
      DenomOwnersByQuery: {
        request: 'cosmos.bank.v1beta1.QueryDenomOwnersByQueryRequest',
        response: 'cosmos.bank.v1beta1.QueryDenomOwnersByQueryResponse',
        path: '/cosmos/bank/v1beta1/denom_owners_by_query',
      },
    },
  },
};
const CHAIN_FACTS: Facts = {
  ...FACTS,
  messages: {
    ...FACTS.messages,
    'cosmos.staking.v1beta1.QueryHistoricalInfoResponse': [
      ...(FACTS.messages['cosmos.staking.v1beta1.QueryHistoricalInfoResponse'] ?? []),
      { no: 2, name: 'historical_record', type: 'cosmos.staking.v1beta1.HistoricalInfo' },
    ],
  },
};

/** The facts, with what every node has, and nothing of another chain. */
function buildFiles(facts: Facts): Uint8Array {
  const standard = fromBinary(FileDescriptorSetSchema, readCompiledProtos()).file.filter(
    ({ name }) => !name.startsWith('ixo/'),
  );
  const known = new Set(standard.map(({ package: name }) => name));
  const own = descriptorFiles(facts).filter(({ package: name }) => !known.has(name));
  const imported = [
    'cosmos/base/query/v1beta1/pagination.proto',
    'cosmos/base/v1beta1/coin.proto',
    'google/protobuf/any.proto',
  ];
  for (const file of own) file.dependency = imported;
  const set = create(FileDescriptorSetSchema, { file: [...standard, ...own] });
  return toBinary(FileDescriptorSetSchema, set);
}

const owners = [{ address: 'osmo1a', balance: { denom: 'uosmo', amount: '5' } }];
const REPLIES: Readonly<Record<string, readonly [type: string, reply: JsonObject]>> = {
  'cosmos.auth.v1beta1.Query/Account': [
    'cosmos.auth.v1beta1.QueryAccountResponse',
    { account: { '@type': '/cosmos.vesting.v1.Account', address: 'osmo1a', sequence: '7' } },
  ],
  'cosmos.bank.v1beta1.Query/DenomOwners': [
    'cosmos.bank.v1beta1.QueryDenomOwnersResponse',
    { denom_owners: owners, pagination: { total: '1' } },
  ],
  'cosmos.bank.v1beta1.Query/DenomOwnersByQuery': [
    'cosmos.bank.v1beta1.QueryDenomOwnersByQueryResponse',
    { denom_owners: owners, pagination: { total: '1' } },
  ],
  'cosmos.staking.v1beta1.Query/HistoricalInfo': [
    'cosmos.staking.v1beta1.QueryHistoricalInfoResponse',
    { hist: { valset: ['a'] } },
  ],
  'osmosis.gamm.v1beta1.Query/NumPools': [
    'osmosis.gamm.v1beta1.QueryNumPoolsResponse',
    { num_pools: '12' },
  ],
};

function createSdkChain(blocks: ManualBlocks): DemoChain {
  const schema = loadChainSchema(buildFiles(NODE_FACTS));
  const demo = createDemoChain({ schema: loadChainSchema(), blocks });
  const served = [
    ...Object.keys(NODE_FACTS.services ?? {}),
    'cosmos.base.tendermint.v1beta1.Service',
    'cosmos.base.node.v1beta1.Service',
  ];
  const files = buildFiles(CHAIN_FACTS);
  return {
    streams: reflectionStreams(schema, served),
    answer(query) {
      if (query.method === FILE_DESCRIPTORS) return { message: files };
      if (query.method.startsWith('cosmos.base.')) return demo.answer(query);
      const [type, reply] = REPLIES[query.method] ?? [];
      if (!type || !reply) throw new GrpcError(GrpcCode.unimplemented, `unknown ${query.method}`);
      return { message: schema.encode(type, reply), height: query.height ?? blocks.latest };
    },
  };
}

const cleanups: (() => unknown)[] = [];

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

async function start(over: 'grpc' | 'rpc+http', env: Record<string, string> = {}) {
  const blocks = new ManualBlocks();
  const node = await startTestNode({ over, blocks, chain: createSdkChain(blocks) });
  cleanups.push(() => node.close());
  const gateway = await startGateway([node], env);
  cleanups.push(() => gateway.close());
  return gateway;
}

const OWNERS =
  '{"denom_owners":[{"address":"osmo1a","balance":{"denom":"uosmo","amount":"5"}}],"pagination":{"next_key":null,"total":"1"}}';

describe.each(['grpc', 'rpc+http'] as const)('a plain SDK node over %s', (over) => {
  it.each([
    ['/cosmos/bank/v1beta1/denom_owners/uosmo', OWNERS],
    ['/cosmos/bank/v1beta1/denom_owners_by_query?denom=uosmo', OWNERS],
    ['/cosmos/staking/v1beta1/historical_info/5', '{"hist":{"valset":["a"]}}'],
    [
      '/cosmos/auth/v1beta1/accounts/osmo1a',
      '{"account":{"@type":"/cosmos.vesting.v1.Account","address":"osmo1a","sequence":"7"}}',
    ],
    ['/osmosis/gamm/v1beta1/num_pools', '{"num_pools":"12"}'],
  ])('%s is what the node prints', async (path, body) => {
    const gateway = await start(over);
    const { status, text } = await gateway.get(path);
    expect({ status, text }).toEqual({ status: 200, text: body });
  });

  it('has no route of another chain', async () => {
    const gateway = await start(over);
    const { routes } = (await gateway.get('/routes')).json.schemas[0];
    const paths = routes.map(({ path }: { path: string }) => path);
    expect(paths).toContain('/osmosis/gamm/v1beta1/num_pools');
    expect(paths.filter((path: string) => path.startsWith('/ixo'))).toEqual([]);
    expect((await gateway.get('/ixo/claims/claims')).status).toBe(404);
  });

  it('shows its own routes under GATEWAY_PREFIX, and accepts both', async () => {
    const gateway = await start(over, { GATEWAY_PREFIX: 'assets=osmosis' });
    for (const prefix of ['assets', 'osmosis']) {
      expect((await gateway.get(`/${prefix}/gamm/v1beta1/num_pools`)).text).toBe(
        '{"num_pools":"12"}',
      );
    }
    const { routes } = (await gateway.get('/routes')).json.schemas[0];
    const paths = routes.map(({ path }: { path: string }) => path);
    expect(paths).toContain('/assets/gamm/v1beta1/num_pools');
    expect(paths).toContain('/cosmos/bank/v1beta1/denom_owners/{denom}');
    expect((await gateway.get('/docs/openapi.json')).text).toContain('/assets/gamm');
  });
});
