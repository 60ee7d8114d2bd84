// Stores files of a real host in moto, an S3-compatible server: bytes, ranges, deletion and an outage of the storage.
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { MAIN } from './build.ts';
import {
  type CheckContext,
  createUser,
  getVenv,
  runCheck,
  startForeign,
  startService,
} from './third-party.ts';

const MOTO = { name: 'moto', version: '5.2.5', extras: ['server', 's3'] };
const CREDENTIALS = { accessKeyId: 'key', secretAccessKey: 'secret/with+signs' };

process.exitCode = await runCheck('moto', MOTO, async (context) => {
  await checkStorage(context);
  console.log('moto: files are stored, read in ranges and deleted; an outage is a 503');
});

async function checkStorage(context: CheckContext): Promise<void> {
  const moto = await startForeign(context, {
    command: `${getVenv(MOTO)}/bin/moto_server`,
    args: (port) => ['-H', '127.0.0.1', '-p', `${port}`],
    path: '/moto-api/',
  });
  assert.equal((await fetch(`${moto.url}/files`, { method: 'PUT' })).status, 200);
  const listKeys = async () => {
    const listed = await (await fetch(`${moto.url}/files?list-type=2`)).text();
    return [...listed.matchAll(/<Key>(.*?)<\/Key>/g)].map(([, key]) => key);
  };
  const { url, headers } = await startHost(context, moto.url);
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

async function startHost({ folder, started }: CheckContext, storage: string) {
  const address = new URL(`${storage}/files/prefix?region=eu-central-1`);
  address.username = CREDENTIALS.accessKeyId;
  address.password = encodeURIComponent(CREDENTIALS.secretAccessKey);
  const env = { PORT: '0', DATA_DIR: folder, MODEL: 'offline', FILES_URL: address.href };
  const host = await startService([MAIN], env);
  started.push(() => host.stop());
  const { headers } = await createUser(host.url);
  return { url: host.url, headers };
}
