import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestNode, type TestNode } from '../../demo-chain/test/support/test-node.js';
import { ENTITY_PARAMS } from './support/entity-params.js';
import { ask, type RunningGateway, startGateway } from './support/running-gateway.js';

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
  it('GET /docs has no inline script, and all its files exist', async () => {
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

  it('GET /docs/* serves no other files of the folder', async () => {
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

it('GET /routes marks the served routes', async () => {
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

describe('/health', () => {
  it('GET /health names no node', async () => {
    const { status, json, headers, text } = await gateway.get('/health');
    expect(status).toBe(200);
    expect(headers.get('cache-control')).toBe('no-store');
    expect(json).toEqual({
      status: 'ok',
      latestHeight: '100',
      nodes: { total: 1, up: 1, lagging: 0, down: 0 },
      schemas: 1,
      timestamp: expect.any(String),
    });
    expect(text).not.toContain(String(node.port));
  });

  it('names every node on the port for operators', async () => {
    const other = await startGateway([node], { GATEWAY_METRICS_PORT: '0' });
    const { json } = await other.health();
    expect(json).toMatchObject({ status: 'ok', nodes: { total: 1, up: 1 } });
    expect(json.details).toMatchObject({
      nodes: [{ number: 1, url: node.url, kind: 'grpc', state: 'up', height: '100', lag: 0 }],
      schemas: [{ source: 'server and chain reflection', nodes: [node.url] }],
    });
    const metrics = await ask(`${other.gateway.metricsUrl}/metrics`);
    expect(metrics.text).toContain(`sibyl_gateway_node_height{node="${node.url}"} 100`);
    expect((await other.get('/metrics')).status).toBe(404);
    expect((await ask(`${other.gateway.metricsUrl}/ixo/entity/params`)).status).toBe(404);
    const post = await ask(`${other.gateway.metricsUrl}/health`, { method: 'POST' });
    expect({ status: post.status, allow: post.headers.get('allow') }).toEqual({
      status: 405,
      allow: 'GET, HEAD',
    });
    await other.close();
  });

  it('and every other answer keep the addresses of nodes to the log', async () => {
    const gone = await startTestNode();
    const other = await startGateway([gone]);
    await gone.close();
    const refused = async () => await other.get('/ixo/entity/params');
    await expect.poll(async () => (await refused()).status).toBe(503);
    const paths = [
      '/',
      '/health',
      '/routes',
      '/metrics',
      '/docs/openapi.json',
      '/ixo/entity/params',
    ];
    for (let round = 0; round < 3; round += 1) {
      for (const path of paths) {
        expect((await other.get(path)).text, path).not.toContain(String(gone.port));
      }
    }
    await expect
      .poll(() => other.log.map(({ msg }) => msg))
      .toContain(`node 1 (${gone.url}) is down`);
    await other.close();
  });
});

it('GET /metrics counts by method, status and cache outcome', async () => {
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
  const bucket = (le: string) =>
    value(`sibyl_gateway_request_seconds_bucket{le="${le}",method="/${ENTITY_PARAMS}"}`);
  const bounds = ['0.001', '0.0025', '0.005', '0.01', '0.025', '0.05', '0.1', '0.25', '0.5', '1'];
  const counts = await Promise.all([...bounds, '2.5', '5', '10', '+Inf'].map(bucket));
  expect(counts).toEqual(counts.toSorted());
  expect(counts.slice(-2)).toEqual([2, 2]);
  const sum = await value(`sibyl_gateway_request_seconds_sum{method="/${ENTITY_PARAMS}"}`);
  expect(sum > 0 && sum < 20).toBe(true);
  expect(await value('sibyl_gateway_cache_total{outcome="hit"}')).toBe(1);
  expect(await value('sibyl_gateway_cache_total{outcome="miss"}')).toBe(1);
  expect(await value('sibyl_gateway_node_height{node="1"}')).toBe(100);
  expect(await value('sibyl_gateway_latest_height')).toBe(100);
});

it.each([
  ['/', 'GET, HEAD, OPTIONS'],
  ['/health', 'GET, HEAD, OPTIONS'],
  ['/metrics', 'GET, HEAD, OPTIONS'],
  ['/routes', 'GET, HEAD, OPTIONS'],
  ['/docs', 'GET, HEAD, OPTIONS'],
  ['/docs/openapi.json', 'GET, HEAD, OPTIONS'],
  ['/docs/swagger-ui.css', 'GET, HEAD, OPTIONS'],
  ['/batch', 'POST, OPTIONS'],
])('answers 405 with Allow at %s, before any credentials', async (path, allow) => {
  const gated = await startGateway([node], { GATEWAY_AUTH: 'ucan' });
  try {
    for (const { url } of [gateway, gated]) {
      const { status, headers, json } = await ask(url + path, { method: 'DELETE' });
      expect({ status, allow: headers.get('allow') }).toEqual({ status: 405, allow });
      expect(json).toMatchObject({ code: 12, message: expect.any(String), details: [] });
      const options = await ask(url + path, { method: 'OPTIONS' });
      expect(options.status).toBe(204);
      expect(options.headers.get('allow')).toBe(allow);
    }
  } finally {
    await gated.close();
  }
});

it('answers HEAD on its own paths', async () => {
  expect((await ask(`${gateway.url}/health`, { method: 'HEAD' })).text).toBe('');
  expect((await gateway.get('/')).json).toMatchObject({ docs: '/docs', health: '/health' });
});
