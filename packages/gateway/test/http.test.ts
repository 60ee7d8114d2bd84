import { once } from 'node:events';
import { request } from 'node:http';
import { connect } from 'node:net';
import { buffer, text } from 'node:stream/consumers';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestNode, type TestNode } from '../../demo-chain/test/support/test-node.js';
import { ask, type RunningGateway, startGateway } from './support/running-gateway.js';

const PARAMS = '/ixo/entity/params';
const CLAIMS = '/ixo/claims/claims';
let node: TestNode;
let gateway: RunningGateway;

beforeAll(async () => {
  node = await startTestNode();
  node.blocks.earliest = 50;
  gateway = await startGateway([node], { GATEWAY_CORS_ORIGIN: 'https://app.example' });
});

afterAll(async () => {
  await gateway.close();
  await node.close();
});

describe('headers', () => {
  it.each(['Host: a\r\nHost: b', 'Host: a\r\nhost: a'])(
    'refuses a request with %j',
    async (hosts) => {
      const { port } = new URL(gateway.url);
      const socket = connect(Number(port), '127.0.0.1');
      await once(socket, 'connect');
      socket.write(`GET ${PARAMS} HTTP/1.1\r\n${hosts}\r\nConnection: close\r\n\r\n`);
      const answer = await text(socket);
      expect(answer).toMatch(/^HTTP\/1\.1 400 /);
      expect(answer).toContain('the request has several Host headers');
    },
  );

  it.each([
    PARAMS,
    '/',
    '/health',
    '/routes',
    '/metrics',
    '/docs',
    '/docs/openapi.json',
    '/ixo/nope',
  ])('isolates %s from pages of other origins', async (path) => {
    const { headers } = await gateway.get(path);
    expect(headers.get('x-content-type-options')).toBe('nosniff');
    expect(headers.get('cross-origin-resource-policy')).toBe('same-origin');
  });

  it('echoes a request id of printable ASCII', async () => {
    const id = 'Root=1-67891233-abcdef; a+b/c==';
    const { headers } = await ask(gateway.url + PARAMS, { headers: { 'x-request-id': id } });
    expect(headers.get('x-request-id')).toBe(id);
  });
});

describe('paths', () => {
  it('names the nearest routes of one that does not exist', async () => {
    const { status, json } = await gateway.get('/ixo/entity/parms/what');
    expect(status).toBe(404);
    expect(json).toMatchObject({ code: 5, details: [] });
    expect(json.message).toContain('/ixo/entity/{id}');
  });

  it('answers 405 with Allow for a wrong method', async () => {
    const { status, headers, json } = await ask(gateway.url + PARAMS, { method: 'DELETE' });
    expect(status).toBe(405);
    expect(headers.get('allow')).toBe('GET, HEAD, OPTIONS');
    expect(json.code).toBe(12);
  });

  it('answers HEAD as GET, without the body', async () => {
    const full = await gateway.get(PARAMS);
    const head = await ask(gateway.url + PARAMS, { method: 'HEAD' });
    expect(head).toMatchObject({ status: 200, text: '' });
    expect(head.headers.get('content-length')).toBe(full.headers.get('content-length'));
    expect(head.headers.get('etag')).toBe(full.headers.get('etag'));
  });

  it('answers OPTIONS with the allowed methods', async () => {
    const { status, headers } = await ask(gateway.url + PARAMS, { method: 'OPTIONS' });
    expect(status).toBe(204);
    expect(headers.get('allow')).toBe('GET, HEAD, OPTIONS');
    expect((await ask(`${gateway.url}/nope`, { method: 'OPTIONS' })).status).toBe(404);
  });

  it('answers OPTIONS * with the methods of all routes', async () => {
    const options = { method: 'OPTIONS', path: '*' };
    const [response] = await once(request(gateway.url, options).end(), 'response');
    response.resume();
    expect(response).toMatchObject({
      statusCode: 204,
      headers: { allow: 'GET, HEAD, POST, OPTIONS' },
    });
  });

  it('answers 501 with the gRPC method that a node does not serve', async () => {
    const { status, json } = await gateway.get('/ixo/bonds/params');
    expect(status).toBe(501);
    expect(json.message).toContain('/ixo.bonds.v1beta1.Query/Params');
    expect(node.countCalls('ixo.bonds.v1beta1.Query/Params')).toBe(0);
  });

  it('announces how long an idle connection is kept', async () => {
    expect((await gateway.get(PARAMS)).headers.get('keep-alive')).toBe('timeout=75');
    expect((await gateway.get('/ixo/nope')).headers.get('keep-alive')).toBe('timeout=75');
  });

  it('does not mind a slash at the end', async () => {
    expect((await gateway.get(`${PARAMS}/`)).text).toBe((await gateway.get(PARAMS)).text);
  });

  it('answers legacy paths and names their successors', async () => {
    const { status, headers, text } = await gateway.get('/ixo/claim');
    expect(status).toBe(200);
    expect(headers.get('deprecation')).toBeTruthy();
    expect(headers.get('link')).toBe('</ixo/claims/claims>; rel="successor-version"');
    expect(text).toBe((await gateway.get(CLAIMS)).text);
    expect((await gateway.get(CLAIMS)).headers.has('deprecation')).toBe(false);
  });

  it('names the successor of a legacy path in errors and watches too', async () => {
    const unknown = await gateway.get('/ixo/claim/unknown');
    expect(unknown.status).toBe(404);
    expect(unknown.headers.get('link')).toContain('</ixo/claims/claim/unknown>');
    const watch = await fetch(`${gateway.url}/ixo/claim?watch`);
    await watch.body?.cancel();
    expect(watch.headers.get('deprecation')).toBeTruthy();
    expect(watch.headers.get('link')).toContain('</ixo/claims/claims>');
  });

  it('answers 400 with the name of an invalid field', async () => {
    const { status, json } = await gateway.get(`${CLAIMS}?pagination.limit=many`);
    expect(status).toBe(400);
    expect(json.message).toContain('pagination.limit');
  });

  it('forwards the node’s 404', async () => {
    const { status, json, headers } = await gateway.get('/ixo/entity/did:ixo:unknown');
    expect({ status, json }).toMatchObject({ status: 404, json: { code: 5, details: [] } });
    expect(headers.get('cache-control')).toBe('no-store');
  });
});

describe('heights', () => {
  it('sends the height of every reply in both headers', async () => {
    const { headers } = await gateway.get(PARAMS);
    expect(headers.get('grpc-metadata-x-cosmos-block-height')).toBe('100');
    expect(headers.get('x-block-height')).toBe('100');
  });

  it.each([
    ['?height=', `${PARAMS}?height=60`, {}],
    ['x-cosmos-block-height', PARAMS, { 'x-cosmos-block-height': '60' }],
    ['Grpc-Metadata', PARAMS, { 'Grpc-Metadata-X-Cosmos-Block-Height': '60' }],
    ['two that agree', `${PARAMS}?height=60`, { 'x-cosmos-block-height': '60' }],
  ])('queries a height by %s', async (_, path, headers) => {
    const answer = await gateway.get(path, headers);
    expect(answer.headers.get('x-block-height')).toBe('60');
  });

  it('answers 400 to conflicting and invalid heights', async () => {
    const both = await gateway.get(`${PARAMS}?height=60`, { 'x-cosmos-block-height': '61' });
    expect(both).toMatchObject({ status: 400, json: { code: 3 } });
    expect(both.json.message).toContain('conflicting heights');
    expect((await gateway.get(`${PARAMS}?height=soon`)).status).toBe(400);
    expect((await gateway.get(`${PARAMS}?height=-1`)).status).toBe(400);
  });

  it('treats height 0 as the latest', async () => {
    expect((await gateway.get(`${PARAMS}?height=0`)).headers.get('x-block-height')).toBe('100');
  });

  it('refuses the future with 400, naming the latest', async () => {
    const { status, json } = await gateway.get(`${PARAMS}?height=5000`);
    expect({ status, code: json.code }).toEqual({ status: 400, code: 3 });
    expect(json.message).toBe('height 5000 is in the future: the latest is 100');
  });

  it('answers a pruned height with 404 and the range there is', async () => {
    const { status, json } = await gateway.get(`${PARAMS}?height=49`);
    expect({ status, code: json.code }).toEqual({ status: 404, code: 5 });
    expect(json.message).toBe('height 49 is no longer kept: available are 50 to 100');
  });
});

describe('conditional and compressed', () => {
  it('answers 304 to who has it already', async () => {
    const first = await gateway.get(PARAMS);
    const etag = first.headers.get('etag') ?? '';
    const second = await gateway.get(PARAMS, { 'if-none-match': `"other", ${etag}` });
    expect(second).toMatchObject({ status: 304, text: '' });
    expect(second.headers.get('etag')).toBe(etag);
    expect(second.headers.get('x-block-height')).toBe('100');
    expect((await gateway.get(PARAMS, { 'if-none-match': '"other"' })).status).toBe(200);
  });

  it.each([
    ['gzip', 'gzip', gunzipSync],
    ['br', 'gzip, deflate, br', brotliDecompressSync],
    [undefined, 'identity', (body: Buffer) => body],
    [undefined, 'gzip;q=0, br;q=0.0', (body: Buffer) => body],
  ])('sends %s to who accepts %s', async (encoding, accepted, decode) => {
    const plain = await gateway.get(CLAIMS, { 'accept-encoding': 'identity' });
    const { headers, body } = await getRaw(CLAIMS, { 'accept-encoding': accepted });
    expect(headers['content-encoding']).toBe(encoding);
    expect(decode(body).toString()).toBe(plain.text);
    expect(headers.vary).toContain('Accept-Encoding');
  });

  it('leaves small replies as they are', async () => {
    const { headers } = await getRaw(PARAMS, { 'accept-encoding': 'gzip' });
    expect(headers['content-encoding']).toBeUndefined();
  });

  it('sends Cache-Control for latest and fixed heights', async () => {
    const latest = await gateway.get(PARAMS);
    expect(latest.headers.get('cache-control')).toBe('public, no-cache');
    const exact = await gateway.get(`${PARAMS}?height=60`);
    expect(exact.headers.get('cache-control')).toBe('public, max-age=31536000, immutable');
    const status = '/cosmos/base/node/v1beta1/status?height=60';
    expect((await gateway.get(status)).headers.get('cache-control')).toBe('public, no-cache');
  });
});

describe('metadata', () => {
  it('answers 504 after the Grpc-Timeout of the client', async () => {
    node.interrupt(() => new Promise(() => {}));
    const { status, json } = await gateway.get('/ixo/entity/slow', { 'grpc-timeout': '50m' });
    node.interrupt();
    expect({ status, code: json.code }).toEqual({ status: 504, code: 4 });
    const bad = await gateway.get(PARAMS, { 'grpc-timeout': 'soon' });
    expect(bad.status).toBe(400);
  });

  it('returns X-Request-Id, and creates one for failures', async () => {
    const given = await gateway.get(PARAMS, { 'x-request-id': 'mine-1' });
    expect(given.headers.get('x-request-id')).toBe('mine-1');
    const made = await gateway.get('/nope', { 'x-request-id': 'x'.repeat(257) });
    expect(made.headers.get('x-request-id')).toMatch(/^[0-9a-f-]{36}$/);
  });
});

describe('CORS', () => {
  it('sends CORS headers to the configured origin, with the height exposed', async () => {
    const { headers } = await gateway.get(PARAMS, { origin: 'https://app.example' });
    expect(headers.get('access-control-allow-origin')).toBe('https://app.example');
    expect(headers.get('access-control-expose-headers')).toContain('X-Block-Height');
    const preflight = await ask(gateway.url + PARAMS, {
      method: 'OPTIONS',
      headers: { origin: 'https://app.example', 'access-control-request-method': 'GET' },
    });
    expect(preflight.status).toBe(204);
    const allowed = preflight.headers.get('access-control-allow-headers');
    expect(allowed).toContain('X-Cosmos-Block-Height');
  });

  it('sends no CORS headers to other origins', async () => {
    const { headers } = await gateway.get(PARAMS, { origin: 'https://evil.example' });
    expect(headers.has('access-control-allow-origin')).toBe(false);
    expect(headers.get('vary')).toContain('Origin');
  });

  it('is off unless configured', async () => {
    const closed = await startGateway([node]);
    const { headers } = await closed.get(PARAMS, { origin: 'https://app.example' });
    await closed.close();
    expect([...headers.keys()].filter((name) => name.startsWith('access-control'))).toEqual([]);
  });
});

it('serves the chain under the prefix of the deployment, and under its own', async () => {
  const other = await startGateway([node], { GATEWAY_PREFIX: 'impact', GATEWAY_LEGACY: 'false' });
  const { text } = await gateway.get(PARAMS);
  expect(await other.get('/impact/entity/params')).toMatchObject({ status: 200, text });
  expect(await other.get(PARAMS)).toMatchObject({ status: 200, text });
  expect((await gateway.get('/impact/entity/params')).status).toBe(404);
  expect((await other.get('/ixo/claim')).status).toBe(404);
  const [schema] = (await other.get('/routes')).json.schemas;
  const paths = schema.routes.map(({ path }: { path: string }) => path);
  expect(paths).toContain('/impact/entity/params');
  await other.close();
});

/** The bytes as they were sent: fetch would decompress them. */
function getRaw(path: string, headers: Record<string, string>) {
  return new Promise<{ headers: NodeJS.Dict<string | string[]>; body: Buffer }>(
    (resolve, reject) => {
      request(gateway.url + path, { headers }, (response) => {
        buffer(response).then((body) => resolve({ headers: response.headers, body }), reject);
      })
        .once('error', reject)
        .end();
    },
  );
}
