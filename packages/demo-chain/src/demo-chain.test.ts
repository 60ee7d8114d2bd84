import type { JsonObject } from '@bufbuild/protobuf';
import { expect, it } from 'vitest';
import { callByGrpcJs, createGrpcJsClient } from '../test/support/grpc-js-call.js';
import { ManualBlocks } from '../test/support/manual-blocks.js';
import { loadChainSchema } from './chain-schema.js';
import { createDemoChain } from './demo-chain.js';
import { startDemoChain } from './index.js';

const schema = loadChainSchema();

function startChain(latest = 720) {
  const blocks = new ManualBlocks(latest);
  const chain = createDemoChain({ schema, blocks });
  const ask = async (method: string, request: JsonObject = {}, height?: number) => {
    const [service = '', name = ''] = method.split('/');
    const desc = schema.registry.getService(service)?.methods.find((one) => one.name === name);
    if (!desc) throw new Error(`no method ${method}`);
    const answer = await chain.answer({
      method,
      request: schema.encode(desc.input.typeName, request),
      height,
    });
    if ('error' in answer) throw answer.error;
    const reply = schema.decode(desc.output.typeName, answer.message);
    return { reply, height: answer.height };
  };
  return { blocks, ask };
}

type Page = { next_key?: string; total?: string };
type Claims = { claims: { claim_id: string }[]; pagination: Page };

it('createDemoChain answers Entity for every id of EntityList, with its document', async () => {
  const { ask } = startChain();
  const { reply } = await ask('ixo.entity.v1beta1.Query/EntityList');
  const entities = reply.entities as { id: string; type: string }[];
  expect(entities.length).toBeGreaterThan(20);
  for (const { id, type } of entities) {
    expect(id).toMatch(/^did:ixo:entity:[0-9a-f]{32}$/);
    const { reply } = await ask('ixo.entity.v1beta1.Query/Entity', { id });
    expect(reply).toMatchObject({ entity: { id, type }, iidDocument: { id } });
    const { reply: document } = await ask('ixo.iid.v1beta1.Query/IidDocument', { id });
    expect(document).toEqual({ iidDocument: reply.iidDocument });
  }
});

it('createDemoChain answers every method of the services it serves', async () => {
  const { ask } = startChain();
  const first = async (method: string, list: string) =>
    ((await ask(method)).reply[list] as JsonObject[])[0] ?? {};
  const claims = 'ixo.claims.v1beta1.Query';
  const dispute = await first(`${claims}/DisputeList`, 'disputes');
  const intent = await first(`${claims}/IntentList`, 'intents');
  const collection = { collectionId: intent.collection_id ?? '' };
  const agent = intent.agent_address ?? '';
  const entity = await first('ixo.entity.v1beta1.Query/EntityList', 'entities');
  const claim = await first(`${claims}/ClaimList`, 'claims');
  const { proof = '' } = dispute.data as JsonObject;
  const subjectId = dispute.subject_id ?? '';
  const asked: [string, JsonObject][] = [
    [`${claims}/Params`, {}],
    [`${claims}/Collection`, { id: '2' }],
    [`${claims}/CollectionList`, {}],
    [`${claims}/Claim`, { id: claim.claim_id ?? '' }],
    [`${claims}/Dispute`, { proof }],
    [`${claims}/DisputeBySubject`, { subjectId, targetRole: dispute.target_role ?? '' }],
    [`${claims}/DisputeListForSubject`, { subjectId }],
    [`${claims}/Intent`, { id: intent.id ?? '', agentAddress: agent, ...collection }],
    [`${claims}/CollectionMember`, { memberAddress: agent, ...collection }],
    [`${claims}/CollectionMemberList`, collection],
    [`${claims}/AgentDepositBalance`, { agentAddress: agent, ...collection }],
    [`${claims}/AgentDepositBalanceList`, collection],
    ['ixo.entity.v1beta1.Query/Params', {}],
    ['ixo.entity.v1beta1.Query/EntityMetaData', { id: entity.id ?? '' }],
    ['ixo.entity.v1beta1.Query/EntityIidDocument', { id: entity.id ?? '' }],
    ['ixo.iid.v1beta1.Query/IidDocuments', {}],
    ['ixo.token.v1beta1.Query/Params', {}],
    ['ixo.epochs.v1beta1.Query/EpochInfos', {}],
    ['ixo.epochs.v1beta1.Query/CurrentEpoch', { identifier: 'day' }],
    ['cosmos.base.node.v1beta1.Service/Config', {}],
    ['cosmos.base.tendermint.v1beta1.Service/GetNodeInfo', {}],
    ['cosmos.base.tendermint.v1beta1.Service/GetSyncing', {}],
    ['cosmos.base.tendermint.v1beta1.Service/GetBlockByHeight', { height: '700' }],
    ['cosmos.base.tendermint.v1beta1.Service/GetLatestValidatorSet', {}],
    ['cosmos.base.tendermint.v1beta1.Service/GetValidatorSetByHeight', { height: '700' }],
  ];
  for (const [method, request] of asked) {
    const { reply, height } = await ask(method, request);
    expect(height).toBe(720);
    if (!method.endsWith('GetSyncing')) expect(Object.keys(reply)).not.toHaveLength(0);
  }
});

it('createDemoChain answers TokenList and TokenMetadata by minter, contract and id', async () => {
  const { ask } = startChain();
  const { reply: entities } = await ask('ixo.entity.v1beta1.Query/EntityList');
  const admins = (entities.entities as { accounts: { address: string }[] }[]).map(
    ({ accounts }) => accounts[0]?.address ?? '',
  );
  const lists = await Promise.all(
    admins.map(
      async (minter) => (await ask('ixo.token.v1beta1.Query/TokenList', { minter })).reply,
    ),
  );
  const tokens = lists.flatMap(({ tokenDocs = [] }) => tokenDocs as JsonObject[]);
  expect(tokens.map(({ name }) => name).sort()).toEqual(['KISUMU', 'LAIKIPIA', 'TURKANA']);
  for (const token of tokens) {
    const { minter = '', contract_address = '' } = token;
    const { reply } = await ask('ixo.token.v1beta1.Query/TokenDoc', { minter, contract_address });
    expect(reply).toEqual({ tokenDoc: token });
    for (const { id } of (token.retired ?? []) as { id: string }[]) {
      const { reply: metadata } = await ask('ixo.token.v1beta1.Query/TokenMetadata', { id });
      expect(metadata).toMatchObject({ name: token.name });
    }
  }
});

it('createDemoChain adds claims with new blocks and keeps earlier states', async () => {
  const { blocks, ask } = startChain();
  const collection = async (height?: number) =>
    (await ask('ixo.claims.v1beta1.Query/Collection', { id: '1' }, height)).reply.collection as {
      count: string;
      evaluated: string;
    };
  const before = await collection();
  blocks.latest += 300;
  const after = await collection();
  expect(Number(after.count)).toBe(Number(before.count) + 10);
  expect(Number(after.evaluated)).toBeGreaterThan(Number(before.evaluated));
  expect(await collection(720)).toEqual(before);
  blocks.latest = 10_000_000;
  expect(await collection()).toMatchObject({ count: '1000', state: 'CLOSED' });
});

it('paginate returns the same records by key, by offset and in reverse', async () => {
  const { ask } = startChain();
  const list = async (pagination: JsonObject) =>
    (await ask('ixo.claims.v1beta1.Query/ClaimList', { pagination })).reply as unknown as Claims;
  const all = await list({});
  expect(all.pagination.total).toBe(String(all.claims.length));
  const byKey: unknown[] = [];
  let key: string | undefined = '';
  while (key !== undefined) {
    const page: Claims = await list({ limit: '7', key });
    byKey.push(...page.claims);
    expect(page.pagination.total).toBeUndefined();
    key = page.pagination.next_key;
  }
  expect(byKey).toEqual(all.claims);
  const middle = await list({ limit: '5', offset: '10', count_total: true });
  expect(middle.claims).toEqual(all.claims.slice(10, 15));
  expect(middle.pagination.total).toBe(all.pagination.total);
  const reverse = await list({ reverse: true });
  expect(reverse.claims).toEqual(all.claims.toReversed());
  const beyond = await list({ offset: '100000' });
  expect(beyond).not.toHaveProperty('claims');
  await expect(list({ offset: '1', key: 'YQ==' })).rejects.toMatchObject({ code: 3 });
});

it('createDemoChain reports its latest and earliest height', async () => {
  const { blocks, ask } = startChain();
  blocks.earliest = 221;
  const status = await ask('cosmos.base.node.v1beta1.Service/Status');
  expect(status.reply).toMatchObject({ height: '720', earliest_store_height: '221' });
  const latest = await ask('cosmos.base.tendermint.v1beta1.Service/GetLatestBlock');
  expect(latest.reply).toMatchObject({
    block: { header: { height: '720' } },
    sdk_block: { header: { height: '720' } },
  });
});

it('createDemoChain writes the type of a public key as chains do', async () => {
  const { ask } = startChain();
  const service = 'cosmos.base.tendermint.v1beta1.Service';
  const { reply } = await ask(`${service}/GetLatestValidatorSet`);
  const bytes = schema.encode(
    `${service.replace(/Service$/, '')}GetLatestValidatorSetResponse`,
    reply,
  );
  expect(Buffer.from(bytes).toString('latin1')).toContain('\n\x1d/cosmos.crypto.ed25519.PubKey');
});

it('createDemoChain counts epochs from the first block', async () => {
  const { blocks, ask } = startChain();
  blocks.latest = 1500;
  const { reply } = await ask('ixo.epochs.v1beta1.Query/EpochInfos');
  const [hour] = reply.epochs as JsonObject[];
  expect(hour).toMatchObject({
    identifier: 'hour',
    current_epoch: '3',
    current_epoch_start_height: '1441',
    current_epoch_start_time: blocks.getTime(1441).toISOString().replace('.000Z', 'Z'),
  });
});

it('createDemoChain rejects future and pruned heights', async () => {
  const { blocks, ask } = startChain();
  blocks.earliest = 221;
  const params = (height: number) => ask('ixo.entity.v1beta1.Query/Params', {}, height);
  await expect(params(721)).rejects.toThrow('height in the future');
  await expect(params(220)).rejects.toThrow('failed to load state at height 220');
  expect((await params(221)).height).toBe(221);
  const block = (height: string) =>
    ask('cosmos.base.tendermint.v1beta1.Service/GetBlockByHeight', { height });
  await expect(block('721')).rejects.toMatchObject({ code: 3 });
  await expect(block('220')).rejects.toMatchObject({ code: 5 });
});

it('createDemoChain rejects unknown methods and records', async () => {
  const { ask } = startChain();
  await expect(ask('ixo.bonds.v1beta1.Query/Bonds')).rejects.toMatchObject({ code: 12 });
  const entity = (id: string) => ask('ixo.entity.v1beta1.Query/Entity', { id });
  await expect(entity('did:ixo:entity:none')).rejects.toMatchObject({ code: 5 });
  await expect(entity('')).rejects.toMatchObject({ code: 3 });
  const epoch = ask('ixo.epochs.v1beta1.Query/CurrentEpoch', { identifier: 'year' });
  await expect(epoch).rejects.toMatchObject({ code: 5 });
});

it('startDemoChain serves gRPC and produces blocks', async () => {
  const chain = await startDemoChain();
  const client = createGrpcJsClient(chain.url);
  try {
    const status = 'cosmos.base.node.v1beta1.Service/Status';
    const { message, headers } = await callByGrpcJs(client, status, Buffer.alloc(0));
    const reply = schema.decode('cosmos.base.node.v1beta1.StatusResponse', message);
    expect(headers['x-cosmos-block-height']).toBe(reply.height);
    const age = Date.now() - Date.parse(String(reply.timestamp));
    expect(age).toBeGreaterThanOrEqual(0);
    expect(age).toBeLessThan(60_000);
  } finally {
    client.close();
    await chain.close();
  }
});
