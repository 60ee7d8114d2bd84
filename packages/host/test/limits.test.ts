import { createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { generateSigner, mintAuthInvocation } from '@sibyl/ucan';
import { afterEach, describe, expect, it } from 'vitest';
import { scale } from '../../../scripts/test-scale.ts';
import { startHost, type TestHost } from './support/host.js';
import { usedMemory } from './support/used-memory.js';
import { TestUser } from './support/user.js';

let host: TestHost;
afterEach(() => host.close());

const get = (path: string, headers: Record<string, string> = {}) =>
  fetch(host.url + path, { headers });
const fetchStatus = async (path: string, headers?: Record<string, string>) =>
  (await get(path, headers)).status;
const badToken = { authorization: 'Bearer AAAA', 'x-auth-type': 'ucan' };

describe('RATE_LIMIT_ANONYMOUS_PER_MINUTE', () => {
  it('limits public routes, with Retry-After', async () => {
    host = await startHost({ env: { RATE_LIMIT_ANONYMOUS_PER_MINUTE: '3' } });
    for (let i = 0; i < 3; i++) await get('/');
    expect(await fetchStatus('/')).toBe(429);
    const response = await get('/');
    expect(Number(response.headers.get('retry-after'))).toBeGreaterThan(0);
    expect(response.headers.get('ratelimit-limit')).toBe('3');
    expect(response.headers.get('ratelimit-remaining')).toBe('0');
    expect(await response.json()).toMatchObject({ statusCode: 429, code: 'rate_limited' });
  });

  it('limits failed authentication, while valid callers of the address are served', async () => {
    host = await startHost({ env: { RATE_LIMIT_ANONYMOUS_PER_MINUTE: '3' } });
    for (let i = 0; i < 3; i++) expect(await fetchStatus('/sessions', badToken)).toBe(401);
    expect(await fetchStatus('/sessions', badToken)).toBe(429);
    expect((await new TestUser(host).request('GET', '/sessions')).status).toBe(200);
  });

  it.each([
    ['GET', '/nope'],
    ['PUT', '/sessions'],
    ['GET', '/sessions/%zz'],
  ])('is limited on %s %s, which reaches no guard, with any credentials', async (method, path) => {
    host = await startHost({ env: { RATE_LIMIT_ANONYMOUS_PER_MINUTE: '3' } });
    const headers = { 'x-ucan-delegation': 'x' };
    const responses: Response[] = [];
    for (let i = 0; i < 30; i++) responses.push(await fetch(host.url + path, { method, headers }));
    expect(responses.slice(0, 3).map(({ status }) => status)).not.toContain(429);
    const refused = responses.find(({ status }) => status === 429);
    expect(await refused?.json()).toMatchObject({ code: 'rate_limited' });
    expect(Number(refused?.headers.get('retry-after'))).toBeGreaterThan(0);
    expect((await new TestUser(host).request('GET', '/sessions')).status).toBe(200);
  });

  it('does not limit GET /health', async () => {
    host = await startHost({ env: { RATE_LIMIT_ANONYMOUS_PER_MINUTE: '1' } });
    await get('/');
    expect(await fetchStatus('/')).toBe(429);
    for (let i = 0; i < 5; i++) expect(await fetchStatus('/health')).toBe(200);
  });
});

describe('DID lookups', () => {
  it('are limited to 300 a minute for an address with invalid tokens', async () => {
    const asked: string[] = [];
    const chain = createServer((request, response) => {
      asked.push(request.url ?? '');
      response.writeHead(404).end('{}');
    });
    await new Promise<void>((resolve) => chain.listen(0, '127.0.0.1', resolve));
    const { port } = chain.address() as AddressInfo;
    host = await startHost({
      env: {
        RATE_LIMIT_ANONYMOUS_PER_MINUTE: '3',
        CHAIN_REST_URL: `http://127.0.0.1:${port}`,
      },
    });
    const buildHeaders = (n: number) => {
      const signer = generateSigner().withDid(`did:ixo:entity:${n}`).ok ?? generateSigner();
      const { ok } = mintAuthInvocation({ signer, audience: host.did });
      return { authorization: `Bearer ${ok?.token}`, 'x-auth-type': 'ucan' };
    };
    const startedAt = performance.now();
    const statuses: number[] = [];
    for (let n = 0; n < 500; n++) statuses.push(await fetchStatus('/sessions', buildHeaders(n)));
    const minutes = (performance.now() - startedAt) / 60_000;
    chain.closeAllConnections();
    chain.close();
    expect(asked.length).toBeGreaterThanOrEqual(300);
    expect(asked.length).toBeLessThanOrEqual(300 + Math.ceil(300 * minutes));
    expect(statuses.slice(0, 3)).toEqual([401, 401, 401]);
    expect(statuses.filter((status) => status === 401).length).toBeLessThanOrEqual(
      3 + Math.ceil(3 * minutes),
    );
  }, 120_000);

  it('GET /sessions is served to a did:web caller while another address fails', async () => {
    const key = generateSigner();
    const web = createServer((_, response) => {
      const id = `did:web:127.0.0.1%3A${(web.address() as AddressInfo).port}`;
      const publicKeyMultibase = key.did.slice('did:key:'.length);
      const method = { id: `${id}#1`, type: 'Multikey', controller: id, publicKeyMultibase };
      response.end(
        JSON.stringify({ id, verificationMethod: [method], assertionMethod: [method.id] }),
      );
    });
    await new Promise<void>((resolve) => web.listen(0, '127.0.0.1', resolve));
    const { port } = web.address() as AddressInfo;
    const env = { RATE_LIMIT_ANONYMOUS_PER_MINUTE: '1', OUTGOING_ALLOW: `127.0.0.1:${port}` };
    host = await startHost({ env });
    let last = 0;
    while (last !== 429) last = await fetchStatus('/sessions', badToken);
    const carol = new TestUser(host, key.withDid(`did:web:127.0.0.1%3A${port}`).ok);
    const { status } = await carol.request('GET', '/sessions');
    web.closeAllConnections();
    web.close();
    expect(status).toBe(200);
  });
});

describe('RATE_LIMIT_PER_MINUTE', () => {
  it('limits by DID, not by address', async () => {
    host = await startHost({ env: { RATE_LIMIT_PER_MINUTE: '2' } });
    const [alice, bob] = [new TestUser(host), new TestUser(host)];
    const statuses = [];
    for (let i = 0; i < 3; i++) statuses.push((await alice.request('GET', '/sessions')).status);
    expect(statuses).toEqual([200, 200, 429]);
    expect((await bob.request('GET', '/sessions')).status).toBe(200);
  });

  it('a caller beyond its limit on GET /sessions takes nothing from others at its address', async () => {
    host = await startHost({ env: { RATE_LIMIT_PER_MINUTE: '10' } });
    const alice = new TestUser(host);
    const statuses: number[] = [];
    for (let i = 0; i < 130; i++) statuses.push((await alice.request('GET', '/sessions')).status);
    expect(statuses.filter((status) => status === 429).length).toBeGreaterThan(0);
    expect((await new TestUser(host).request('GET', '/sessions')).status).toBe(200);
  });

  it('limits new keys of one address', async () => {
    host = await startHost({ env: { RATE_LIMIT_PER_MINUTE: '1' } });
    const statuses = [];
    for (let i = 0; i < 11; i++)
      statuses.push((await new TestUser(host).request('GET', '/sessions')).status);
    expect(statuses).toEqual([...Array(10).fill(200), 429]);
  });
});

/** How many bodies of about a megabyte are read before one is refused. */
async function countLargeBodies(path: string, headers: Record<string, string>): Promise<number> {
  const body = `{"title":"x"${' '.repeat(1_000_000)}}`;
  const sent = { ...headers, 'content-type': 'application/json' };
  for (let count = 0; ; count++) {
    const response = await fetch(host.url + path, { method: 'POST', headers: sent, body });
    await response.text();
    if (response.status !== 429) continue;
    expect(Number(response.headers.get('retry-after'))).toBeGreaterThan(0);
    return count;
  }
}

describe('large bodies', () => {
  it('count as several requests of their caller alone', async () => {
    host = await startHost({ env: { RATE_LIMIT_PER_MINUTE: '60' } });
    const [alice, bob] = [new TestUser(host), new TestUser(host)];
    const count = await countLargeBodies('/sessions', alice.headers);
    expect(count).toBeGreaterThan(0);
    expect(count).toBeLessThan(20);
    expect((await bob.request('POST', '/sessions', { body: {} })).status).toBe(201);
  });

  it('count as several requests of their address on public routes', async () => {
    host = await startHost({ env: { RATE_LIMIT_ANONYMOUS_PER_MINUTE: '60' } });
    const count = await countLargeBodies('/schedules/hooks/did:key:x/schedule', {});
    expect(count).toBeGreaterThan(0);
    expect(count).toBeLessThan(20);
  });

  it('pass a low limit', async () => {
    host = await startHost({ env: { RATE_LIMIT_PER_MINUTE: '4' } });
    expect(await countLargeBodies('/sessions', new TestUser(host).headers)).toBeGreaterThan(1);
  });
});

describe('TRUST_PROXY', () => {
  const from = (address: string) => fetchStatus('/', { 'x-forwarded-for': address });

  const listWarnings = () => host.log.filter(({ msg }) => /set TRUST_PROXY/.test(String(msg)));

  it('is required for X-Forwarded-For, as the log says once', async () => {
    host = await startHost({ env: { RATE_LIMIT_ANONYMOUS_PER_MINUTE: '2' } });
    await fetchStatus('/');
    expect(listWarnings()).toEqual([]);
    await from('203.0.113.1');
    expect(await from('203.0.113.2')).toBe(429);
    expect(listWarnings()).toHaveLength(1);
  });

  it('limits the addresses that the trusted proxy sends', async () => {
    const env = { RATE_LIMIT_ANONYMOUS_PER_MINUTE: '1', TRUST_PROXY: 'loopback' };
    host = await startHost({ env });
    await from('203.0.113.1');
    expect(await from('203.0.113.1')).toBe(429);
    expect(await from('203.0.113.2')).toBe(200);
    expect(listWarnings()).toEqual([]);
  });

  it('limits an address with any port that the proxy writes', async () => {
    const env = { RATE_LIMIT_ANONYMOUS_PER_MINUTE: '1', TRUST_PROXY: '1' };
    host = await startHost({ env });
    await from('203.0.113.1:1001');
    expect(await from('203.0.113.1:1002')).toBe(429);
    await from('[2001:db8::1]:1001');
    expect(await from('[2001:db8::2]:1002')).toBe(429);
  });
});

/** Sends one request from a given loopback address. */
function statusFrom(localAddress: string, headers: Record<string, string>): Promise<number> {
  return new Promise((resolve, reject) => {
    const { port } = new URL(host.url);
    const sent = request(
      { port, host: '127.0.0.1', path: '/sessions', localAddress, headers },
      (response) => {
        response.resume().once('end', () => resolve(response.statusCode ?? 0));
      },
    );
    sent.on('error', reject).end();
  });
}

describe('200 invalid tokens a second', () => {
  const SECONDS = scale(10, 4);

  it('do not affect valid callers or memory', async () => {
    host = await startHost({ env: { RATE_LIMIT_ANONYMOUS_PER_MINUTE: '300' } });
    const alice = new TestUser(host);
    const seen = new Map<number, number>();
    const served: number[] = [];
    const used: number[] = [];
    for (let second = 0; second < SECONDS; second++) {
      const until = performance.now() + 1000;
      for (let batch = 0; batch < 10; batch++) {
        const bad = Array.from({ length: 20 }, (_, i) =>
          statusFrom('127.0.0.2', hostileHeaders(second * 200 + batch * 20 + i, alice)),
        );
        served.push(await statusFrom('127.0.0.2', alice.headers));
        served.push(await statusFrom('127.0.0.3', new TestUser(host).headers));
        for (const status of await Promise.all(bad)) seen.set(status, (seen.get(status) ?? 0) + 1);
      }
      used.push(usedMemory());
      await new Promise((resolve) => setTimeout(resolve, Math.max(0, until - performance.now())));
    }
    expect(new Set(served)).toEqual(new Set([200]));
    expect((seen.get(401) ?? 0) + (seen.get(429) ?? 0)).toBe(200 * SECONDS);
    expect(seen.get(429)).toBeGreaterThan(100 * SECONDS);
    const [early = 0, late = 0] = [used[2], used.at(-1)];
    expect(late - early).toBeLessThan(20);
  });
});

/** Invalid, truncated and expired tokens, and well-formed ones with a wrong signature. */
function hostileHeaders(n: number, alice: TestUser): Record<string, string> {
  const token = alice.mint(n % 4 === 1 ? -1 : 300);
  const kinds = [
    Buffer.from(`garbage ${n}`).toString('base64'),
    token,
    token.slice(0, 400),
    flipped(token),
  ];
  return { authorization: `Bearer ${kinds[n % 4]}`, 'x-auth-type': 'ucan' };
}

function flipped(token: string): string {
  const bytes = Buffer.from(token, 'base64');
  bytes[bytes.length - 20] = (bytes[bytes.length - 20] ?? 0) ^ 1;
  return bytes.toString('base64');
}
