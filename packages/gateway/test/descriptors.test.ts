import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import {
  DescriptorProtoSchema,
  FieldDescriptorProto_Label,
  FieldDescriptorProto_Type,
  FieldDescriptorProtoSchema,
  FileDescriptorProtoSchema,
  FileDescriptorSetSchema,
} from '@bufbuild/protobuf/wkt';
import { GrpcCode, GrpcError } from '@sibyl/grpc-client';
import { afterEach, expect, it } from 'vitest';
import { loadChainSchema, readCompiledProtos } from '../../demo-chain/src/chain-schema.js';
import { createDemoChain } from '../../demo-chain/src/demo-chain.js';
import { ManualBlocks } from '../../demo-chain/test/support/manual-blocks.js';
import {
  type Interruption,
  startTestNode,
  type TestNode,
  type TestNodeOptions,
} from '../../demo-chain/test/support/test-node.js';
import { fetchDescriptors } from '../src/schema/descriptor-source.js';
import { GrpcUpstream } from '../src/upstream/grpc-upstream.js';
import { ENTITY_PARAMS, entityParams } from './support/entity-params.js';
import { type RunningGateway, startGateway } from './support/running-gateway.js';
import { buildNote, smallDescriptors } from './support/small-descriptors.js';

const PARAMS = '/ixo/entity/params';
const FILE_DESCRIPTORS = 'cosmos.reflection.v1.ReflectionService/FileDescriptors';
const NODE_INFO = 'cosmos.base.tendermint.v1beta1.Service/GetNodeInfo';
const cleanups: (() => unknown)[] = [];

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

async function withNode(options: TestNodeOptions = {}): Promise<TestNode> {
  const node = await startTestNode(options);
  cleanups.push(() => node.close());
  return node;
}

async function withGateway(nodes: readonly TestNode[], env: Record<string, string> = {}) {
  const gateway = await startGateway(nodes, { GATEWAY_METRICS_PORT: '0', ...env });
  cleanups.push(() => gateway.close());
  return gateway;
}

/** A node without some methods. */
function withhold(node: TestNode, ...methods: readonly string[]): void {
  refuse(node, methods, new GrpcError(GrpcCode.unimplemented, 'unknown service'));
}

function refuse(node: TestNode, methods: readonly string[], error: GrpcError): void {
  node.interrupt(({ method }) => {
    if (methods.includes(method)) throw error;
    return undefined;
  });
}

const readSchemas = async (gateway: RunningGateway) => (await gateway.get('/routes')).json.schemas;

it('reads them from the server, and in one call from the chain', async () => {
  const node = await withNode();
  const gateway = await withGateway([node]);
  expect(await readSchemas(gateway)).toMatchObject([{ source: 'server and chain reflection' }]);
  expect(node.countCalls(FILE_DESCRIPTORS)).toBe(1);
});

/** A node whose chain reflection has the files of another version: a method less and a field more. */
function reportOtherVersion(node: TestNode): void {
  const set = fromBinary(FileDescriptorSetSchema, readCompiledProtos());
  const find = (name: string) => set.file.find((file) => file.name === name);
  const query = find('ixo/entity/v1beta1/query.proto');
  const [service] = query?.service ?? [];
  if (service) service.method = service.method.filter(({ name }) => name !== 'EntityMetaData');
  const params = query?.messageType.find(({ name }) => name === 'QueryParamsResponse');
  params?.field.push(
    create(FieldDescriptorProtoSchema, {
      name: 'later',
      number: 2,
      type: FieldDescriptorProto_Type.MESSAGE,
      label: FieldDescriptorProto_Label.OPTIONAL,
      typeName: '.ixo.entity.v1beta1.Params',
    }),
  );
  // A type that only this version has, and a file that refers to it.
  query?.messageType.push(create(DescriptorProtoSchema, { name: 'Later' }));
  const key = find('cosmos/crypto/ed25519/keys.proto');
  key?.messageType[0]?.field.push(
    create(FieldDescriptorProtoSchema, {
      name: 'later',
      number: 9,
      type: FieldDescriptorProto_Type.STRING,
      label: FieldDescriptorProto_Label.OPTIONAL,
    }),
  );
  set.file.push(
    create(FileDescriptorProtoSchema, {
      name: 'later.proto',
      package: 'later',
      dependency: ['ixo/entity/v1beta1/query.proto'],
      messageType: [{ name: 'Uses', field: [{ ...laterField, number: 1 }] }],
    }),
  );
  const message = toBinary(FileDescriptorSetSchema, set);
  node.interrupt(({ method }) => (method === FILE_DESCRIPTORS ? { message } : undefined));
}

const laterField = {
  name: 'later',
  type: FieldDescriptorProto_Type.MESSAGE,
  label: FieldDescriptorProto_Label.OPTIONAL,
  typeName: '.ixo.entity.v1beta1.Later',
};

const VALIDATORS = '/cosmos/base/tendermint/v1beta1/validatorsets/latest';
const PUBLIC_KEY = '{"@type":"/cosmos.crypto.ed25519.PubKey","key":"';

it('prefers the server where the chain reports another version, for types inside an Any too', async () => {
  const [plain, other] = [await withNode(), await withNode()];
  reportOtherVersion(other);
  const expected = await withGateway([plain]);
  const gateway = await withGateway([other]);
  expect((await gateway.get(PARAMS)).text).toBe((await expected.get(PARAMS)).text);
  const [{ id }] = (await gateway.get('/ixo/entity')).json.entities;
  expect((await gateway.get(`/ixo/entity/${id}/metadata`)).status).toBe(200);
  const { text, status } = await gateway.get(VALIDATORS);
  expect({ status, text }).toEqual({ status: 200, text: expect.stringContaining(PUBLIC_KEY) });
  expect(text).not.toContain('later');
  // The services that only the chain declares are known, but not served.
  expect(await gateway.get('/ixo/bonds/params')).toMatchObject({ status: 501 });
});

it.each([false, true])(
  'looks up types inside an Any when only the server has reflection (ends streams: %s)',
  async (endsStreams) => {
    const node = await withNode({ endsStreams });
    withhold(node, FILE_DESCRIPTORS);
    const gateway = await withGateway([node]);
    expect(await readSchemas(gateway)).toMatchObject([{ source: 'server reflection' }]);
    const { text, status } = await gateway.get(VALIDATORS);
    expect({ status, text }).toEqual({ status: 200, text: expect.stringContaining(PUBLIC_KEY) });
  },
);

it('answers 500 for an Any of a type that no node knows, and looks it up once', async () => {
  const node = await withNode();
  const gateway = await withGateway([node]);
  const any = Buffer.from('\n\x08/a.Thing');
  const validator = Buffer.concat([Buffer.from([0x12, any.length]), any]);
  const reply = Buffer.concat([Buffer.from([0x12, validator.length]), validator]);
  node.interrupt(({ method }) =>
    method.endsWith('GetLatestValidatorSet') ? { message: reply, height: 100 } : undefined,
  );
  for (let i = 0; i < 2; i += 1) {
    const { status, json } = await gateway.get(VALIDATORS);
    expect({ status, message: json.message }).toEqual({
      status: 500,
      message: 'The reply contains an Any of unknown type "/a.Thing"',
    });
  }
});

it('answers 504 when the lookup of a type inside an Any exceeds the timeout of the query', async () => {
  const blocks = new ManualBlocks();
  const chain = createDemoChain({ schema: loadChainSchema(), blocks, version: 'v1.0.0' });
  const streams = { ...chain.streams };
  const node = await withNode({ blocks, chain: { ...chain, streams } });
  withhold(node, FILE_DESCRIPTORS);
  const gateway = await withGateway([node], { GATEWAY_TIMEOUT_SECONDS: '1' });
  // From now on, reflection does not answer.
  for (const method of Object.keys(streams)) delete streams[method];
  const { status, json } = await gateway.get(VALIDATORS);
  expect({ status, message: json.message }).toEqual({
    status: 504,
    message: 'the type cosmos.crypto.ed25519.PubKey was not found in time',
  });
  expect((await gateway.get(PARAMS)).status).toBe(200);
});

it('reads them from the server where the chain has none', async () => {
  const node = await withNode();
  withhold(node, FILE_DESCRIPTORS);
  const gateway = await withGateway([node]);
  expect(await readSchemas(gateway)).toMatchObject([{ source: 'server reflection' }]);
  expect((await gateway.get(PARAMS)).status).toBe(200);
});

it('reads them from the server where the chain refuses them, and warns of it', async () => {
  const node = await withNode();
  const error = new GrpcError(GrpcCode.permissionDenied, 'blocked here');
  refuse(node, [FILE_DESCRIPTORS, NODE_INFO], error);
  const gateway = await withGateway([node]);
  expect(await readSchemas(gateway)).toMatchObject([{ source: 'server reflection' }]);
  expect((await gateway.get(PARAMS)).status).toBe(200);
  const warning = gateway.log.find(({ msg }) => msg === 'the schema is incomplete');
  expect(warning).toMatchObject({ warnings: ['reflection is refused: blocked here'] });
});

it('reads them from the chain where the server refuses them', async () => {
  const { url } = await withNode();
  const upstream = new GrpcUpstream({ url: new URL(url), maxReplyBytes: 1024 });
  cleanups.push(() => upstream.close());
  upstream.open = () => Promise.reject(new GrpcError(GrpcCode.permissionDenied, 'HTTP 403'));
  const { source, refusals } = await fetchDescriptors(upstream, undefined);
  expect({ source, refusals }).toEqual({
    source: 'chain reflection',
    refusals: ['reflection is refused: HTTP 403'],
  });
});

it('reads them from the chain where the server finds no file', async () => {
  const blocks = new ManualBlocks();
  const chain = createDemoChain({ schema: loadChainSchema(), blocks, version: 'v1.0.0' });
  const names = Object.keys(chain.streams ?? {});
  const streams = Object.fromEntries(names.map((name) => [name, () => new Uint8Array()]));
  const gateway = await withGateway([await withNode({ blocks, chain: { ...chain, streams } })]);
  expect(await readSchemas(gateway)).toMatchObject([{ source: 'chain reflection' }]);
});

it('reads them again until both sources answer, if one is not available', async () => {
  const node = await withNode();
  refuse(node, [FILE_DESCRIPTORS], new GrpcError(GrpcCode.unavailable, 'later'));
  const gateway = await withGateway([node]);
  expect(await readSchemas(gateway)).toEqual([]);
  node.interrupt();
  const sources = async () =>
    (await readSchemas(gateway)).map(({ source }: { source: string }) => source);
  await expect.poll(sources).toEqual(['server and chain reflection']);
});

it('reads descriptors that are larger than replies may be', async () => {
  const gateway = await withGateway([await withNode()], { GATEWAY_MAX_REPLY_SIZE: '1kb' });
  expect(await readSchemas(gateway)).toMatchObject([{ source: 'server and chain reflection' }]);
  expect((await gateway.get(PARAMS)).status).toBe(200);
});

it('reads them over RPC', async () => {
  const gateway = await withGateway([await withNode({ over: 'rpc+http' })]);
  expect(await readSchemas(gateway)).toMatchObject([{ source: 'chain reflection' }]);
  expect((await gateway.get(PARAMS)).status).toBe(200);
});

it("takes the operator's file before all", async () => {
  const folder = mkdtempSync(join(tmpdir(), 'sibyl-descriptors-'));
  cleanups.push(() => rmSync(folder, { recursive: true }));
  const path = join(folder, 'descriptors.bin');
  writeFileSync(path, smallDescriptors([{ name: 'a.Query/Note', http: 'get', path: '/a/note' }]));
  const node = await withNode({ over: 'rpc+http' });
  node.interrupt(({ method }) =>
    method === 'a.Query/Note' ? { message: buildNote('from the node'), height: 100 } : undefined,
  );
  const gateway = await withGateway([node], { GATEWAY_DESCRIPTORS: path });
  expect(await readSchemas(gateway)).toMatchObject([{ source: 'file' }]);
  expect(node.countCalls(FILE_DESCRIPTORS)).toBe(0);
  expect((await gateway.get('/a/note')).text).toBe('{"text":"from the node"}');
});

it('reports a node without reflection', async () => {
  const node = await withNode({ over: 'rpc+http' });
  withhold(node, FILE_DESCRIPTORS);
  const gateway = await withGateway([node]);
  const { status, json } = await gateway.get('/health');
  expect({ status, word: json.status }).toEqual({ status: 503, word: 'starting' });
  expect(JSON.stringify(gateway.log)).toContain('GATEWAY_DESCRIPTORS');
  withhold(node);
  await expect.poll(async () => (await gateway.get(PARAMS)).status).toBe(200);
});

it('starts while its node is down and serves once it is up', async () => {
  const gone = await startTestNode();
  await gone.close();
  const gateway = await withGateway([gone]);
  const { status, json } = await gateway.health();
  expect(status).toBe(503);
  expect(json).toMatchObject({ status: 'starting', nodes: { total: 1, down: 1 } });
  const [node] = json.details.nodes;
  expect(node).toMatchObject({ url: gone.url, state: 'down', height: '0' });
  expect(node.reason).toContain('cannot be reached');
  const down = gateway.log.filter(({ msg }) => msg === `node 1 (${gone.url}) is down`);
  expect(down).toMatchObject([{ reason: expect.stringContaining('cannot be reached') }]);
  const early = await gateway.get(PARAMS);
  expect(early).toMatchObject({ status: 503, json: { code: 14 } });
  expect(early.headers.get('retry-after')).toBe('1');
  await withNode({ port: gone.port });
  await expect.poll(async () => (await gateway.get(PARAMS)).status).toBe(200);
  expect((await gateway.get('/health')).json.status).toBe('ok');
});

/** A node that runs a version with other routes. */
function upgrade(
  node: TestNode,
  name: string,
  version: string,
  others: readonly string[] = [],
): void {
  const files = smallDescriptors(
    [name, ...others].map((one) => ({ name: `${one}.Query/Note`, http: 'get', path: `/${one}` })),
  );
  node.interrupt(({ method, height: requested }) => {
    const height = requested || node.blocks.latest;
    if (method === FILE_DESCRIPTORS) return { message: files, height };
    if (method === NODE_INFO) return { message: nodeInfo(version), height };
    return method === `${name}.Query/Note` ? { message: buildNote(version), height } : undefined;
  });
}

/** GetNodeInfoResponse with an application version. */
function nodeInfo(version: string): Uint8Array {
  const text = Buffer.from(version);
  const application = Buffer.concat([Buffer.from([0x1a, text.length]), text]);
  return Buffer.concat([Buffer.from([0x12, application.length]), application]);
}

it('serves other routes when the node runs another version, without a restart', async () => {
  const node = await withNode({ over: 'rpc+http' });
  upgrade(node, 'before', 'v1');
  const gateway = await withGateway([node]);
  expect((await gateway.get('/before')).text).toBe('{"text":"v1"}');
  expect((await gateway.get('/after')).status).toBe(404);
  upgrade(node, 'after', 'v2');
  await expect.poll(async () => (await gateway.get('/after')).text).toBe('{"text":"v2"}');
  expect((await gateway.get('/before')).status).toBe(404);
  expect((await gateway.health()).json.details.nodes[0].version).toBe('v2');
});

it('ends a ?watch when no node serves its schema anymore, so that the client gets the new one', async () => {
  const node = await withNode({ over: 'rpc+http' });
  upgrade(node, 'before', 'v1');
  const gateway = await withGateway([node]);
  const response = await fetch(`${gateway.url}/before?watch`);
  const text = response.text();
  await expect.poll(() => node.countCalls('before.Query/Note')).toBe(1);
  upgrade(node, 'after', 'v2');
  await expect.poll(async () => (await gateway.get('/after')).status).toBe(200);
  node.blocks.latest += 1;
  expect(await text).toContain('data: {"text":"v1"}');
});

it('does not read descriptors again while the version stays', async () => {
  const node = await withNode();
  const gateway = await withGateway([node]);
  const before = node.countCalls(NODE_INFO);
  await expect.poll(() => node.countCalls(NODE_INFO)).toBeGreaterThan(before + 1);
  expect(node.countCalls(FILE_DESCRIPTORS)).toBe(1);
  expect(await readSchemas(gateway)).toHaveLength(1);
});

it('serves nodes of different versions side by side, each by its own schema', async () => {
  const [older, newer] = [
    await withNode({ over: 'rpc+http' }),
    await withNode({ over: 'rpc+http' }),
  ];
  upgrade(older, 'old', 'v1');
  upgrade(newer, 'new', 'v2');
  const gateway = await withGateway([older, newer]);
  expect((await gateway.get('/old')).text).toBe('{"text":"v1"}');
  expect((await gateway.get('/new')).text).toBe('{"text":"v2"}');
  const { schemas } = (await gateway.health()).json.details;
  expect(schemas.map(({ nodes }: { nodes: string[] }) => nodes)).toEqual([
    [older.url],
    [newer.url],
  ]);
  const wanted = `/docs/openapi.json?schema=${schemas[1].fingerprint}`;
  expect(Object.keys((await gateway.get(wanted)).json.paths)).toEqual(['/new', '/batch']);
});

/** A node that was not upgraded and stays at its last block, before one of a new version. */
async function withHaltedNode() {
  const nodes = [
    await withNode({ over: 'rpc+http', blocks: new ManualBlocks(50) }),
    await withNode({ over: 'rpc+http', blocks: new ManualBlocks(50) }),
  ] as const;
  for (const [i, node] of nodes.entries()) {
    upgrade(node, 'note', `v${i + 1}`, i === 0 ? [] : ['added']);
  }
  return nodes;
}

it('reads the latest state and new heights from a node of another version if the first lags', async () => {
  const [halted, ahead] = await withHaltedNode();
  ahead.blocks.latest = 100;
  const gateway = await withGateway([halted, ahead]);
  const latest = await gateway.get('/note');
  expect(latest.headers.get('x-block-height')).toBe('100');
  expect(latest.text).toBe('{"text":"v2"}');
  expect((await gateway.get('/note?height=80')).text).toBe('{"text":"v2"}');
  expect((await gateway.get('/note?height=40')).text).toBe('{"text":"v1"}');
  await ahead.close();
  await expect.poll(async () => (await gateway.get('/note')).text).toBe('{"text":"v1"}');
});

it('reads the latest state from a node of another version if the first is few blocks behind', async () => {
  const [halted, ahead] = await withHaltedNode();
  ahead.blocks.latest = 51;
  const gateway = await withGateway([halted, ahead]);
  const headers = { 'x-min-block-height': '51', 'grpc-timeout': '3S' };
  for (const reply of [
    await gateway.get('/note'),
    await gateway.get('/note?height=0'),
    await gateway.get('/note', headers),
  ]) {
    expect(reply.text).toBe('{"text":"v2"}');
  }
  expect((await gateway.get('/note?height=50')).text).toBe('{"text":"v1"}');
});

it('chooses the version by the height with GATEWAY_COMPAT=node too', async () => {
  const [halted, ahead] = await withHaltedNode();
  ahead.blocks.latest = 100;
  const gateway = await withGateway([halted, ahead], { GATEWAY_COMPAT: 'node' });
  const getAt = (height: string) => gateway.get('/note', { 'x-cosmos-block-height': height });
  expect((await getAt('80')).text).toBe('{"text":"v2"}');
  expect((await getAt('40')).text).toBe('{"text":"v1"}');
  expect(await getAt('abc')).toMatchObject({ status: 500, json: { code: 2 } });
});

it('ends a ?watch when the nodes of its schema lag behind those of another version', async () => {
  const [halted, ahead] = await withHaltedNode();
  const gateway = await withGateway([halted, ahead]);
  const response = await fetch(`${gateway.url}/note?watch`);
  const text = response.text();
  await expect.poll(() => halted.countCalls('note.Query/Note')).toBe(1);
  ahead.blocks.latest = 100;
  expect(await text).toContain('data: {"text":"v1"}');
});

it('fails over only between nodes with the same schema', async () => {
  const nodes = [
    await withNode({ over: 'rpc+http' }),
    await withNode({ over: 'rpc+http' }),
  ] as const;
  for (const node of nodes) upgrade(node, 'same', 'v1');
  const gateway = await withGateway(nodes);
  expect(await readSchemas(gateway)).toHaveLength(1);
  await nodes[0].close();
  expect((await gateway.get('/same')).status).toBe(200);
});

/** A node that reports another chain, with the same software. */
function joinChain(node: TestNode, network: string, others?: Interruption): void {
  const name = Buffer.from(network);
  const info = Buffer.concat([Buffer.from([0x0a, name.length + 2, 0x22, name.length]), name]);
  node.interrupt((query) =>
    query.method === NODE_INFO ? { message: info, height: 1 } : others?.(query),
  );
}

it('follows the address of a node from another chain to this one and back', async () => {
  const [ours, other] = [await withNode(), await withNode()];
  joinChain(other, 'other-1');
  const gateway = await withGateway([ours, other]);
  const readState = async () => (await gateway.health()).json.details.nodes[1].state;
  expect(await readState()).toBe('down');
  joinChain(other, 'sibyl-demo-1');
  await expect.poll(readState).toBe('up');
  joinChain(other, 'other-2');
  await expect.poll(readState).toBe('down');
});

it('forgets replies of a node of another chain that was used while the first was down', async () => {
  const gone = await startTestNode();
  await gone.close();
  const foreign = await withNode();
  joinChain(foreign, 'other-1', ({ method, height = 100 }) =>
    method === ENTITY_PARAMS ? { message: entityParams(7), height } : undefined,
  );
  const gateway = await withGateway([gone, foreign]);
  const read = async () => (await gateway.get(`${PARAMS}?height=60`)).json.params.createSequence;
  expect(await read()).toBe('7');
  await withNode({ port: gone.port });
  const readState = async () => (await gateway.health()).json.details.nodes[1].state;
  await expect.poll(readState).toBe('down');
  expect(await read()).not.toBe('7');
  const isDown = ({ msg }: Record<string, unknown>) => msg === `node 2 (${foreign.url}) is down`;
  await expect.poll(() => String(gateway.log.find(isDown)?.reason)).toContain('other-1');
});

it('sets a node of another chain aside', async () => {
  const ours = await withNode();
  const foreign = await withNode({ over: 'rpc+http' });
  foreign.blocks.latest = 999_999;
  joinChain(foreign, 'other-1');
  const gateway = await withGateway([ours, foreign]);
  await expect
    .poll(async () => (await gateway.health()).json.details.nodes[1])
    .toMatchObject({ state: 'down', reason: expect.stringContaining('other-1') });
  expect((await gateway.get(PARAMS)).headers.get('x-block-height')).toBe('100');
});

it('starts from live descriptors with one call for the schema', async () => {
  const node = await withNode();
  const gateway = await withGateway([node]);
  expect((await gateway.get(PARAMS)).status).toBe(200);
  expect(node.countCalls(FILE_DESCRIPTORS)).toBe(1);
});
