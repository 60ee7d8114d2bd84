import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { createServer, request as httpRequest, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { ERASE_ABILITY, toOracleResource } from '@sibyl/protocol/decisions';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { MANIFEST, type Manifest, parseUploadPath } from '../src/own-data/archive-format.js';
import { ArchiveReader } from '../src/own-data/archive-reader.js';
import { importArchive } from './support/archives.js';
import { startHost, type TestHost } from './support/host.js';
import { postFile, upload } from './support/upload.js';
import { TestUser } from './support/user.js';

/** Keeps objects as an S3-compatible service does. */
const objects = new Map<string, Buffer>();
/** The paths of all deletions that it accepted. */
const deleted: string[] = [];
let isAway = false;
/** It refuses the key, breaks off in the middle of an object, or sends an object that never ends. */
let fault: 'refuses' | 'breaks off' | 'does not end' | undefined;
const findStatus = () => (isAway ? 503 : fault === 'refuses' ? 403 : undefined);
/** Settles when objects may be read, for which some requests are waiting. */
let reading: Promise<void> = Promise.resolve();
let waiting = 0;
let server: Server;
let host: TestHost;

function* repeat(data: Buffer) {
  for (;;) yield data;
}

function sendObject(response: ServerResponse, data: Buffer) {
  if (fault === 'does not end') return Readable.from(repeat(data)).pipe(response);
  if (fault !== 'breaks off') return response.end(data);
  response.writeHead(200, { 'content-length': data.length });
  return response.write(data.subarray(0, data.length / 2), () => response.destroy());
}

beforeAll(async () => {
  server = createServer(async (request, response) => {
    const path = request.url ?? '';
    const body = await buffer(request);
    const status = findStatus();
    if (status) return response.writeHead(status).end('<Error/>');
    if (request.method === 'PUT') objects.set(path, body);
    if (request.method === 'DELETE') {
      objects.delete(path);
      deleted.push(path);
    }
    if (request.method !== 'GET') return response.end();
    waiting += 1;
    await reading;
    waiting -= 1;
    const data = objects.get(path);
    return data ? sendObject(response, data) : response.writeHead(404).end();
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  host = await startHost({ env: { FILES_URL: `http://key:secret@127.0.0.1:${port}/bucket` } });
});

afterAll(async () => {
  await host?.close();
  server?.close();
});

const erase = (user: TestUser) => {
  const capability = { can: ERASE_ABILITY, with: toOracleResource(host.did) };
  const invocation = user.delegate({ capabilities: [capability], ttlSeconds: 300 });
  return user.request('DELETE', '/me', { body: { invocation } });
};

it('DELETE /me does not forget files that their storage has not deleted', async () => {
  const user = new TestUser(host);
  await upload(user, 'mine.txt', 'my file');
  await upload(user, 'deleted.txt', 'a file that is deleted before');
  expect(objects.size).toBe(2);
  isAway = true;
  const { files } = (await user.request('GET', '/files')).body;
  expect((await user.request('DELETE', `/files/${files[0].fileId}`)).status).toBe(200);
  const refused = await erase(user);
  expect(refused).toMatchObject({ status: 503, body: { code: 'store_unavailable' } });
  isAway = false;
  expect(objects.size).toBe(2);
  expect((await erase(user)).status).toBe(200);
  expect(objects.size).toBe(0);
});

it('POST /files that fails because its storage is away keeps no space, and is removed once its storage is back', async () => {
  const user = new TestUser(host);
  isAway = true;
  expect((await postFile(user, 'mine.txt', 'my file')).status).toBe(503);
  expect((await user.request('GET', '/files')).body.usedBytes).toBe(0);
  const logged = host.log.filter(({ owner }) => owner === user.did);
  expect(logged).toMatchObject([{ msg: 'a file is not removed yet; trying again' }]);
  isAway = false;
  const isRemoved = () => deleted.some((path) => path.includes(String(logged[0]?.fileId)));
  await expect.poll(isRemoved, { timeout: 10_000 }).toBe(true);
});

const downloadExport = async (user: TestUser) => {
  const exported = await fetch(`${host.url}/me/export`, { headers: user.headers });
  return Buffer.from(await exported.arrayBuffer());
};

it('POST /me/import fails if a file cannot be stored now, instead of leaving it out', async () => {
  const [user, other] = [new TestUser(host), new TestUser(host)];
  await upload(user, 'kept.txt', 'my file');
  const archive = await downloadExport(user);
  isAway = true;
  expect(await importArchive(other, archive)).toMatchObject({
    status: 'failed',
    error: expect.stringContaining('storage'),
  });
  isAway = false;
  expect((await importArchive(other, archive)).stored).toMatchObject({ files: 1 });
});

it('POST /me/import needs no place of an upload', async () => {
  const [user, other] = [new TestUser(host), new TestUser(host)];
  await upload(user, 'kept.txt', 'my file');
  const archive = await downloadExport(user);
  const open = Array.from({ length: 5 }, () => {
    const headers = { ...other.headers, 'content-type': 'application/octet-stream' };
    const request = httpRequest(`${host.url}/files`, { method: 'POST', headers });
    request.on('error', () => undefined).write('slow');
    return request;
  });
  // One is refused: the others have all places.
  const [refused] = await Promise.race(open.map((request) => once(request, 'response')));
  expect(refused.statusCode).toBe(429);
  expect(await importArchive(other, archive)).toMatchObject({
    status: 'finished',
    refused: 0,
    stored: { files: 1 },
  });
  for (const request of open) request.destroy();
});

it.each(['refuses', 'breaks off', 'does not end'] as const)(
  'GET /files/:fileId answers 503 if the storage %s',
  async (kind) => {
    const user = new TestUser(host);
    const { fileId } = await upload(user, 'mine.txt', `a file that storage ${kind}`);
    fault = kind;
    const reply = await user.request('GET', `/files/${fileId}`);
    fault = undefined;
    expect(reply).toMatchObject({ status: 503, body: { code: 'store_unavailable' } });
  },
);

/** The names of the files in an export, as its manifest lists them. */
async function listUploads(archive: Buffer): Promise<string[]> {
  const path = join(host.dataDir, 'export.zip');
  await writeFile(path, archive);
  const { signal } = new AbortController();
  const reader = await ArchiveReader.open(path, { maxBytes: 1e9, signal });
  const { files } = JSON.parse(String(await reader.readSmall(MANIFEST))) as Manifest;
  reader.close();
  return files.flatMap((file) => parseUploadPath(file.path)?.name ?? []);
}

it('GET /me/export leaves out files that are deleted meanwhile, and contains all others once', async () => {
  const user = new TestUser(host);
  const names = Array.from({ length: 105 }, (_, i) => `file-${i}`);
  const ids = new Map<string, string>();
  // Without text, which would be read too.
  for (const [i, name] of names.entries())
    ids.set(name, (await upload(user, name, Buffer.from([0, 1, 2, i]))).fileId);
  const release = Promise.withResolvers<void>();
  reading = release.promise;
  const response = await fetch(`${host.url}/me/export`, { headers: user.headers });
  const archive = response.arrayBuffer();
  await expect.poll(() => waiting).toBe(1);
  await upload(user, 'uploaded meanwhile', Buffer.from([0, 1, 2, 3, 4]));
  // The first one is being read.
  const deleted = ['file-104', 'file-50', 'file-2'];
  for (const name of deleted)
    expect((await user.request('DELETE', `/files/${ids.get(name)}`)).status).toBe(200);
  release.resolve();
  const expected = names.filter((name) => !deleted.includes(name)).toReversed();
  expect(await listUploads(Buffer.from(await archive))).toEqual(expected);
});
