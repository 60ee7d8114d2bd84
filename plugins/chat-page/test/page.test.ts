import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { brotliDecompressSync } from 'node:zlib';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { startHost, type TestHost } from '../../../packages/host/test/support/host.js';
import { listPageFiles } from '../src/index.js';

let host: TestHost;
beforeAll(async () => {
  host = await startHost({ env: { MODEL: 'offline' } });
});
afterAll(() => host.close());

/** Without a client that decompresses and caches. */
function get(path: string, headers: Readonly<Record<string, string>> = {}) {
  return new Promise<{ status: number; headers: Record<string, unknown>; body: Buffer }>(
    (resolve, reject) => {
      request(host.url + path, { headers }, async (reply) => {
        const { statusCode = 0, headers } = reply;
        resolve({ status: statusCode, headers, body: await buffer(reply) });
      })
        .once('error', reject)
        .end();
    },
  );
}

it('GET /app leads to /app/, which is the page', async () => {
  expect(await get('/app')).toMatchObject({ status: 308, headers: { location: 'app/' } });
  const { status, headers, body } = await get('/app/');
  expect([status, headers['content-type']]).toEqual([200, 'text/html; charset=utf-8']);
  expect(body.toString()).toContain('<script type="module"');
});

it('GET /app/licenses.md shows the licenses of what the page is built from', async () => {
  const { status, headers, body } = await get('/app/licenses.md');
  expect([status, headers['content-type']]).toEqual([200, 'text/plain; charset=utf-8']);
  expect(body.toString()).toMatch(/react[\s\S]*MIT/);
});

it('GET /app/* compresses a file, and answers 304 to a browser that has it', async () => {
  const { body: page, headers } = await get('/app/');
  expect(headers['cache-control']).toBe('no-cache');
  const script = /src="\.?\/?(assets\/[^"]+\.js)"/.exec(page.toString())?.[1];
  const plain = await get(`/app/${script}`);
  expect(plain).toMatchObject({ status: 200, headers: { vary: 'Accept-Encoding' } });
  expect(plain.headers['cache-control']).toContain('immutable');
  const packed = await get(`/app/${script}`, { 'accept-encoding': 'gzip, br' });
  expect(packed.headers).toMatchObject({ 'content-encoding': 'br', etag: plain.headers.etag });
  expect(packed.body.length).toBeLessThan(plain.body.length);
  expect(brotliDecompressSync(packed.body)).toEqual(plain.body);
  const known = await get(`/app/${script}`, { 'if-none-match': String(plain.headers.etag) });
  expect([known.status, known.body.length]).toEqual([304, 0]);
  const other = await get(`/app/${script}`, { 'if-none-match': String(headers.etag) });
  expect(other.status).toBe(200);
});

it.each(['/app/missing.js', '/app/..%2Fpackage.json', '/app/assets'])(
  'GET %s is not_found, and no cache keeps that',
  async (path) => {
    const { status, headers, body } = await get(path);
    expect([status, JSON.parse(body.toString()).code]).toEqual([404, 'not_found']);
    expect(String(headers['cache-control'])).not.toContain('immutable');
  },
);

it('listPageFiles: a file that was removed since, such as by another build, is not_found', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'sibyl-page-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const path = join(folder, 'old.js');
  writeFileSync(path, '1');
  const file = listPageFiles(folder).get('old.js');
  rmSync(path);
  await expect(file?.read()).rejects.toMatchObject({ code: 'not_found' });
});
