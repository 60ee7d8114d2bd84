import { describe, expect, it } from 'vitest';
import { createSafeFetch } from '../src/index.js';
import { serve } from './support/local-server.js';

const busy = expect.objectContaining({ name: 'SafeFetchError', code: 'busy' });

/** A server that answers nothing until it is released. */
async function serveHanging() {
  const go = Promise.withResolvers<void>();
  let open = 0;
  const server = await serve(async (_, response) => {
    open += 1;
    response.on('close', () => {
      open -= 1;
    });
    await go.promise;
    response.end('done');
  });
  return { ...server, release: go.resolve, open: () => open };
}

describe('createSafeFetch limits the requests in progress', () => {
  it('to one host, and leaves room for the others', async () => {
    const hanging = await serveHanging();
    const other = await serve((_, response) => response.end('fine'));
    const safeFetch = createSafeFetch({ allow: ['127.0.0.1'], maxConnectionsPerHost: 3 });
    const stop = new AbortController();
    const held = Array.from({ length: 3 }, () => safeFetch(hanging.url, { signal: stop.signal }));
    await expect.poll(hanging.open).toBe(3);
    await expect(safeFetch(hanging.url)).rejects.toEqual(busy);
    expect(await (await safeFetch(other.url)).text()).toBe('fine');
    stop.abort(new Error('enough'));
    await Promise.all(held.map((one) => expect(one).rejects.toThrow('enough')));
    await expect.poll(hanging.open).toBe(0);
    hanging.release();
    expect(await (await safeFetch(hanging.url)).text()).toBe('done');
  });

  it('to all hosts together, a redirect included, until the body is read', async () => {
    const target = await serve((_, response) => response.end('there'));
    const from = await serve((_, response) =>
      response.writeHead(302, { location: target.url }).end(),
    );
    const safeFetch = createSafeFetch({ allow: ['127.0.0.1'], maxConnections: 1 });
    for (let i = 0; i < 3; i++) {
      const response = await safeFetch(from.url);
      await expect(safeFetch(target.url)).rejects.toEqual(busy);
      if (i === 0) await response.body?.cancel();
      else expect(await response.text()).toBe('there');
    }
    const head = await safeFetch(target.url, { method: 'HEAD' });
    expect(head.status).toBe(200);
    await expect(safeFetch('http://127.0.0.1:1/')).rejects.toMatchObject({ code: 'network' });
    await expect(safeFetch('http://10.0.0.1/')).rejects.toMatchObject({ code: 'address_refused' });
    expect((await safeFetch(target.url)).status).toBe(200);
  });

  it('while their names are looked up', async () => {
    let asked = 0;
    const lookup = (_: string, signal: AbortSignal) => {
      asked += 1;
      return new Promise<never>((_, reject) =>
        signal.addEventListener('abort', () => reject(signal.reason)),
      );
    };
    const safeFetch = createSafeFetch({ lookup, maxConnections: 5 });
    const stop = new AbortController();
    const held = Array.from({ length: 50 }, (_, i) =>
      safeFetch(`https://${i}.test/`, { signal: stop.signal }).catch((error) => error),
    );
    const refused = (await Promise.all(held.slice(5))).filter((error) => error.code === 'busy');
    expect([asked, refused.length]).toEqual([5, 45]);
    stop.abort(new Error('enough'));
    await Promise.all(held);
  });
});

it('SafeFetchError names the host as it was written, never the address behind it', async () => {
  const safeFetch = createSafeFetch({ lookup: async () => ['10.1.2.3'] });
  const error = await safeFetch('https://inside.test/').catch((thrown) => thrown);
  expect(error).toMatchObject({ code: 'address_refused' });
  expect(error.message).toContain('inside.test');
  expect(error.message).not.toContain('10.1.2.3');
  expect(String(error.cause)).toContain('10.1.2.3');
});
