import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { DescMethod } from '@bufbuild/protobuf';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { loadChainSchema, reflectionStreams } from '../../demo-chain/src/chain-schema.js';
import { createDemoChain } from '../../demo-chain/src/demo-chain.js';
import type { Query } from '../../demo-chain/src/grpc-server.js';
import { LOCALHOST_TLS } from '../../demo-chain/test/support/localhost-tls.js';
import { ManualBlocks } from '../../demo-chain/test/support/manual-blocks.js';
import { startTestNode, type TestNode } from '../../demo-chain/test/support/test-node.js';
import { type RunningGateway, startGateway } from './support/running-gateway.js';
import { SampleMessages } from './support/sample-messages.js';
import { readTemplate, sampleRequest } from './support/sample-requests.js';
import { seededPick } from './support/sample-values.js';

const schema = loadChainSchema();
const { registry } = schema;
const services = [...registry].filter((desc) => desc.kind === 'service');
const methods = services
  .filter(({ typeName }) => typeName.startsWith('ixo.'))
  .flatMap((service) => service.methods);
const pickName = (method: DescMethod) => `${method.parent.typeName}/${method.name}`;

/** Each case uses its own block, so that the cache does not affect it. */
const cases = methods
  .flatMap((method) =>
    (['full', 'sparse', 'empty'] as const).map((fullness) => ({ method, fullness })),
  )
  .map((one, i) => ({ ...one, height: i + 1, name: `${one.fullness} ${pickName(one.method)}` }));

it('declares 59 routes of ten services', () => {
  expect(methods).toHaveLength(59);
  expect(new Set(methods.map(({ parent }) => parent)).size).toBe(10);
  expect(new Set(methods.map((method) => readTemplate(registry, method))).size).toBe(59);
});

describe.each(['grpc', 'grpcs', 'rpc+http'] as const)('over %s', (over) => {
  const folder = mkdtempSync(join(tmpdir(), 'sibyl-ca-'));
  let node: TestNode;
  let gateway: RunningGateway;

  beforeAll(async () => {
    const blocks = new ManualBlocks(1000);
    const { answer } = createDemoChain({ schema, blocks });
    const served = services.map(({ typeName }) => typeName);
    const chain = { answer, streams: reflectionStreams(schema, served) };
    node = await startTestNode({ over, blocks, chain });
    const ca = join(folder, 'ca.pem');
    writeFileSync(ca, LOCALHOST_TLS.cert);
    gateway = await startGateway([node], { GATEWAY_UPSTREAM_CA: ca });
  });

  afterAll(async () => {
    await gateway?.close();
    await node?.close();
    rmSync(folder, { recursive: true });
  });

  it.each(cases)('binds and prints $name', async ({ method, fullness, height }) => {
    const pick = seededPick(height);
    const reply = new SampleMessages(registry, pick).sample(method.output, fullness);
    const { path, message } = sampleRequest(method, readTemplate(registry, method), pick);
    const asked: Query[] = [];
    node.interrupt((query) => {
      if (query.method !== pickName(method)) return undefined;
      asked.push(query);
      return { message: schema.encode(method.output.typeName, reply.wire), height };
    });
    const answer = await gateway.get(path, { 'x-cosmos-block-height': String(height) });
    expect(answer.text).toBe(reply.printed);
    expect(answer.status).toBe(200);
    expect(answer.headers.get('x-block-height')).toBe(String(height));
    expect(asked).toMatchObject([{ height }]);
    const bound = schema.decode(method.input.typeName, asked[0]?.request ?? Buffer.alloc(0));
    expect(bound).toEqual(message);
  });
});
