import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ENTITY_PARAMS } from './support/entity-params.js';
import { ask, type RunningGateway, startGateway } from './support/running-gateway.js';
import { startTestNode, type TestNode } from './support/test-node.js';

let node: TestNode;
let gateway: RunningGateway;

beforeAll(async () => {
  node = await startTestNode();
  gateway = await startGateway([node]);
});

afterAll(async () => {
  await gateway.close();
  await node.close();
});

describe('/docs', () => {
  it('is a page without inline script, and has all it asks for', async () => {
    const { status, headers, text } = await gateway.get('/docs');
    expect(status).toBe(200);
    expect(headers.get('content-security-policy')).toContain("script-src 'self';");
    expect(text).not.toMatch(/<script>|<script [^>]*>[^<]/);
    const files = [...text.matchAll(/(?:src|href)="([^"]+)"/g)].map(([, path]) => path);
    expect(files).toHaveLength(4);
    for (const file of files) {
      const answer = await gateway.get(`/${file}`);
      expect(answer.status, file).toBe(200);
      expect(answer.text.length, file).toBeGreaterThan(50);
    }
    expect((await gateway.get('/docs/')).text).toContain('src="init.js"');
  });

  it('serves nothing else of that folder', async () => {
    for (const path of ['/docs/package.json', '/docs/../package.json', '/docs/%2e%2e/x']) {
      expect((await gateway.get(path)).status).toBe(404);
    }
  });

  it('describes every route of the chain', async () => {
    const { json } = await gateway.get('/docs/openapi.json');
    expect(json.openapi).toMatch(/^3\.1/);
    expect(json.paths).toHaveProperty(['/ixo/entity/params', 'get']);
    const [schema] = (await gateway.get('/routes')).json.schemas;
    const listed = new Set(schema.routes.map(({ path }: { path: string }) => path));
    expect(listed.size).toBeGreaterThan(59);
    expect(listed).toContain('/ixo/entity/{id}');
  });
});

it('tells at /routes which are served', async () => {
  const [schema] = (await gateway.get('/routes')).json.schemas;
  const find = (wanted: string) =>
    schema.routes.find(({ path }: { path: string }) => path === wanted);
  expect(find('/ixo/entity/params')).toMatchObject({
    method: 'GET',
    rpc: `/${ENTITY_PARAMS}`,
    isServed: true,
  });
  expect(find('/ixo/bonds/params').isServed).toBe(false);
});

it('tells at /health how the nodes are', async () => {
  const { status, json, headers } = await gateway.get('/health');
  expect(status).toBe(200);
  expect(headers.get('cache-control')).toBe('no-store');
  expect(json).toMatchObject({
    status: 'ok',
    latestHeight: '100',
    nodes: [{ url: node.url, kind: 'grpc', state: 'up', height: '100', lag: 0, version: 'v1.0.0' }],
    schemas: [{ source: 'chain reflection' }],
  });
});

it('counts at /metrics by method, status and what the cache had', async () => {
  await gateway.get('/ixo/entity/params');
  await gateway.get('/ixo/entity/params');
  await gateway.get('/ixo/nope');
  const value = async (series: string) => {
    const { text } = await gateway.get('/metrics');
    const line = text.split('\n').find((candidate) => candidate.startsWith(`${series} `));
    return Number(line?.slice(series.length));
  };
  const requests = `sibyl_gateway_requests_total{method="/${ENTITY_PARAMS}",status="200"}`;
  await expect.poll(() => value(requests)).toBe(2);
  const unmatched = 'sibyl_gateway_requests_total{method="unmatched",status="404"}';
  expect(await value(unmatched)).toBeGreaterThanOrEqual(1);
  expect(await value(`sibyl_gateway_request_seconds_count{method="/${ENTITY_PARAMS}"}`)).toBe(2);
  expect(await value('sibyl_gateway_cache_total{outcome="hit"}')).toBe(1);
  expect(await value('sibyl_gateway_cache_total{outcome="miss"}')).toBe(1);
  expect(await value(`sibyl_gateway_node_height{node="${node.url}"}`)).toBe(100);
  expect(await value('sibyl_gateway_latest_height')).toBe(100);
});

it('answers on its own paths to GET and HEAD alone', async () => {
  const { status, headers } = await ask(`${gateway.url}/health`, { method: 'POST' });
  expect({ status, allow: headers.get('allow') }).toEqual({ status: 405, allow: 'GET, HEAD' });
  expect((await ask(`${gateway.url}/health`, { method: 'HEAD' })).text).toBe('');
  expect((await gateway.get('/')).json).toMatchObject({ docs: '/docs', health: '/health' });
});
