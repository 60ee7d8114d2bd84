import { readFileSync } from 'node:fs';
import { mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { crc32, deflateRaw } from 'node:zlib';
import { zipSync } from 'fflate';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { scale } from '../../../scripts/test-scale.ts';
import { createDocx, createPdf, createXlsx } from './support/documents.js';
import { type HostProcess, runHost, untilListening } from './support/process.js';
import { postFile, upload, uploadText, waitForText } from './support/upload.js';
import { TestUser } from './support/user.js';

const MB = 1024 ** 2;
/** How much the memory of the host itself may grow. */
const MAX_GROWTH = 150 * MB;
/** Processor time for which the host may do nothing else; with other load on the machine, everything takes longer. */
const MAX_BLOCK_MS = scale(50, 200);
const REPORT = fileURLToPath(new URL('support/report-blocks.ts', import.meta.url));

describe('hostile and large files', () => {
  let dataDir: string;
  let running: HostProcess;
  let target: { url: string; did: string };
  let mallory: TestUser;
  let watch: HostWatch;
  beforeAll(async () => {
    dataDir = await mkdtemp(join(tmpdir(), 'sibyl-files-'));
    const limits = { RATE_LIMIT_PER_MINUTE: '1000000', RATE_LIMIT_ANONYMOUS_PER_MINUTE: '1000000' };
    const env = { PORT: '0', DATA_DIR: dataDir, MODEL: 'offline', ...limits };
    running = runHost(env, ['--import', REPORT]);
    const url = await untilListening(running);
    const { did } = await (await fetch(`${url}/.well-known/oracle.json`)).json();
    target = { url, did };
    mallory = new TestUser(target);
    // The baseline includes what the first upload loads.
    await uploadText(mallory, 'first.txt', 'the first file');
    await readLongestBlock();
    watch = new HostWatch(running.child.pid ?? 0, new TestUser(target));
  });
  afterAll(async () => {
    await watch?.stop();
    running?.child.kill('SIGTERM');
    await running?.ended;
    await rm(dataDir, { recursive: true, force: true });
  });

  /** Since it was last read. */
  async function readLongestBlock(): Promise<number> {
    const read = () => running.output().match(/blocked: .*/g) ?? [];
    const before = read().length;
    running.child.kill('SIGUSR2');
    await vi.waitUntil(() => read().length > before, { timeout: 60_000 });
    return Number(read().at(-1)?.slice('blocked: '.length));
  }

  afterEach(async () => {
    expect(await readLongestBlock()).toBeLessThan(MAX_BLOCK_MS);
  });

  const expectFailure = async (name: string, bytes: Uint8Array, error: RegExp) => {
    const { text } = await uploadText(mallory, name, bytes);
    expect([name, text]).toMatchObject([
      name,
      { status: 'failed', error: expect.stringMatching(error) },
    ]);
  };

  it('a zip bomb in DOCX and XLSX is refused, also one that lies about its size', async () => {
    const zeros = await createBomb(scale(1000, 300) * MB);
    await expectFailure('bomb.docx', zeros, /unpacks to more/);
    const workbook = await createBomb(scale(1000, 300) * MB + MB * 2);
    await expectFailure('bomb.xlsx', workbook, /unpacks to more/);
    await expectFailure(
      'liar.docx',
      claimSmall(await createBomb(scale(1600, 1200) * MB)),
      /memory|cannot be read/,
    );
  });

  it('an XML bomb does not expand', async () => {
    const entities = Array.from(
      { length: 12 },
      (_, i) => `<!ENTITY e${i + 1} "${`&e${i};`.repeat(10)}">`,
    );
    const bomb = `<?xml version="1.0"?><!DOCTYPE x [<!ENTITY e0 "boom">${entities.join('')}]>`;
    const word = 'http://schemas.openxmlformats.org/wordprocessingml/2006/main';
    const document = `${bomb}<w:document xmlns:w="${word}"><w:body><w:p><w:r><w:t>start &e12;</w:t></w:r></w:p></w:body></w:document>`;
    const { text } = await uploadText(mallory, 'bomb.docx', createDocx([], { document }));
    expect(text.status === 'failed' || (text.count ?? 0) < 10).toBe(true);
    const plain = await uploadText(mallory, 'bomb.xml', `${bomb}<x>&e12;</x>`);
    expect(plain.text).toMatchObject({ status: 'ready', count: expect.any(Number) });
  });

  it('a long document is read, and a large PDF costs little memory', async () => {
    const pages = Array.from(
      { length: scale(5000, 1000) },
      (_, i) => `This is page ${i + 1} of many.`,
    );
    const long = await uploadText(mallory, 'long.pdf', createPdf(pages));
    expect(long.text).toMatchObject({ status: 'ready', count: pages.length });
    const large = createPdf(['The only page with text.'], scale(199, 60) * MB);
    const file = await uploadText(mallory, 'large.pdf', large);
    expect(file.text).toMatchObject({ status: 'ready', count: 1 });
    const reply = await fetch(`${target.url}/files/${file.fileId}`, { headers: mallory.headers });
    let length = 0;
    for await (const chunk of reply.body ?? []) length += chunk.length;
    expect(length).toBe(large.length);
    await mallory.request('DELETE', `/files/${file.fileId}`);
  });

  it('the long name of a sheet is not stored with every passage', async () => {
    const before = await measureFolder(dataDir);
    const rows = Array.from({ length: 300 }, () => ['word '.repeat(240)]);
    const workbook = createXlsx({ ['N'.repeat(2 * MB)]: rows });
    const { text } = await uploadText(mallory, 'name.xlsx', workbook);
    expect(text).toMatchObject({ status: 'ready', isComplete: true });
    expect((await measureFolder(dataDir)) - before).toBeLessThan(50 * MB);
  });

  it('a large PDF with a wrong index is not held in memory by the host', async () => {
    const junk = Buffer.alloc(190 * MB, `${'junk '.repeat(200)}\n`);
    const parts = ['%PDF-1.7\n', junk, '\nstartxref\n5\n%%EOF\n'];
    await expectFailure('wrong.pdf', Buffer.concat(parts.map((part) => Buffer.from(part))), /./);
  });

  it('documents of the wrong type fail with a reason', async () => {
    await expectFailure('not.pdf', Buffer.from('%PDF-1.4 but nothing else'), /./);
    await expectFailure('not.docx', zipSync({ 'a.txt': Buffer.from('x') }), /cannot be read/);
    await expectFailure('not.xlsx', zipSync({ 'b.txt': Buffer.from('y') }), /cannot be read/);
    const tooLarge = await postFile(mallory, 'huge.bin', endless(scale(210, 210) * MB));
    expect(tooLarge).toMatchObject({ status: 413, body: { code: 'file_too_large' } });
  });

  it('many small files of one user do not delay those of another', {
    timeout: scale(900_000, 120_000),
  }, async () => {
    const many = scale(10_000, 300);
    const names = Array.from({ length: many }, (_, i) => `small file ${i}`);
    const sending = Array.from({ length: 3 }, async () => {
      for (let name = names.pop(); name; name = names.pop()) await upload(mallory, name, name);
    });
    const bob = new TestUser(target);
    await expect.poll(() => names.length).toBeLessThan(many - 50);
    const other = await upload(bob, 'other.txt', 'read me soon');
    expect(await waitForText(bob, other)).toMatchObject({ status: 'ready' });
    expect(await countPending(mallory)).toBeGreaterThan(0);
    await Promise.all(sending);
    const { body } = await mallory.request('GET', '/files?limit=1');
    expect(body.total).toBeGreaterThanOrEqual(many);
  });

  it('meanwhile the host stayed small and answered others', async () => {
    const { growth, slowest, answers } = await watch.stop();
    expect(growth).toBeLessThan(MAX_GROWTH);
    expect(answers).toBeGreaterThan(10);
    // Generous, because the machine is shared; the host answers in milliseconds.
    expect(slowest).toBeLessThan(10_000);
  });
});

async function measureFolder(path: string): Promise<number> {
  const names = await readdir(path);
  const sizes = await Promise.all(names.map(async (name) => (await stat(join(path, name))).size));
  return sizes.reduce((sum, size) => sum + size, 0);
}

async function countPending(user: TestUser): Promise<number> {
  const { body } = await user.request('GET', '/files?limit=100');
  return body.files.filter(({ text }: { text: { status: string } }) => text.status === 'pending')
    .length;
}

/** Observes a host process as another user, until it is stopped. */
class HostWatch {
  private readonly baseline: number;
  private peak = 0;
  private slowest = 0;
  private answers = 0;
  private isStopped = false;
  private readonly work: Promise<void>;

  constructor(
    private readonly pid: number,
    private readonly user: TestUser,
  ) {
    this.baseline = this.readMemory();
    this.work = this.run();
  }

  async stop() {
    this.isStopped = true;
    await this.work;
    return { growth: this.peak - this.baseline, slowest: this.slowest, answers: this.answers };
  }

  private async run(): Promise<void> {
    while (!this.isStopped) {
      const askedAt = performance.now();
      const { status } = await this.user.request('GET', '/sessions');
      this.slowest = Math.max(this.slowest, performance.now() - askedAt);
      this.answers += status === 200 ? 1 : 0;
      this.peak = Math.max(this.peak, this.readMemory());
      await sleep(100);
    }
  }

  private readMemory(): number {
    const [, pages] = readFileSync(`/proc/${this.pid}/statm`, 'utf8').split(' ');
    return Number(pages) * 4096;
  }
}

/** A zip file with this many zeros, in entries of Word and Excel. */
async function createBomb(bytes: number): Promise<Buffer> {
  const zeros = Buffer.alloc(bytes / 2);
  const deflate = promisify(deflateRaw);
  const types = Buffer.from('<Types/>');
  const packed = {
    data: await deflate(zeros, { level: 1 }),
    crc: crc32(zeros),
    size: zeros.length,
  };
  const entries = [
    {
      name: '[Content_Types].xml',
      data: await deflate(types),
      crc: crc32(types),
      size: types.length,
    },
    { name: 'word/document.xml', ...packed },
    { name: 'xl/workbook.xml', ...packed },
  ];
  let at = 0;
  const parts = entries.map(({ name, data, crc, size }) => {
    const fields = Buffer.alloc(26);
    fields.writeUInt16LE(20, 0);
    fields.writeUInt16LE(8, 4);
    fields.writeUInt32LE(crc, 10);
    fields.writeUInt32LE(data.length, 14);
    fields.writeUInt32LE(size, 18);
    fields.writeUInt16LE(name.length, 22);
    const local = Buffer.concat([Buffer.from('PK\u0003\u0004'), fields, Buffer.from(name), data]);
    const directory = Buffer.alloc(14);
    directory.writeUInt32LE(at, 10);
    at += local.length;
    const version = Buffer.from([20, 0]);
    const central = [Buffer.from('PK\u0001\u0002'), version, fields, directory];
    return { local, central: Buffer.concat([...central, Buffer.from(name)]) };
  });
  const locals = Buffer.concat(parts.map(({ local }) => local));
  const centrals = Buffer.concat(parts.map(({ central }) => central));
  const end = Buffer.alloc(18);
  end.writeUInt16LE(entries.length, 4);
  end.writeUInt16LE(entries.length, 6);
  end.writeUInt32LE(centrals.length, 8);
  end.writeUInt32LE(locals.length, 12);
  return Buffer.concat([locals, centrals, Buffer.from('PK\u0005\u0006'), end]);
}

/** Replaces the unpacked sizes in the directory of a zip file. */
function claimSmall(zip: Buffer): Buffer {
  const header = Buffer.from('PK\u0001\u0002', 'latin1');
  for (let at = zip.indexOf(header); at >= 0; at = zip.indexOf(header, at + 4))
    zip.writeUInt32LE(1000, at + 24);
  return zip;
}

function endless(bytes: number): ReadableStream<Uint8Array> {
  let left = bytes;
  return new ReadableStream({
    pull: (controller) => {
      controller.enqueue(Buffer.alloc(MB, left % 251));
      left -= MB;
      if (left <= 0) controller.close();
    },
  });
}
