import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { text } from 'node:stream/consumers';
import { describe, expect, it } from 'vitest';
import { createSafeFetch } from '../src/index.js';
import { selfSigned } from './support/certificate.js';
import { serve } from './support/local-server.js';

const rejects = (code: string) => expect.objectContaining({ name: 'SafeFetchError', code });
const safeFetch = createSafeFetch({ allow: ['127.0.0.1/32'] });

/** Redirects every path but `/end`, which returns what arrived. */
const redirecting = (to: string | ((path: string) => string), status = 302) =>
  serve(async (request, response) => {
    if (request.url === '/end') return void response.end(await echo(request));
    const location = typeof to === 'string' ? to : to(request.url ?? '/');
    response.writeHead(status, { location }).end('not followed');
  });

const echo = async (request: IncomingMessage) =>
  JSON.stringify({ method: request.method, headers: request.headers, body: await text(request) });

interface Echo {
  method: string;
  headers: IncomingHttpHeaders;
  body: string;
}

describe('redirects', () => {
  it.each([
    ['http://127.0.0.2/', 'loopback'],
    ['http://169.254.169.254/latest/meta-data/', 'metadata'],
    ['http://[::1]/', 'IPv6 loopback'],
    ['http://0x7f.2/', 'hex'],
    ['//10.0.0.1/', 'private, scheme-relative'],
  ])('to %s are refused (%s)', async (location) => {
    const { url } = await redirecting(location);
    await expect(safeFetch(url)).rejects.toEqual(rejects('address_refused'));
  });

  it.each([
    ['file:///etc/passwd', 'scheme_refused'],
    ['data:text/plain,x', 'scheme_refused'],
    ['http://user:pass@127.0.0.1/', 'url_invalid'],
    ['http://', 'url_invalid'],
  ])('to %s: %s', async (location, code) => {
    const { url } = await redirecting(location);
    await expect(safeFetch(url)).rejects.toEqual(rejects(code));
  });

  it('resolve the name again, and check it again', async () => {
    const { port } = await redirecting('/end');
    let answers = 0;
    const rebinding = createSafeFetch({
      allow: ['127.0.0.1/32'],
      lookup: async () => [answers++ === 0 ? '127.0.0.1' : '192.168.0.1'],
    });
    await expect(rebinding(`http://rebind.test:${port}/`)).rejects.toEqual(
      rejects('address_refused'),
    );
    expect(answers).toBe(2);
  });

  it('in a loop end', async () => {
    let requests = 0;
    const { url } = await redirecting(() => `/again/${++requests}`);
    await expect(safeFetch(url)).rejects.toEqual(rejects('too_many_redirects'));
    expect(requests).toBe(4);
  });

  it('are followed three times, and the response says where to', async () => {
    const steps: Record<string, string> = { '/': '/1', '/1': '/2', '/2': '/end' };
    const { url } = await redirecting((path) => steps[path] ?? '/');
    const response = await safeFetch(url);
    expect(response.status).toBe(200);
    expect(response.url).toBe(`${url}end`);
  });

  it('cannot be raised past three, also by nonsense', async () => {
    const { url } = await redirecting('/');
    for (const redirects of [100, Infinity, Number.NaN]) {
      await expect(safeFetch(url, { redirects })).rejects.toEqual(rejects('too_many_redirects'));
    }
  });

  it('are refused with redirects: 0 and redirect: error, shown with redirect: manual', async () => {
    const { url } = await redirecting('/end');
    await expect(safeFetch(url, { redirects: 0 })).rejects.toEqual(rejects('too_many_redirects'));
    await expect(safeFetch(url, { redirect: 'error' })).rejects.toEqual(
      rejects('too_many_redirects'),
    );
    const shown = await safeFetch(url, { redirect: 'manual' });
    expect([shown.status, shown.headers.get('location')]).toEqual([302, '/end']);
    expect(await shown.text()).toBe('not followed');
  });

  it('without a location are answers', async () => {
    const { url } = await serve((_, response) => response.writeHead(302).end('where?'));
    expect(await (await safeFetch(url)).text()).toBe('where?');
  });

  it('from https to http are refused, though http is configured', async () => {
    const tls = selfSigned('secure.test');
    const { url: plain } = await serve((_, response) => response.end());
    const { port } = await serve(
      (_, response) => response.writeHead(302, { location: plain }).end(),
      { tls },
    );
    const fetchTls = createSafeFetch({
      allow: ['127.0.0.1/32'],
      lookup: async () => ['127.0.0.1'],
      ca: tls.cert,
    });
    await expect(fetchTls(`https://secure.test:${port}/`)).rejects.toEqual(
      rejects('scheme_refused'),
    );
  });
});

describe('credentials across origins', () => {
  const secret = {
    authorization: 'Bearer secret',
    cookie: 'session=secret',
    'x-api-key': 'secret',
    'x-ucan-delegation': 'secret',
    accept: 'application/json',
    'accept-language': 'de',
    'user-agent': 'sibyl',
  };

  it('stay behind', async () => {
    const target = await redirecting('/end');
    const { url } = await redirecting(`${target.url}end`);
    const { headers } = (await (await safeFetch(url, { headers: secret })).json()) as Echo;
    expect(JSON.stringify(headers)).not.toContain('secret');
    expect(headers).toMatchObject({ accept: 'application/json', 'accept-language': 'de' });
    expect(headers.host).toBe(target.host);
  });

  it('stay behind on the way back, too', async () => {
    let second = '';
    const first = await redirecting((path) => (path === '/' ? second : '/'));
    second = (await redirecting(`${first.url}end`)).url;
    const { headers } = (await (await safeFetch(first.url, { headers: secret })).json()) as Echo;
    expect(JSON.stringify(headers)).not.toContain('secret');
  });

  it('travel on within one origin', async () => {
    const { url } = await redirecting('/end');
    const { headers } = (await (await safeFetch(url, { headers: secret })).json()) as Echo;
    expect(headers).toMatchObject(secret);
  });
});

describe('the method after a redirect', () => {
  it.each([
    [301, 'POST', 'GET', ''],
    [302, 'POST', 'GET', ''],
    [303, 'POST', 'GET', ''],
    [303, 'PUT', 'GET', ''],
    [302, 'PUT', 'PUT', 'body'],
    [307, 'POST', 'POST', 'body'],
    [308, 'DELETE', 'DELETE', 'body'],
  ])('%i turns %s into %s', async (status, method, expected, body) => {
    const { url } = await redirecting('/end', status);
    const headers = { 'content-type': 'text/plain', 'content-language': 'en' };
    const answer = await safeFetch(url, { method, body: 'body', headers });
    const echoed = (await answer.json()) as Echo;
    expect([echoed.method, echoed.body]).toEqual([expected, body]);
    expect(echoed.headers['content-type']).toBe(body ? 'text/plain' : undefined);
  });
});
