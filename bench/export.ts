// Exports a user with 1 GB, or the number of megabytes in the first argument, imports the archive at an empty host and
// compares what both have. Prints how much memory each host needed: npm run bench:export -- 100
import { createHash, randomBytes } from 'node:crypto';
import { createReadStream, createWriteStream, mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { generateSigner, mintAuthInvocation } from '@sibyl/ucan';
import { atMost, type Figure, formatFigures, reportFigures } from './support/figures.ts';
import { type ServerProcess, startServer } from './support/server-process.ts';

const MB = 1024 ** 2;
const LIMITS_MB = { export: 100, import: 200 };
const FILE_MB = 100;
const SESSIONS = 20;
const MESSAGES = 20;
/** Characters of a message. */
const LONG = 100_000;
const MANY = '100000000';

const megabytes = Number(process.argv[2] ?? 1024);
if (!(megabytes > 0)) throw new Error('The first argument is the number of megabytes');

const signer = generateSigner();

async function main(): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'sibyl-export-'));
  const archive = join(directory, 'export.zip');
  const from = await startHost(join(directory, 'from'));
  const to = await startHost(join(directory, 'to'));
  try {
    await fill(from);
    const exporting = await measureMemory(from, () => download(from, archive));
    const importing = await measureMemory(to, () => importArchive(to, archive));
    const [before, after] = [await readContent(from), await readContent(to)];
    const isSame = before.digest === after.digest;
    const archiveMb = Math.round(statSync(archive).size / MB);
    const figures = [
      toFigure(`export of ${archiveMb} MB: memory`, exporting, LIMITS_MB.export),
      toFigure('import at an empty host: memory', importing, LIMITS_MB.import),
      {
        name: `${before.files} files and ${before.messages} messages afterwards`,
        ours: isSame ? 'the same' : 'different',
        target: { isMet: isSame, text: 'the same' },
      },
    ];
    console.log(formatFigures('export', figures));
    await reportFigures(figures);
    if (figures.some(({ target }) => target?.isMet === false)) process.exitCode = 1;
  } finally {
    await from.stop();
    await to.stop();
    rmSync(directory, { recursive: true, force: true });
  }
}

const toFigure = (name: string, megabytes: number, most: number): Figure => ({
  name,
  ours: `${megabytes.toFixed(0)} MB`,
  target: atMost(most, megabytes, ' MB'),
});

function startHost(dataDir: string): Promise<ServerProcess> {
  return startServer(new URL('./servers/host.ts', import.meta.url), {
    env: {
      PORT: '0',
      DATA_DIR: dataDir,
      MODEL: 'offline',
      LOG_LEVEL: 'warn',
      NODE_ENV: 'production',
      IMPORT_LIMIT: '8gb',
      FILES_PER_USER: '8gb',
      TURNS_PER_USER: MANY,
      RATE_LIMIT_PER_MINUTE: MANY,
      RATE_LIMIT_ANONYMOUS_PER_MINUTE: MANY,
    },
  });
}

async function request(
  { url, did = '' }: ServerProcess,
  method: string,
  path: string,
  body?: Readable | Buffer | object,
): Promise<Response> {
  const minted = mintAuthInvocation({ signer, audience: did });
  if (minted.error) throw new Error(minted.error.detail);
  const isBytes = body instanceof Readable || body instanceof Buffer;
  const response = await fetch(url + path, {
    method,
    headers: {
      authorization: `Bearer ${minted.ok.token}`,
      'x-auth-type': 'ucan',
      'content-type': isBytes ? 'application/octet-stream' : 'application/json',
    },
    ...(body && { body: (isBytes ? body : JSON.stringify(body)) as BodyInit, duplex: 'half' }),
  });
  if (!response.ok)
    throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
  return response;
}

/** Long conversations, and files that do not compress. */
async function fill(host: ServerProcess): Promise<void> {
  const text = 'What a long message. '.repeat(LONG / 21);
  for (let i = 0; i < SESSIONS; i++) {
    const { sessionId } = await (await request(host, 'POST', '/sessions', {})).json();
    for (let k = 0; k < MESSAGES; k++)
      await request(host, 'POST', `/messages/${sessionId}`, { message: `${i} ${k} ${text}` });
  }
  for (let left = megabytes; left > 0; left -= FILE_MB) {
    const bytes = randomBytes(Math.min(left, FILE_MB) * MB);
    await request(host, 'POST', `/files?name=${left}.bin`, bytes);
  }
}

/** How much the memory of a host grows during some work, in megabytes. */
async function measureMemory(host: ServerProcess, work: () => Promise<void>): Promise<number> {
  await host.memoryUsage('after-collection');
  const before = host.rssMegabytes();
  let peak = before;
  const timer = setInterval(() => {
    peak = Math.max(peak, host.rssMegabytes());
  }, 50);
  await work();
  clearInterval(timer);
  return Math.max(peak, host.rssMegabytes()) - before;
}

async function download(host: ServerProcess, path: string): Promise<void> {
  const { body } = await request(host, 'GET', '/me/export');
  if (!body) throw new Error('The export is empty');
  await pipeline(Readable.fromWeb(body as never), createWriteStream(path));
}

async function importArchive(host: ServerProcess, path: string): Promise<void> {
  const { id } = await (await request(host, 'POST', '/me/import', createReadStream(path))).json();
  for (;;) {
    const job = await (await request(host, 'GET', `/me/import/${id}`)).json();
    if (job.status === 'finished') return;
    if (job.status !== 'running') throw new Error(`The import failed: ${job.error}`);
    await sleep(200);
  }
}

/** A hash of what a user sees, independent of the order and of new ids of files. */
async function readContent(host: ServerProcess) {
  const parts: string[] = [];
  const { sessions } = await (await request(host, 'GET', '/sessions?limit=100')).json();
  let count = 0;
  for (const { sessionId } of sessions) {
    const { messages } = await (await request(host, 'GET', `/messages/${sessionId}`)).json();
    count += messages.length;
    for (const { type, content } of messages) parts.push(hash(`${type} ${content}`));
  }
  const { files } = await (await request(host, 'GET', '/files?limit=100')).json();
  for (const { fileId, name } of files) {
    const { body } = await request(host, 'GET', `/files/${fileId}`);
    const bytes = createHash('sha256');
    for await (const chunk of body ?? []) bytes.update(chunk);
    parts.push(`${name} ${bytes.digest('hex')}`);
  }
  return { digest: hash(parts.sort().join('\n')), files: files.length, messages: count };
}

const hash = (text: string) => createHash('sha256').update(text).digest('hex');

await main();
