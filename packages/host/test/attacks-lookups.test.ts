import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type Capability, generateSigner, mintAuthInvocation, mintDelegation } from '@sibyl/ucan';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { startHost, type TestHost } from './support/host.js';
import {
  countStatuses,
  LoopbackClient,
  type Reply,
  runConcurrently,
} from './support/loopback-client.js';
import { TestUser } from './support/user.js';

const inOneHour = () => Math.floor(Date.now() / 1000) + 3600;
describe('did:web callers', () => {
  let host: TestHost;
  let server: Server;
  let port: number;
  let asked = 0;
  let open = 0;
  let mostOpen = 0;
  let isHolding = false;
  const held: ServerResponse[] = [];
  const release = () => {
    isHolding = false;
    for (const response of held.splice(0)) response.writeHead(404).end('{}');
  };

  beforeEach(async () => {
    asked = 0;
    open = 0;
    mostOpen = 0;
    server = createServer((_, response) => {
      asked += 1;
      open += 1;
      mostOpen = Math.max(mostOpen, open);
      // A lookup that times out on a slow machine closes its connection and frees its slot.
      response.once('close', () => {
        open -= 1;
      });
      if (isHolding) held.push(response);
      else response.writeHead(404).end('{}');
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    port = (server.address() as AddressInfo).port;
    host = await startHost({
      env: {
        OUTGOING_ALLOW: `127.0.0.1:${port}`,
        RATE_LIMIT_PER_MINUTE: '600',
        RATE_LIMIT_ANONYMOUS_PER_MINUTE: '1000000',
      },
    });
  });
  afterEach(async () => {
    release();
    await host.close();
    server.closeAllConnections();
    server.close();
  });

  const buildHeaders = (n: number) => {
    const signer = generateSigner().withDid(`did:web:127.0.0.1%3A${port}:${n}`).ok;
    const minted = signer && mintAuthInvocation({ signer, audience: host.did });
    return { authorization: `Bearer ${minted?.ok?.token}`, 'x-auth-type': 'ucan' };
  };

  it('from one address cause at most 10 lookups at once and 300 a minute', {
    timeout: 300_000,
  }, async () => {
    const startedAt = performance.now();
    const client = new LoopbackClient(host.url, '127.0.0.2');
    const replies: Reply[] = [];
    isHolding = true;
    const first = Array.from({ length: 40 }, async (_, n) =>
      replies.push(await client.get('/sessions', buildHeaders(n))),
    );
    await expect.poll(() => mostOpen).toBe(10);
    await expect.poll(() => replies.some(({ status }) => status === 429)).toBe(true);
    release();
    await Promise.all(first);
    await runConcurrently(1460, 10, async (n) =>
      replies.push(await client.get('/sessions', buildHeaders(40 + n))),
    );
    expect(mostOpen).toBe(10);
    const minutes = (performance.now() - startedAt) / 60_000;
    expect(asked).toBeLessThanOrEqual(300 + Math.ceil(300 * minutes));
    const counts = countStatuses(replies);
    expect(counts[401]).toBe(asked);
    expect(counts[429]).toBe(1500 - asked);
    const refused = replies.filter(({ status }) => status === 429);
    expect(refused.every(({ retryAfter }) => Number(retryAfter) > 0)).toBe(true);
    client.close();
  });

  it('from many addresses cause at most 50 lookups at once; the rest is answered 503', {
    timeout: 120_000,
  }, async () => {
    isHolding = true;
    const clients = Array.from(
      { length: 6 },
      (_, n) => new LoopbackClient(host.url, `127.0.0.${n + 2}`),
    );
    const replies: Reply[] = [];
    const all = clients.flatMap((client, c) =>
      Array.from({ length: 10 }, async (_, n) =>
        replies.push(await client.get('/sessions', buildHeaders(100 * c + n))),
      ),
    );
    await expect
      .poll(() =>
        replies.some(({ code, retryAfter }) => code === 'verification_busy' && retryAfter),
      )
      .toBe(true);
    // On a busy machine, some time out before the last ones reach the server.
    await expect.poll(() => mostOpen).toBeGreaterThan(25);
    // A caller whose key is in its DID waits for none of them.
    expect((await new TestUser(host).request('GET', '/sessions')).status).toBe(200);
    release();
    await Promise.all(all);
    expect(mostOpen).toBeLessThanOrEqual(50);
    expect(Object.keys(countStatuses(replies))).toEqual(['401', '503']);
    for (const client of clients) client.close();
  });

  it('as issuers of proofs are charged to the caller who presents them', async () => {
    const alice = new TestUser(host);
    const raws = Array.from({ length: 25 }, (_, n) => {
      const signer =
        generateSigner().withDid(`did:web:127.0.0.1%3A${port}:p${n}`).ok ?? generateSigner();
      const capabilities: Capability[] = [{ can: 'store/*', with: 'ixo:x' }];
      const fields = { capabilities, expiration: inOneHour() };
      const proof = mintDelegation({ ...fields, signer, audience: alice.did }).ok?.token ?? '';
      return mintDelegation({
        ...fields,
        signer: alice.signer,
        audience: host.did,
        proofs: [proof],
      }).ok?.token;
    });
    isHolding = true;
    const statuses: number[] = [];
    const stored = raws.map(async (raw) =>
      statuses.push((await alice.request('POST', '/delegation', { body: { raw } })).status),
    );
    await expect.poll(() => statuses.length, { timeout: 60_000 }).toBe(15);
    await expect.poll(() => held.length).toBe(10);
    expect(new Set(statuses)).toEqual(new Set([429]));
    release();
    await Promise.all(stored);
    expect(statuses.filter((status) => status === 400)).toHaveLength(10);
  });
});
