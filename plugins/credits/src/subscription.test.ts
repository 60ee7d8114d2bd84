import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';
import type { PluginContext } from '@sibyl/plugin-kit';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { usedMemory } from '../../../packages/host/test/support/used-memory.js';
import { SubscriptionService } from './subscription.js';

type Answer = { readonly status: number; readonly body: unknown };

describe('SubscriptionService: a service', () => {
  const asked: { headers: IncomingMessage['headers']; body: unknown }[] = [];
  let answer: Answer = { status: 200, body: {} };
  let delay: Promise<void> | undefined;
  let now = 0;
  const server = createServer(async (request, response) => {
    asked.push({ headers: request.headers, body: await json(request) });
    const { status, body } = answer;
    await delay;
    response.writeHead(status).end(JSON.stringify(body));
  });
  beforeEach(async () => {
    asked.length = 0;
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
  });
  afterEach(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });

  function connect(failure: 'closed' | 'open' = 'closed') {
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/credit`;
    const context = {
      fetch,
      oracle: { did: 'did:key:zOracle', name: 'Oracle' },
      logger: { info: () => {}, warn: () => {}, error: () => {} },
      ucan: {
        resolveServiceDid: async (serviceUrl: string) => `did:web:${new URL(serviceUrl).host}`,
        mintInvocation: async (request: object) => JSON.stringify(request),
      },
    } as unknown as PluginContext;
    return new SubscriptionService({ context, url, failure, cacheMs: 1000, clock: () => now });
  }

  it('is asked with an invocation made for it, once for all who ask at once', async () => {
    answer = { status: 200, body: { credit: 700 } };
    const service = connect();
    const lines = await Promise.all([service.get('did:a'), service.get('did:a')]);
    expect(lines).toEqual([{ amount: 700 }, { amount: 700 }]);
    expect(asked).toHaveLength(1);
    expect(asked[0]?.body).toEqual({ user: 'did:a' });
    expect(asked[0]?.headers['x-auth-type']).toBe('ucan');
    expect(JSON.parse(asked[0]?.headers.authorization?.slice('Bearer '.length) ?? '')).toEqual({
      audience: expect.stringContaining('did:web:127.0.0.1'),
      can: 'subscription/read',
      with: 'did:key:zOracle',
      nb: { user: 'did:a' },
    });
  });

  it('is asked again when its answer is old, or no longer holds', async () => {
    answer = { status: 200, body: { credit: 700 } };
    const service = connect();
    await service.get('did:a');
    answer = { status: 200, body: { credit: 5 } };
    now += 999;
    expect(await service.get('did:a')).toEqual({ amount: 700 });
    now += 1;
    expect(await service.get('did:a')).toEqual({ amount: 5 });
    answer = { status: 200, body: { credit: 6 } };
    service.forget('did:a');
    expect(await service.get('did:a')).toEqual({ amount: 6 });
  });

  it.each([
    ['refuses', { status: 500, body: {} }],
    ['answers with rubbish', { status: 200, body: { credit: 'lots' } }],
    ['answers with a debt', { status: 200, body: { credit: -1 } }],
  ])('that %s fails closed or open, as configured', async (_, failing) => {
    answer = failing;
    expect(await connect('closed').get('did:a')).toMatchObject({
      amount: 0,
      error: expect.stringContaining('Try again'),
    });
    const { amount } = await connect('open').get('did:a');
    expect(amount).toBeGreaterThan(1e12);
  });

  it('SubscriptionService caches at most 4 MB of users, even with long DIDs', async () => {
    const context = {
      fetch: async () => Response.json({ credit: 5 }),
      oracle: { did: 'did:key:zOracle', name: 'Oracle' },
      logger: { info: () => {}, warn: () => {}, error: () => {} },
      ucan: { resolveServiceDid: async () => 'did:web:x', mintInvocation: async () => 'token' },
    } as unknown as PluginContext;
    const settings = { failure: 'closed', cacheMs: 1e9, clock: () => 0 } as const;
    const service = new SubscriptionService({ context, url: 'http://x.test/', ...settings });
    const before = usedMemory();
    for (let i = 0; i < 20_000; i++) await service.get(`did:web:${'x'.repeat(2000)}${i}`);
    expect(usedMemory() - before).toBeLessThan(12);
  });

  it('SubscriptionService refuses, even where it fails open, when too many users are asked for at once', async () => {
    const held = Promise.withResolvers<void>();
    answer = { status: 200, body: { credit: 700 } };
    delay = held.promise;
    const service = connect('open');
    const lines = Array.from({ length: 200 }, (_, i) => service.get(`did:${i}`));
    expect(await service.get('did:more')).toMatchObject({ amount: 0, error: expect.any(String) });
    held.resolve();
    await Promise.all(lines);
    expect(await service.get('did:more')).toEqual({ amount: 700 });
    delay = undefined;
  });

  it('SubscriptionService.forget drops an answer on its way', async () => {
    const held = Promise.withResolvers<void>();
    delay = held.promise;
    answer = { status: 200, body: { credit: 700 } };
    const service = connect();
    const before = service.get('did:a');
    await expect.poll(() => asked.length).toBe(1);
    service.forget('did:a');
    held.resolve();
    await before;
    delay = undefined;
    answer = { status: 200, body: { credit: 5 } };
    expect(await service.get('did:a')).toEqual({ amount: 5 });
  });

  it('that is down is not asked for every message', async () => {
    answer = { status: 500, body: {} };
    const service = connect();
    await service.get('did:a');
    await service.get('did:a');
    expect(asked).toHaveLength(1);
    now += 5000;
    answer = { status: 200, body: { credit: 9 } };
    expect(await service.get('did:a')).toEqual({ amount: 9 });
  });
});
