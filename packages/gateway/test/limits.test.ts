import { createHash } from 'node:crypto';
import { afterEach, describe, expect, it } from 'vitest';
import { startTestNode, type TestNode } from '../../demo-chain/test/support/test-node.js';
import { ask, type RunningGateway, startGateway } from './support/running-gateway.js';

const PARAMS = '/ixo/entity/params';
const CLAIMS = '/ixo/claims/claims';
const cleanups: (() => unknown)[] = [];
let node: TestNode;

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

async function start(env: Record<string, string>): Promise<RunningGateway> {
  node = await startTestNode();
  cleanups.push(() => node.close());
  const gateway = await startGateway([node], env);
  cleanups.push(() => gateway.close());
  return gateway;
}

const sha256 = (key: string) => createHash('sha256').update(key).digest('hex');

describe('rate limits by address', () => {
  const statusFrom = async (gateway: RunningGateway, address: string) =>
    (await gateway.get(PARAMS, { 'x-forwarded-for': address })).status;

  it('count a whole IPv6 /64 as one caller', async () => {
    const gateway = await start({
      GATEWAY_TRUST_PROXY: '1',
      GATEWAY_RATE_LIMIT_PER_MINUTE: '2',
    });
    expect(await statusFrom(gateway, '2001:db8:1:2::1')).toBe(200);
    expect(await statusFrom(gateway, '2001:db8:1:2:aaaa::1')).toBe(200);
    expect(await statusFrom(gateway, '2001:db8:1:2:bbbb::1')).toBe(429);
    expect(await statusFrom(gateway, '[2001:db8:1:2::7]:4711')).toBe(429);
    expect(await statusFrom(gateway, '2001:db8:1:3::1')).toBe(200);
  });

  it('count IPv4 with and without a port, and as IPv6, as one caller', async () => {
    const gateway = await start({
      GATEWAY_TRUST_PROXY: '1',
      GATEWAY_RATE_LIMIT_PER_MINUTE: '2',
    });
    expect(await statusFrom(gateway, '198.51.100.7')).toBe(200);
    expect(await statusFrom(gateway, '198.51.100.7:4711')).toBe(200);
    expect(await statusFrom(gateway, '::ffff:198.51.100.7')).toBe(429);
  });

  it('do not count a text that is not an address as a caller', async () => {
    const gateway = await start({
      GATEWAY_TRUST_PROXY: '1',
      GATEWAY_RATE_LIMIT_PER_MINUTE: '2',
    });
    const statuses = [];
    for (const text of ['a', 'b', 'c', '1.2.3.4.5']) statuses.push(await statusFrom(gateway, text));
    expect(statuses).toEqual([200, 200, 429, 429]);
  });

  it('count failed credentials of a whole /64', async () => {
    const gateway = await start({
      GATEWAY_AUTH: 'api-key',
      GATEWAY_API_KEYS: sha256('one'),
      GATEWAY_TRUST_PROXY: '1',
    });
    const guess = async (i: number) => {
      const headers = {
        'x-api-key': 'guess',
        'x-forwarded-for': `2001:db8:1:2::${i.toString(16)}`,
      };
      return (await gateway.get(PARAMS, headers)).status;
    };
    const statuses: number[] = [];
    for (let i = 1; statuses.at(-1) !== 429 && i < 2000; i += 1) statuses.push(await guess(i));
    expect(statuses.at(-1)).toBe(429);
  });

  it('apply across DIDs of one address', async () => {
    const { generateSigner, mintDelegation } = await import('@sibyl/ucan');
    const gateway = await start({ GATEWAY_AUTH: 'ucan', GATEWAY_RATE_LIMIT_PER_MINUTE: '2' });
    const statusOfNewDid = async () => {
      const { ok } = mintDelegation({
        signer: generateSigner(),
        audience: gateway.gateway.did ?? '',
        capabilities: [{ can: 'chain/query', with: 'ixo:chain' }],
        expiration: Math.floor(Date.now() / 1000) + 300,
      });
      const headers = { authorization: `Bearer ${ok?.token}`, 'x-auth-type': 'ucan' };
      return (await gateway.get(PARAMS, headers)).status;
    };
    const statuses: number[] = [];
    while (statuses.at(-1) !== 429 && statuses.length < 200) statuses.push(await statusOfNewDid());
    expect(statuses.at(-1)).toBe(429);
    expect(statuses.length).toBeGreaterThan(20);
  });
});

describe('the cost of a query', () => {
  /** How many such requests a full minute of 12 units pays for. */
  async function affordable(path: string): Promise<number> {
    const gateway = await start({ GATEWAY_RATE_LIMIT_PER_MINUTE: '12' });
    const statuses: number[] = [];
    while (statuses.at(-1) !== 429 && statuses.length < 20) {
      statuses.push((await gateway.get(path)).status);
    }
    return statuses.filter((status) => status === 200).length;
  }

  it.each([
    ['a page of 100', `${CLAIMS}?pagination.limit=100`, 12],
    ['a page of 600', `${CLAIMS}?pagination.limit=600`, 2],
    ['a page of 600 in hex', `${CLAIMS}?pagination.limit=0x258`, 2],
    ['a page far into the list', `${CLAIMS}?pagination.offset=5000&pagination.limit=1`, 2],
    ['a page after a key', `${CLAIMS}?pagination.key=AQ==`, 12],
    ['a list without a limit, which the node counts', CLAIMS, 1],
    ['a total', `${CLAIMS}?pagination.countTotal=true`, 1],
    ['more than a minute pays for', `${CLAIMS}?pagination.offset=1000000000`, 1],
  ])('is more for %s', async (_, path, count) => {
    // Units come back while the test runs, which may pay for one more on a slow machine.
    const found = await affordable(path);
    expect(found).toBeGreaterThanOrEqual(count);
    expect(found).toBeLessThanOrEqual(count + 2);
  });

  it('is charged before nodes are queried', async () => {
    const gateway = await start({ GATEWAY_RATE_LIMIT_PER_MINUTE: '12' });
    await gateway.get(`${CLAIMS}?pagination.countTotal=true`);
    const before = node.countCalls('ixo.claims.v1beta1.Query/ClaimList');
    const { status } = await gateway.get(
      `${CLAIMS}?pagination.countTotal=true&pagination.offset=1`,
    );
    expect(status).toBe(429);
    expect(node.countCalls('ixo.claims.v1beta1.Query/ClaimList')).toBe(before);
  });

  it('of a batch is the sum of its queries', async () => {
    const gateway = await start({ GATEWAY_RATE_LIMIT_PER_MINUTE: '12' });
    const queries = Array.from({ length: 3 }, (_, i) => `${CLAIMS}?pagination.limit=60${i}`);
    const { json } = await ask(`${gateway.url}/batch`, {
      method: 'POST',
      body: JSON.stringify({ queries }),
    });
    const statuses = json.results.map(({ status }: { status: number }) => status);
    expect(statuses).toEqual([200, 429, 429]);
  });
});

describe('calls to nodes in progress', () => {
  const MAX_PER_CALLER = 1024;

  it('are limited for each caller with 429, while other callers are served', async () => {
    const gateway = await start({ GATEWAY_TRUST_PROXY: '1', GATEWAY_TIMEOUT_SECONDS: '110' });
    const release = Promise.withResolvers<void>();
    cleanups.push(() => release.resolve());
    let hanging = 0;
    node.interrupt(async ({ method }) => {
      if (method !== 'ixo.entity.v1beta1.Query/Entity') return undefined;
      hanging += 1;
      await release.promise;
      return undefined;
    });
    const get = (id: number, address: string) =>
      gateway.get(`/ixo/entity/${id}`, { 'x-forwarded-for': address });
    const many = Promise.allSettled(
      Array.from({ length: MAX_PER_CALLER }, (_, i) => get(i, '198.51.100.1')),
    );
    await expect.poll(() => hanging).toBe(MAX_PER_CALLER);
    const refused = await get(MAX_PER_CALLER, '198.51.100.1');
    expect(refused).toMatchObject({ status: 429, json: { code: 8 } });
    expect(refused.headers.get('retry-after')).toBe('1');
    // A reply from the cache, and one that another call in progress gets, need no call.
    const shared = get(0, '198.51.100.1');
    const other = gateway.get(PARAMS, { 'x-forwarded-for': '198.51.100.2' });
    expect((await other).status).toBe(200);
    expect((await gateway.get(PARAMS, { 'x-forwarded-for': '198.51.100.1' })).status).toBe(200);
    release.resolve();
    expect((await shared).status).not.toBe(429);
    const refusals = (await many).filter(
      (reply) => reply.status === 'rejected' || reply.value.status === 429,
    );
    expect(refusals).toEqual([]);
  }, 120_000);
});

describe('POST /batch', () => {
  it.each([
    ['queries', { queries: Array.from({ length: 200_000 }, () => 1) }],
    ['unknown members', { queries: [PARAMS], ...Object.fromEntries(unknownMembers(20_000)) }],
  ])('refuses many wrong %s with a short answer', async (_, body) => {
    const gateway = await start({});
    const { status, text } = await ask(`${gateway.url}/batch`, {
      method: 'POST',
      body: JSON.stringify(body),
    });
    expect(status).toBe(400);
    expect(text.length).toBeLessThan(2000);
  });

  function* unknownMembers(count: number): Generator<[string, number]> {
    for (let i = 0; i < count; i += 1) yield [`member${i}`, i];
  }
});
