import type { IncomingHttpHeaders, ServerResponse } from 'node:http';
import { text } from 'node:stream/consumers';
import type { TLSSocket } from 'node:tls';
import { gzipSync } from 'node:zlib';
import { describe, expect, it, vi } from 'vitest';
import { createSafeFetch } from '../src/index.js';
import { selfSigned } from './support/certificate.js';
import { serve, serveRaw } from './support/local-server.js';

const rejects = (code: string) => expect.objectContaining({ name: 'SafeFetchError', code });
const safeFetch = createSafeFetch({ allow: ['127.0.0.1/32'], maxBytes: 1000 });

interface Echo {
  headers: IncomingHttpHeaders;
  method: string;
  body: string;
}

describe('an exchange', () => {
  it('carries method, headers, body and status both ways', async () => {
    const { url, host } = await serve(async (request, response) => {
      const { headers, method } = request;
      response.writeHead(201, { 'set-cookie': ['a=1', 'b=2'] });
      response.end(JSON.stringify({ headers, method, body: await text(request) }));
    });
    const response = await safeFetch(url, {
      method: 'post',
      body: new URLSearchParams({ a: '1' }),
      headers: { authorization: 'Bearer x', host: 'evil.example', 'accept-encoding': 'gzip' },
    });
    const { headers, method, body } = (await response.json()) as Echo;
    expect([response.status, method, body]).toEqual([201, 'POST', 'a=1']);
    expect(response.headers.getSetCookie()).toEqual(['a=1', 'b=2']);
    expect(headers).toMatchObject({ host, 'accept-encoding': 'identity', 'content-length': '3' });
    expect(headers['content-type']).toMatch('application/x-www-form-urlencoded');
    expect(headers.authorization).toBe('Bearer x');
  });

  it('takes a Request, as fetch does, which init replaces', async () => {
    const { url } = await serve(async (request, response) => {
      response.end(`${request.method} ${request.headers['x-a']} ${await text(request)}`);
    });
    const sameAsFetch: typeof fetch = safeFetch;
    const request = () => new Request(url, { method: 'PUT', body: 'tea', headers: { 'x-a': '1' } });
    expect(await (await sameAsFetch(request())).text()).toBe('PUT 1 tea');
    const replaced = await sameAsFetch(request(), { method: 'POST', headers: { 'x-a': '2' } });
    expect(await replaced.text()).toBe('POST 2 tea');
    const aborted = new Request(url, { signal: AbortSignal.abort(new Error('stopped')) });
    await expect(sameAsFetch(aborted)).rejects.toThrow('stopped');
  });

  it('over TLS names the host in SNI and Host, and trusts no unknown certificate', async () => {
    const tls = selfSigned('secure.test');
    const { port } = await serve(
      (request, response) =>
        response.end(`${(request.socket as TLSSocket).servername} ${request.headers.host}`),
      { tls },
    );
    const options = { allow: ['127.0.0.1/32'], lookup: async () => ['127.0.0.1'] };
    const trusting = createSafeFetch({ ...options, ca: tls.cert });
    const response = await trusting(`https://secure.test:${port}/`);
    expect(await response.text()).toBe(`secure.test secure.test:${port}`);
    await expect(trusting(`https://other.test:${port}/`)).rejects.toEqual(rejects('network'));
    await expect(createSafeFetch(options)(`https://secure.test:${port}/`)).rejects.toEqual(
      rejects('network'),
    );
  });

  it.each([204, 304])('with status %i has no body', async (status) => {
    const { url } = await serve((_, response) => response.writeHead(status).end());
    const response = await safeFetch(url);
    expect([response.status, response.body]).toEqual([status, null]);
  });

  it('with HEAD reads nothing, however long the body would be', async () => {
    const { url } = await serve((_, response) => {
      response.writeHead(200, { 'content-length': '999999999' }).end();
    });
    const response = await safeFetch(url, { method: 'HEAD' });
    expect(await response.text()).toBe('');
  });

  it.each([
    ['no HTTP', 'hello\r\n\r\n'],
    ['an impossible status', 'HTTP/1.1 999 Odd\r\n\r\n'],
    ['an upgrade that was not requested', 'HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n'],
    ['endless headers', `HTTP/1.1 200 OK\r\nx: ${'x'.repeat(100_000)}\r\n\r\n`],
    ['nothing', ''],
  ])('with a server that answers %s is a network failure', async (_, answer) => {
    const { url } = await serveRaw(answer);
    await expect(safeFetch(url)).rejects.toEqual(rejects('network'));
  });

  it('with a server that is not there is a network failure', async () => {
    await expect(safeFetch('http://127.0.0.1:1/')).rejects.toEqual(rejects('network'));
  });

  it('that ends within the body fails while it is read', async () => {
    const { url } = await serveRaw('HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf');
    const response = await safeFetch(url);
    await expect(response.text()).rejects.toEqual(rejects('network'));
  });
});

describe('the size limit', () => {
  it('refuses an announced length before reading', async () => {
    const { url } = await serve((_, response) => response.end('x'.repeat(1001)));
    await expect(safeFetch(url)).rejects.toEqual(rejects('too_large'));
  });

  it('lets the last allowed byte pass', async () => {
    const { url } = await serve((_, response) => response.end('x'.repeat(1000)));
    expect(await (await safeFetch(url)).text()).toHaveLength(1000);
  });

  const chunked = (size: number, count: number) => {
    const chunk = `${size.toString(16)}\r\n${'x'.repeat(size)}\r\n`;
    return serveRaw(
      `HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n${chunk.repeat(count)}0\r\n\r\n`,
    );
  };

  it('counts a tiny chunk as 64 bytes, since each takes time', async () => {
    const { url } = await chunked(1, 6000);
    const response = await safeFetch(url, { maxBytes: 256 * 1024 });
    await expect(response.text()).rejects.toEqual(rejects('too_large'));
  });

  it.each([
    [1, 1000, 1000],
    [64, 4096, 256 * 1024],
    [20, 4000, 256 * 1024],
  ])('accepts chunks of %i bytes, %i times, up to %i bytes', async (size, count, maxBytes) => {
    const { url } = await chunked(size, count);
    expect(await (await safeFetch(url, { maxBytes })).text()).toHaveLength(size * count);
  });

  it('ends an endless body and closes the connection', async () => {
    const closed = vi.fn();
    const { url } = await serve((_, response) => {
      response.on('close', closed);
      pourForever(response);
    });
    const response = await safeFetch(url, { maxBytes: 300_000 });
    await expect(response.arrayBuffer()).rejects.toEqual(rejects('too_large'));
    await expect.poll(() => closed.mock.calls.length).toBeGreaterThan(0);
  });

  it('holds back a server faster than the reader', async () => {
    let sent = 0;
    const { url } = await serve((_, response) => {
      const pour = () => {
        while (sent < 50_000_000) {
          sent += 65_536;
          if (!response.write(Buffer.alloc(65_536))) return;
        }
      };
      response.on('drain', pour);
      pour();
    });
    const response = await safeFetch(url, { maxBytes: 100_000_000 });
    const reader = response.body?.getReader();
    await reader?.read();
    const seen: number[] = [];
    const stalls = () => {
      seen.push(sent);
      expect(seen.at(-1)).toBe(seen.at(-2));
    };
    await vi.waitFor(stalls, { interval: 100, timeout: 60_000 });
    expect(sent).toBeLessThan(50_000_000);
    await reader?.cancel();
  });

  it('never unfolds a compressed answer', async () => {
    const bomb = gzipSync(Buffer.alloc(500_000));
    expect(bomb.length).toBeLessThan(1000);
    const { url } = await serve((_, response) => {
      response.writeHead(200, { 'content-encoding': 'gzip' }).end(bomb);
    });
    await expect(safeFetch(url)).rejects.toEqual(rejects('network'));
  });
});

describe('an answer that is not read', () => {
  it.each([
    ['refused', 200, { 'content-encoding': 'gzip' }],
    ['a redirect', 302, { location: 'file:///' }],
  ])('because it is %s closes the connection', async (_, status, headers) => {
    const closed = vi.fn();
    const { url } = await serve((_, response) => {
      response.on('close', closed);
      response.writeHead(status, headers);
      pourForever(response);
    });
    await expect(safeFetch(url)).rejects.toThrow();
    await expect.poll(() => closed.mock.calls.length).toBeGreaterThan(0);
  });
});

describe('the time limit', () => {
  it('covers a server that never answers', async () => {
    const closed = vi.fn();
    const { url } = await serve((_, response) => void response.on('close', closed));
    await expect(safeFetch(url, { timeoutMs: 200 })).rejects.toEqual(rejects('timeout'));
    await expect.poll(() => closed.mock.calls.length).toBeGreaterThan(0);
  });

  it('covers a body that drips', async () => {
    const { url } = await serve((_, response) => {
      const drip = setInterval(() => response.write('.'), 5);
      response.on('close', () => clearInterval(drip));
    });
    const response = await safeFetch(url, { timeoutMs: 3_000 });
    await expect(response.text()).rejects.toEqual(rejects('timeout'));
  });

  it('closes a connection whose body is never read', async () => {
    const closed = vi.fn();
    const { url } = await serve((_, response) => {
      response.on('close', closed);
      pourForever(response);
    });
    await safeFetch(url, { timeoutMs: 3_000 });
    await expect.poll(() => closed.mock.calls.length).toBeGreaterThan(0);
  });
});

describe('an abort', () => {
  it('ends the wait with the reason given', async () => {
    const abort = new AbortController();
    const { url } = await serve(() => abort.abort(new Error('enough')));
    await expect(safeFetch(url, { signal: abort.signal })).rejects.toThrow('enough');
  });

  it('ends the body with the reason given', async () => {
    const abort = new AbortController();
    const { url } = await serve((_, response) => void response.write('begun'));
    const response = await safeFetch(url, { signal: abort.signal });
    abort.abort(new Error('enough'));
    await expect(response.text()).rejects.toThrow('enough');
  });

  it('before the start sends nothing', async () => {
    const requests = vi.fn();
    const { url } = await serve(requests);
    await expect(safeFetch(url, { signal: AbortSignal.abort() })).rejects.toThrow(/abort/i);
    expect(requests).not.toHaveBeenCalled();
  });

  it('by cancelling the body closes the connection', async () => {
    const closed = vi.fn();
    const { url } = await serve((_, response) => {
      response.on('close', closed);
      response.write('begun');
    });
    const response = await safeFetch(url);
    await response.body?.cancel();
    await expect.poll(() => closed.mock.calls.length).toBeGreaterThan(0);
  });
});

function pourForever(response: ServerResponse): void {
  const pour = () => {
    while (!response.destroyed && response.write(Buffer.alloc(65_536)));
  };
  response.on('drain', pour);
  pour();
}
