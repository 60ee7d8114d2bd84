// How fast files arrive, are read and leave, compared with a bare server that keeps the bytes in a file of the same disk.
import { once } from 'node:events';
import { createReadStream, createWriteStream, mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { createPdf } from '../packages/host/test/support/documents.ts';
import {
  describeMachine,
  type Figure,
  formatFigures,
  median,
  reportFigures,
} from './support/figures.ts';
import { mintTokens, type ServerProcess, startServer } from './support/server-process.ts';

const MB = 1024 ** 2;
const ROUNDS = 5;
const FILE_MB = 50;
const PAGES = 700;
const TEXT_MB = 5;

async function main(): Promise<void> {
  const dataDir = mkdtempSync(join(tmpdir(), 'sibyl-files-'));
  const host = await startServer(new URL('./servers/host.ts', import.meta.url), {
    env: { PORT: '0', DATA_DIR: dataDir, MODEL: 'offline', LOG_LEVEL: 'warn' },
  });
  const bare = await startBareServer(join(dataDir, 'bare'));
  try {
    const figures = [...(await measureTransfers(host, bare.url)), ...(await measureReading(host))];
    console.log(`${formatFigures('files', figures)}\n\nMeasured on ${describeMachine()}.`);
    await reportFigures(figures);
  } finally {
    bare.server.close();
    await host.stop();
    rmSync(dataDir, { recursive: true, force: true });
  }
}

async function startBareServer(path: string): Promise<{ server: Server; url: string }> {
  const server = createServer((request, response) => {
    const [from, to] =
      request.method === 'POST'
        ? [request, createWriteStream(path, { flush: true })]
        : [createReadStream(path), response];
    pipeline(from, to).then(
      () => response.end(),
      () => response.destroy(),
    );
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return { server, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
}

/** Megabytes per second of a file that has no text. */
async function measureTransfers(host: ServerProcess, bareUrl: string): Promise<Figure[]> {
  const user = openUser(host);
  const speeds = { upload: [] as number[], download: [] as number[] };
  const bare = { upload: [] as number[], download: [] as number[] };
  for (let round = 0; round <= ROUNDS; round++) {
    // Other bytes in each round, because the same ones would not be stored again.
    const data = Buffer.alloc(FILE_MB * MB, round + 1);
    const id = await timeInto(speeds.upload, () => user.upload('bytes.bin', data));
    await timeInto(speeds.download, () => user.read(`/files/${id}`));
    await timeInto(bare.upload, () => fetch(bareUrl, { method: 'POST', body: data }));
    await timeInto(bare.download, async () => (await fetch(bareUrl)).arrayBuffer());
  }
  return (['upload', 'download'] as const).map((name) => {
    // The first round only warms up.
    const [own, other] = [speeds[name].slice(1), bare[name].slice(1)];
    return {
      name: `${name} of ${FILE_MB} MB`,
      ours: `${median(own).toFixed(0)} MB/s`,
      beside: `node:http and a file: ${median(other).toFixed(0)} MB/s`,
      ratio: median(own.map((speed, i) => speed / (other[i] as number))),
    };
  });
}

async function timeInto<T>(speeds: number[], transfer: () => Promise<T>): Promise<T> {
  const started = performance.now();
  const result = await transfer();
  speeds.push((FILE_MB * 1000) / (performance.now() - started));
  return result;
}

/** From the upload of a document to the moment when it can be searched. */
async function measureReading(host: ServerProcess): Promise<Figure[]> {
  const sentence = 'The harbor of the old town is open for small boats until sunset. ';
  const pages = Array.from({ length: PAGES }, (_, i) => `Page ${i + 1}. ${sentence.repeat(30)}`);
  const text = Buffer.from(sentence.repeat((TEXT_MB * MB) / sentence.length));
  const documents = [
    { name: `PDF of ${PAGES} pages`, file: 'report.pdf', data: createPdf(pages) },
    { name: `text of ${TEXT_MB} MB`, file: 'notes.txt', data: text },
  ];
  const figures: Figure[] = [];
  for (const { name, file, data } of documents) {
    const user = openUser(host);
    const started = performance.now();
    const id = await user.upload(file, data);
    for (;;) {
      const { status } = JSON.parse((await user.read(`/files/${id}/info`)).toString()).text;
      if (status === 'ready') break;
      if (status !== 'pending') throw new Error(`${name} is ${status}`);
      await sleep(20);
    }
    const seconds = (performance.now() - started) / 1000;
    figures.push({ name: `${name}: upload to searchable`, ours: `${seconds.toFixed(1)} s` });
  }
  return figures;
}

/** A new user of the host. */
function openUser({ url, did = '' }: ServerProcess) {
  const [token] = mintTokens(1, did);
  const headers = { authorization: `Bearer ${token}`, 'x-auth-type': 'ucan' };
  const request = async (path: string, options: RequestInit = {}) => {
    const response = await fetch(url + path, { ...options, headers });
    const body = Buffer.from(await response.arrayBuffer());
    if (response.ok) return body;
    throw new Error(`${path}: ${response.status} ${body}`);
  };
  return {
    read: (path: string) => request(path),
    async upload(name: string, data: Buffer): Promise<string> {
      const options = { method: 'POST', body: new Uint8Array(data) };
      return JSON.parse((await request(`/files?name=${name}`, options)).toString()).fileId;
    },
  };
}

await main();
