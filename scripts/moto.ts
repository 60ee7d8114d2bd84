// Stores files of a real host in moto, an S3-compatible server: bytes, ranges, deletion and an outage of the storage.
// Exit codes: 0 passed, 1 failed, 77 skipped with the reason on the last line.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { buildIfChanged, MAIN } from './build.ts';
import { getVenv, installPython, SKIPPED, startService } from './third-party.ts';

const MOTO = { name: 'moto', version: '5.2.5', extras: ['server', 's3'] };
const START_TIMEOUT_MS = 60_000;
const CREDENTIALS = { accessKeyId: 'key', secretAccessKey: 'secret/with+signs' };

process.exitCode = await main();

async function main(): Promise<number> {
  const reason = installPython(MOTO);
  if (reason) {
    console.log(`moto skipped: ${reason}`);
    return SKIPPED;
  }
  const failure = await buildIfChanged();
  if (failure) return failure;
  const started: (() => unknown)[] = [];
  try {
    await checkStorage(started);
    console.log('moto: files are stored, read in ranges and deleted; an outage is a 503');
    return 0;
  } catch (error) {
    console.log(error);
    return 1;
  } finally {
    for (const stop of started.reverse()) await stop();
  }
}

async function checkStorage(started: (() => unknown)[]): Promise<void> {
  const moto = await startMoto(started);
  assert.equal((await fetch(`${moto.url}/files`, { method: 'PUT' })).status, 200);
  const listKeys = async () => {
    const listed = await (await fetch(`${moto.url}/files?list-type=2`)).text();
    return [...listed.matchAll(/<Key>(.*?)<\/Key>/g)].map(([, key]) => key);
  };
  const { url, headers } = await startHost(started, moto.url);
  const bytes = randomBytes(2_500_000);
  const upload = () => fetch(`${url}/files?name=a.bin`, { method: 'POST', headers, body: bytes });
  const file = await (await upload()).json();
  assert.equal(file.size, bytes.length);
  assert.equal((await listKeys()).length, 3);
  const all = await fetch(`${url}/files/${file.fileId}`, { headers });
  assert(Buffer.from(await all.arrayBuffer()).equals(bytes));
  const range = await fetch(`${url}/files/${file.fileId}`, {
    headers: { ...headers, range: 'bytes=1048570-2097160' },
  });
  const part = Buffer.from(await range.arrayBuffer());
  assert(part.equals(bytes.subarray(1_048_570, 2_097_161)));
  assert.equal((await (await upload()).json()).fileId, file.fileId);
  assert.equal((await listKeys()).length, 3, 'the second upload left no objects');
  const deleted = await fetch(`${url}/files/${file.fileId}`, { method: 'DELETE', headers });
  assert.equal(deleted.status, 200);
  assert.deepEqual(await listKeys(), []);
  const kept = await (await upload()).json();
  await moto.stop();
  assert.equal((await fetch(`${url}/files/${kept.fileId}`, { headers })).status, 503);
  assert.equal((await upload()).status, 503);
  assert.equal((await fetch(`${url}/files`, { headers })).status, 200);
}

async function startMoto(started: (() => unknown)[]) {
  const port = await findFreePort();
  const child = spawn(`${getVenv(MOTO)}/bin/moto_server`, ['-H', '127.0.0.1', '-p', `${port}`], {
    stdio: 'ignore',
  });
  const ended = once(child, 'close');
  const stop = async () => {
    child.kill('SIGKILL');
    await ended;
  };
  started.push(stop);
  const url = `http://127.0.0.1:${port}`;
  const deadline = performance.now() + START_TIMEOUT_MS;
  while (performance.now() < deadline) {
    const isUp = await fetch(`${url}/moto-api/`).then(
      ({ ok }) => ok,
      () => false,
    );
    if (isUp) return { url, stop };
    await delay(200);
  }
  throw new Error('moto did not start');
}

async function startHost(started: (() => unknown)[], storage: string) {
  const folder = mkdtempSync(join(tmpdir(), 'sibyl-moto-'));
  started.push(() => rmSync(folder, { recursive: true, force: true }));
  const address = new URL(`${storage}/files/prefix?region=eu-central-1`);
  address.username = CREDENTIALS.accessKeyId;
  address.password = encodeURIComponent(CREDENTIALS.secretAccessKey);
  const env = { PORT: '0', DATA_DIR: folder, MODEL: 'offline', FILES_URL: address.href };
  const host = await startService([MAIN], env);
  started.push(() => host.stop());
  const { generateSigner, mintAuthInvocation } = await import('@sibyl/ucan');
  const { did } = await (await fetch(`${host.url}/.well-known/oracle.json`)).json();
  const minted = mintAuthInvocation({ signer: generateSigner(), audience: did, ttlSeconds: 600 });
  const headers = { authorization: `Bearer ${minted.ok?.token}`, 'x-auth-type': 'ucan' };
  return { url: host.url, headers };
}

async function findFreePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}
