import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  startTestNode,
  type TestNode,
} from '../../../packages/demo-chain/test/support/test-node.js';
import { createGateway, type Gateway, loadConfig } from '../../../packages/gateway/src/index.js';
import { useTool } from '../../../packages/host/test/support/ask.js';
import {
  type ControlledModel,
  startControlledModel,
} from '../../../packages/host/test/support/controlled-model.js';
import { startHost, type TestHost } from '../../../packages/host/test/support/host.js';
import { TestUser } from '../../../packages/host/test/support/user.js';
import { chain } from '../src/index.js';

const KEY = 'the key of the oracle';
const KEY_SHA256 = await crypto.subtle
  .digest('SHA-256', new TextEncoder().encode(KEY))
  .then((digest) => Buffer.from(digest).toString('hex'));

let node: TestNode;
let gateway: Gateway;
let gatewayUrl: string;
let model: ControlledModel;
let host: TestHost;
let alice: TestUser;

const always = { chain: { visibility: 'always' as const } };

beforeAll(async () => {
  node = await startTestNode();
  node.blocks.latest = 2000;
  gateway = createGateway({
    config: loadConfig({
      GATEWAY_UPSTREAMS: node.url,
      GATEWAY_PORT: '0',
      GATEWAY_AUTH: 'api-key',
      GATEWAY_API_KEYS: KEY_SHA256,
      LOG_LEVEL: 'silent',
    }),
  });
  model = await startControlledModel();
  gatewayUrl = await gateway.listen();
  host = await startWith(gatewayUrl);
  alice = new TestUser(host);
});

afterAll(async () => {
  await host?.close();
  model?.close();
  await gateway?.close();
  await node?.close();
});

function startWith(url: string): Promise<TestHost> {
  return startHost({
    bundled: [],
    plugins: [chain],
    manifestOverrides: always,
    env: {
      ...model.env,
      GATEWAY_URL: url,
      GATEWAY_KEY: KEY,
      OUTGOING_ALLOW: '127.0.0.1',
    },
  });
}

const use = (user: TestUser, name: string, input: object) => useTool({ user, model }, name, input);

it('the plugin shares the address of the gateway', async () => {
  const card = await fetch(`${host.url}/.well-known/oracle.json`);
  expect(await card.json()).toMatchObject({ gateway: gatewayUrl });
});

describe('get_entity', () => {
  it('finds an entity with its document, and says of which block it speaks', async () => {
    const listed = await use(alice, 'query_chain', {
      path: '/ixo/entity',
      query: { 'pagination.limit': '1' },
    });
    const [{ id, type }] = listed.output.answer.entities;
    const { status, output } = await use(alice, 'get_entity', { id });
    expect(status).toBe('done');
    expect(output).toMatchObject({
      height: node.blocks.latest,
      answer: { entity: { id, type }, iidDocument: { id } },
    });
  });

  it('says that there is none', async () => {
    const { status, output } = await use(alice, 'get_entity', { id: 'did:ixo:entity:none' });
    expect(status).toBe('error');
    expect(output.error).toContain('404');
  });
});

describe('list_claims', () => {
  it('goes through all claims of a collection, page by page and at one block', async () => {
    const seen: { claimId: string; collection: string }[] = [];
    const height = node.blocks.latest;
    let offset: number | null = 0;
    while (offset !== null) {
      const { output } = await use(alice, 'list_claims', {
        collection: '1',
        offset,
        limit: 50,
        height,
      });
      expect(output.height).toBe(height);
      seen.push(...output.claims);
      offset = output.nextOffset;
    }
    const { output } = await use(alice, 'query_chain', {
      path: '/ixo/claims/collection/1',
      height,
    });
    expect(seen).toHaveLength(Number(output.answer.collection.count));
    expect(new Set(seen.map(({ claimId }) => claimId)).size).toBe(seen.length);
    expect(new Set(seen.map(({ collection }) => collection))).toEqual(new Set(['1']));
  });

  it('narrows to a verdict', async () => {
    const { output } = await use(alice, 'list_claims', { collection: '2', status: 'PENDING' });
    expect(output.claims).toMatchObject([{ collection: '2', status: 'PENDING', evaluated: null }]);
    expect(output.nextOffset).toBeNull();
  });
});

describe('query_chain', () => {
  it('looks at an earlier block', async () => {
    const path = '/ixo/claims/collection/1';
    const before = await use(alice, 'query_chain', { path, height: 600 });
    const after = await use(alice, 'query_chain', { path });
    expect(before.output.height).toBe(600);
    expect(Number(after.output.answer.collection.count)).toBeGreaterThan(
      Number(before.output.answer.collection.count),
    );
  });

  it('passes on what the gateway says of a path that is not there', async () => {
    const { status, output } = await use(alice, 'query_chain', { path: '/ixo/entities' });
    expect(status).toBe('error');
    expect(output.error).toContain('/ixo/entity');
  });

  it('refuses answers that are too large for a model, with advice', async () => {
    const { status, output } = await use(alice, 'query_chain', {
      path: '/ixo/claims/claims',
      query: { 'pagination.limit': '1000' },
    });
    expect(status).toBe('error');
    expect(output.error).toContain('pagination.limit');
  });

  it.each(['http://127.0.0.1/', '//127.0.0.1/', '/ixo/../metrics'])('refuses %s', async (path) => {
    const { status, output } = await use(alice, 'query_chain', { path });
    expect(status).toBe('error');
    expect(output.error).toContain('path');
  });
});

/** Uses a tool of a host behind another gateway. */
async function useBehind(env: Record<string, string>, name: string, input: object) {
  const config = { GATEWAY_UPSTREAMS: node.url, GATEWAY_PORT: '0', LOG_LEVEL: 'silent' };
  const behind = createGateway({ config: loadConfig({ ...config, ...env }) });
  const other = await startWith(await behind.listen());
  try {
    return await use(new TestUser(other), name, input);
  } finally {
    await other.close();
    await behind.close();
  }
}

it('names the block of an answer of a gateway that behaves like a node too', async () => {
  const query = { path: '/ixo/token/params' };
  const { output } = await useBehind({ GATEWAY_COMPAT: 'node' }, 'query_chain', query);
  expect(output.height).toBe(node.blocks.latest);
});

it('lists claims from a gateway that allows small pages alone', async () => {
  const filter = { limit: 20, height: node.blocks.latest };
  const expected = await use(alice, 'list_claims', filter);
  const { output } = await useBehind({ GATEWAY_PAGE_LIMIT: '7' }, 'list_claims', filter);
  expect(output).toEqual(expected.output);
  expect(output.claims).toHaveLength(20);
});

it('gives the key to no other address', async () => {
  const asked: string[] = [];
  const elsewhere = createServer((request, response) => {
    asked.push(request.url ?? '');
    response.writeHead(302, { location: `${url}/stolen` }).end();
  }).listen(0, '127.0.0.1');
  await new Promise((resolve) => elsewhere.once('listening', resolve));
  const url = `http://127.0.0.1:${(elsewhere.address() as AddressInfo).port}`;
  const other = await startWith(url);
  try {
    const { status } = await use(new TestUser(other), 'query_chain', { path: '/ixo/entity' });
    expect(status).toBe('error');
    expect(asked).toEqual(['/ixo/entity']);
  } finally {
    await other.close();
    elsewhere.closeAllConnections();
    elsewhere.close();
  }
});

it('stays out of a host that has no gateway, and says how to get it in', async () => {
  const other = await startHost({ bundled: [], plugins: [chain], env: model.env });
  try {
    expect(other.app.plugins.status()).toMatchObject([{ name: 'chain' }]);
    expect(JSON.stringify(other.app.plugins.status())).toContain('GATEWAY_URL');
  } finally {
    await other.close();
  }
});
