import { readFileSync } from 'node:fs';
import { type IncomingHttpHeaders, request } from 'node:http';
import { text as readText } from 'node:stream/consumers';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { loadChainSchema } from '../../demo-chain/src/chain-schema.js';
import { startTestNode, type TestNode } from '../../demo-chain/test/support/test-node.js';
import { GoQuery } from '../src/binding/go-url.js';
import { loadSchema } from '../src/schema/schema.js';
import { descriptorSet } from './schema/descriptor-set.js';
import { REQUEST_FACTS } from './schema/request-facts.js';
import { ask, type RunningGateway, startGateway } from './support/running-gateway.js';
import { smallDescriptors } from './support/small-descriptors.js';

const PARAMS = '/ixo/entity/params';
const CLAIMS = '/ixo/claims/claims';
const CLAIM_LIST = 'ixo.claims.v1beta1.Query/ClaimList';
const ENTITY = 'ixo.entity.v1beta1.Query/Entity';
const NOT_IMPLEMENTED = { code: 12, message: 'Not Implemented', details: [] };
const schema = loadChainSchema();
let node: TestNode;
let gateway: RunningGateway;

beforeAll(async () => {
  node = await startTestNode();
  node.blocks.earliest = 50;
  gateway = await startGateway([node], { GATEWAY_COMPAT: 'node' });
});

afterEach(() => node.interrupt());

afterAll(async () => {
  await gateway.close();
  await node.close();
});

interface Sent {
  readonly method?: string;
  readonly headers?: Record<string, string | string[]>;
  readonly body?: string;
}

/** Sends a path exactly as it is; `fetch` would put it into canonical form. */
async function send(path: string, { method = 'GET', headers = {}, body = '' }: Sent = {}) {
  const { hostname, port } = new URL(gateway.url);
  const { promise, resolve, reject } = Promise.withResolvers<{
    readonly status: number;
    readonly headers: IncomingHttpHeaders;
    readonly text: string;
  }>();
  const sent = request({ hostname, port, path, method, headers }, async (response) => {
    const text = await readText(response);
    resolve({ status: response.statusCode ?? 0, headers: response.headers, text });
  });
  sent.once('error', reject).end(body);
  const { text, ...rest } = await promise;
  return { ...rest, text, code: text.startsWith('{') ? JSON.parse(text).code : undefined };
}

/** The request that reaches the node for a path. */
async function findBound(method: string, type: string, path: string, sent: Sent = {}) {
  const seen: Uint8Array[] = [];
  node.interrupt((query) => {
    if (query.method === method) seen.push(query.request);
    return undefined;
  });
  const { status } = await send(path, sent);
  return { status, bytes: seen[0], message: seen[0] && decode(type, seen[0]) };
}

/** Undefined for texts that are not UTF-8. */
function decode(type: string, bytes: Uint8Array) {
  try {
    return schema.decode(type, bytes);
  } catch {
    return undefined;
  }
}

const findEntity = (path: string) =>
  findBound(ENTITY, 'ixo.entity.v1beta1.QueryEntityRequest', path);
const findClaims = (query: string, sent?: Sent) =>
  findBound(CLAIM_LIST, 'ixo.claims.v1beta1.QueryClaimListRequest', CLAIMS + query, sent);

describe('paths', () => {
  it.each([
    ['GET', '/ixo/nothing/here/at/all'],
    ['GET', `${PARAMS}/`],
    ['GET', '/ixo/entity/:verb'],
    ['GET', '/ixo/claim'],
    ['DELETE', PARAMS],
    ['HEAD', PARAMS],
    ['OPTIONS', PARAMS],
    ['POST', PARAMS],
  ])('answers %s %s with 501, as a node does', async (method, path) => {
    const { status, text } = await send(path, { method });
    expect(status).toBe(501);
    if (method !== 'HEAD') expect(JSON.parse(text)).toEqual(NOT_IMPLEMENTED);
  });

  it('answers OPTIONS * with 200 and no body, as a node does', async () => {
    expect(await send('*', { method: 'OPTIONS' })).toMatchObject({ status: 200, text: '' });
  });

  it.each([
    [`/${PARAMS}`, PARAMS],
    ['/ixo/../ixo/entity/params', PARAMS],
    ['/ixo/./entity//params?a=b%20c', `${PARAMS}?a=b%20c`],
    ['/ixo/entity/a%2F%2Fb', '/ixo/entity/a/b'],
    ['/ixo/entity/%2e%2e/x%20y!', '/ixo/x%20y%21'],
    ['/ixo//entity/', '/ixo/entity/'],
  ])('redirects %s to %s', async (path, location) => {
    const { status, headers, text } = await send(path);
    expect({ status, location: headers.location, text }).toEqual({
      status: 301,
      location,
      text: '',
    });
  });

  it('binds an empty segment, where a trailing slash ends the path', async () => {
    expect(await findEntity('/ixo/entity/')).toMatchObject({ status: 400, message: {} });
  });

  it('ignores a colon at the end, which is an empty verb', async () => {
    expect((await send(`${PARAMS}:`)).status).toBe(200);
    expect(await findEntity('/ixo/entity/did:ixo:a:')).toMatchObject({
      message: { id: 'did:ixo:a' },
    });
    expect(await findEntity('/ixo/entity/%3A%3A')).toMatchObject({ message: { id: ':' } });
    expect(await findEntity('/ixo/entity/params:x')).toMatchObject({ message: { id: 'params:x' } });
  });

  it('binds bytes that are not UTF-8 as they are', async () => {
    const { bytes } = await findEntity('/ixo/entity/a%FF%C3%A9');
    expect(Buffer.from(bytes ?? []).toString('hex')).toBe('0a0461ffc3a9');
  });

  it('answers 400 for an invalid escape', async () => {
    expect((await send('/ixo/entity/%zz')).status).toBe(400);
  });
});

describe('queries', () => {
  it.each([
    ['?pagination.limit=%zz'],
    ['?pagination.limit=1;pagination.offset=2'],
    ['?pagination.limit.x=1'],
    ['?pagination=1'],
    ['?pagination.key=AQ'],
    ['?pagination.key=A+=='],
    ['?pagination.limit=-1'],
    ['?pagination.reverse=yes'],
  ])('answers 400 for %s', async (query) => {
    expect(await send(CLAIMS + query)).toMatchObject({ status: 400, code: 3 });
  });

  it.each([['?%zz'], ['?a;b'], ['?height=60&watch']])(
    'does not read %s where path or body bind every field',
    async (query) => {
      const { status, headers } = await send(PARAMS + query);
      expect(status).toBe(200);
      expect(headers['grpc-metadata-x-cosmos-block-height']).toBe('100');
    },
  );

  it.each([
    ['?pagination.limit=2&pagination.limit=x', { pagination: { limit: '2' } }],
    ['?pagination.limit[7]=2', { pagination: { limit: '7' } }],
    ['?pagination.nothing=2', { pagination: {} }],
    ['?nothing.at.all=2', {}],
    ['?pagination.key=-_8%3D', { pagination: { key: '+/8=' } }],
    ['?pagination.limit=99999999', { pagination: { limit: '99999999' } }],
  ])('reads %s as a node does', async (query, message) => {
    expect(await findClaims(query)).toMatchObject({ status: 200, message });
  });

  it('reads the parameters of a form on a GET route, before those of the address', async () => {
    const form = (body: string) => ({
      method: 'POST',
      headers: { 'content-type': 'application/x-www-form-urlencoded' },
      body,
    });
    const { status, message } = await findClaims(
      '?pagination.limit=5&pagination.offset=1',
      form('pagination.limit=2'),
    );
    expect({ status, message }).toEqual({
      status: 200,
      message: { pagination: { limit: '2', offset: '1' } },
    });
    for (const [long, what] of [
      ['a&'.repeat(10_001), '10000 values'],
      [`a=${'%80'.repeat(22_000)}`, '65536 bytes'],
    ] as const) {
      const refused = await send(CLAIMS, form(long));
      expect([refused.status, refused.text]).toEqual([400, expect.stringContaining(what)]);
    }
    const bad = await send(CLAIMS, form('a=%zz'));
    expect(bad).toMatchObject({ status: 400, code: 3 });
    const other = await send(CLAIMS, { method: 'POST', headers: { 'content-type': 'text/plain' } });
    expect(other.status).toBe(501);
  });

  // Another offset for each, so that none is cached.
  it.each([
    ['get', '40', 200, { pagination: { offset: '40' } }],
    ['POST', '41', 200, { pagination: { limit: '2', offset: '41' } }],
    ['', '42', 200, { pagination: { limit: '2', offset: '42' } }],
    ['DELETE', '43', 501, undefined],
    ['HEAD', '44', 501, undefined],
  ])(
    'answers a form with X-HTTP-Method-Override: %s as a node does',
    async (override, offset, ...expected) => {
      const { status, message } = await findClaims(`?pagination.offset=${offset}`, {
        method: 'POST',
        headers: {
          'content-type': 'application/x-www-form-urlencoded',
          'x-http-method-override': override,
        },
        body: 'pagination.limit=2',
      });
      expect([status, message]).toEqual(expected);
    },
  );

  it('reads X-HTTP-Method-Override only on forms', async () => {
    const headers = { 'x-http-method-override': 'GET' };
    expect((await send(PARAMS, { method: 'POST', headers })).status).toBe(501);
    expect((await send(PARAMS, { headers: { 'x-http-method-override': 'POST' } })).status).toBe(
      200,
    );
  });

  it('accepts only the declared numbers of an enum', async () => {
    const { routes } = (await gateway.get('/routes')).json.schemas[0];
    const { path } = routes.find(({ rpc }: { rpc: string }) => rpc.endsWith('/DisputeBySubject'));
    const readStatus = async (role: string) =>
      (await send(path.replace('{subjectId}', 'x').replace('{targetRole}', role))).status;
    expect(await readStatus('99')).toBe(400);
    expect(await readStatus('+1')).toBe(404);
  });
});

describe('bodies', () => {
  const declared = loadSchema(descriptorSet(REQUEST_FACTS), { compat: 'node' });
  const bind = (json: string | Buffer) => {
    const match = declared.match('POST', '/test/send');
    if (match.kind !== 'route') throw new Error('There is no such route');
    const input = { params: match.params, query: new GoQuery(''), body: Buffer.from(json) };
    return Buffer.from(match.route.bind(input).message).toString('hex');
  };

  it('may have unknown members', () => {
    expect(bind('{"id":"x","other":{"a":[1]}}')).toEqual(bind('{"id":"x"}'));
  });

  it.each([' \r\n{"id":"x"} {"id":"y"}', '{"id":"x"}}garbage', '{"id":"x","other":"}\\"]"}['])(
    'end with their first value: %s',
    (json) => {
      expect(bind(json)).toBe(bind('{"id":"x"}'));
    },
  );

  it.each(['', ' \n\t', 'null', 'null {"id":"x"}', '{}'])('may be empty: "%s"', (json) => {
    expect(bind(json)).toBe('');
  });

  it.each(['{"id":"x"', '{"id":"x}', '\ufeff{}', '[]', '"x"', 'nul', '}', '{"id":}{}', '\u00a0{}'])(
    'are refused if the first value is not a message: %s',
    (json) => {
      expect(() => bind(json)).toThrow();
    },
  );

  it('have U+FFFD for what is not UTF-8', () => {
    expect(bind(Buffer.from('{"id":"a\xff"}', 'latin1'))).toBe(bind('{"id":"a\ufffd"}'));
  });

  it.each(['AQ', '-_8='])('have bytes in the standard alphabet, padded: not %s', (bytes) => {
    expect(() => bind(`{"data":"${bytes}"}`)).toThrow('not base64');
    expect(bind('{"data":"+/8="}')).toBe('3a02fbff');
  });
});

describe('heights', () => {
  it.each([
    ['60', '60'],
    ['+60', '60'],
    ['0', '100'],
  ])('x-cosmos-block-height: %s is %s', async (given, height) => {
    const { headers } = await send(PARAMS, { headers: { 'x-cosmos-block-height': given } });
    expect(headers['grpc-metadata-x-cosmos-block-height']).toBe(height);
  });

  it.each(['-1', 'abc', '6.5', '60,61', '', '5000', '2'])('answers 500 for %s', async (height) => {
    const answer = await send(PARAMS, { headers: { 'x-cosmos-block-height': height } });
    expect(answer).toMatchObject({ status: 500, code: 2 });
  });

  it('ignores more than one', async () => {
    const headers = { 'x-cosmos-block-height': '60', 'grpc-metadata-x-cosmos-block-height': '61' };
    const twice = { 'x-cosmos-block-height': ['60', '61'] };
    for (const given of [headers, twice]) {
      const answer = await send(PARAMS, { headers: given });
      expect(answer.headers['grpc-metadata-x-cosmos-block-height']).toBe('100');
    }
  });

  it('forwards the node’s error for heights it does not have', async () => {
    const future = await gateway.get(PARAMS, { 'x-cosmos-block-height': '5000' });
    expect(future.json.message).toContain('cannot query with height in the future');
    const pruned = await gateway.get(PARAMS, { 'x-cosmos-block-height': '2' });
    expect(pruned.json.message).toContain('failed to load state at height 2');
  });
});

it.each([
  ['0S', 200],
  ['+100000000000n', 200],
  ['-1S', 504],
  ['5', 400],
])('answers a Grpc-Timeout of %s with %i', async (timeout, status) => {
  // Another query for each, so that none is cached.
  const path = `${CLAIMS}?pagination.offset=${7000 + timeout.length}`;
  const reply = { message: new Uint8Array(), height: 100 };
  node.interrupt(({ method }) => {
    if (method !== CLAIM_LIST) return undefined;
    return status === 200 ? reply : new Promise(() => {});
  });
  expect((await send(path, { headers: { 'grpc-timeout': timeout } })).status).toBe(status);
});

it.each([
  ['', 200],
  ['AQ', 200],
  ['AQ==', 200],
  ['AQI=', 200],
  ['A', 400],
  ['AQ=', 400],
  ['-_8=', 400],
])('answers a Grpc-Metadata-X-Bin of "%s" with %i', async (value, status) => {
  const { status: answered } = await send(PARAMS, { headers: { 'grpc-metadata-x-bin': value } });
  expect(answered).toBe(status);
});

it('sends only the body and the height', async () => {
  const { status, headers } = await gateway.get(CLAIMS, { 'accept-encoding': 'gzip' });
  expect(status).toBe(200);
  expect(headers.get('grpc-metadata-x-cosmos-block-height')).toBe('100');
  expect(headers.get('grpc-metadata-content-type')).toBe('application/grpc');
  for (const name of ['x-block-height', 'etag', 'content-encoding', 'cache-control', 'vary']) {
    expect(headers.has(name), name).toBe(false);
  }
});

it('queries the node even for services it does not serve', async () => {
  const { status } = await gateway.get('/ixo/bonds/params');
  expect(status).toBe(501);
  expect(node.countCalls('ixo.bonds.v1beta1.Query/Params')).toBe(1);
});

it('still answers once for many', async () => {
  await Promise.all(Array.from({ length: 20 }, () => gateway.get('/ixo/token/params')));
  expect(node.countCalls('ixo.token.v1beta1.Query/Params')).toBe(1);
});

/** What the gateway does where a node does something else; one for each row of docs/gateway.md. */
const DIFFERENCES: Readonly<Record<string, () => Promise<void>>> = {
  'A transaction, `POST /cosmos/tx/v1beta1/txs`': async () => {
    const message = smallDescriptors([
      { name: 'cosmos.tx.v1beta1.Service/BroadcastTx', http: 'post', path: '/txs' },
    ]);
    const other = await startTestNode({ over: 'rpc+http' });
    other.interrupt(({ method }) =>
      method.endsWith('/FileDescriptors') ? { message } : undefined,
    );
    const writing = await startGateway([other], { GATEWAY_COMPAT: 'node' });
    const refused = await ask(`${writing.url}/txs`, { method: 'POST', body: '{}' });
    expect(refused).toMatchObject({ status: 403, json: { code: 7 } });
    await writing.close();
    await other.close();
  },
  "The gateway's own paths": async () => {
    expect((await send('/health')).status).toBe(200);
    expect((await send('/routes')).status).toBe(200);
  },
  'A query parameter of an enum whose Go API package the node does not include, such as `proposal_status` of gov v1beta1':
    async () => {
      const declared = loadSchema(descriptorSet(REQUEST_FACTS), { compat: 'node' });
      const match = declared.match('GET', '/test/get');
      if (match.kind !== 'route') throw new Error('There is no such route');
      const bind = (status: string) =>
        match.route.bind({ params: match.params, query: new GoQuery(`status=${status}`) });
      expect(bind('STATUS_OPEN').message).toEqual(bind('1').message);
      expect(() => bind('99')).toThrow('STATUS_OPEN');
    },
  'An invalid escape in a path, such as `%zz`': async () => {
    expect(await send('/ixo/entity/%zz')).toMatchObject({ status: 400, code: 3 });
  },
  'A method that HTTP does not define, such as `FOO`': async () => {
    expect(await send(PARAMS, { method: 'FOO' })).toMatchObject({ status: 400, code: 3 });
  },
  'A URL with characters that are neither ASCII nor escaped': async () => {
    const refused = await send('/ixo/entity/\u00c3\u00a9');
    expect(refused).toMatchObject({ status: 400, code: 3 });
    expect(refused.text).toContain('percent-encoded');
  },
  'A URL of more than 8,192 characters': async () => {
    expect(await send(`/ixo/entity/${'a'.repeat(9000)}`)).toMatchObject({ status: 414, code: 3 });
  },
  '`X-Min-Block-Height`': async () => {
    const { status } = await send(PARAMS, { headers: { 'x-min-block-height': '100000' } });
    expect(status).toBe(400);
  },
  'No node is available, or a limit of the gateway is exceeded': async () => {
    const gone = await startTestNode();
    const other = await startGateway([gone], { GATEWAY_COMPAT: 'node' });
    await gone.close();
    await expect.poll(async () => (await other.get(PARAMS)).status).toBe(503);
    await other.close();
  },
};

describe('docs/gateway.md, the differences with GATEWAY_COMPAT=node', () => {
  const page = readFileSync(new URL('../../../docs/gateway.md', import.meta.url), 'utf8');
  const section = page.split('### Like a node')[1]?.split('\n## ')[0] ?? '';
  const rows = section
    .split('\n')
    .filter((line) => line.startsWith('| ') && !line.startsWith('| Request'))
    .map((line) => line.split(' | ')[0]?.slice(2).trim() ?? '');

  it('has a row for each', () => {
    expect(rows).toEqual(Object.keys(DIFFERENCES));
  });

  it.each(Object.entries(DIFFERENCES))('%s', async (_, check) => {
    await check();
  });
});
