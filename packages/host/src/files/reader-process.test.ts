import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it, onTestFinished } from 'vitest';
import { createDocx } from '../../test/support/documents.js';
import { ReaderProcess } from './reader-process.js';

/** Reads a document with one paragraph. */
async function readParagraph(
  paragraph: string,
  { maxCharacters = 30_000, maxTextBytes = 1024 ** 2 } = {},
) {
  const bytes = new Uint8Array(createDocx([paragraph]));
  const stored: string[] = [];
  const reader = new ReaderProcess();
  const outcome = await reader.read({
    job: {
      kind: 'docx',
      size: bytes.length,
      maxCharacters,
      maxTextBytes,
      maxBytes: 1024 ** 2,
    },
    readBytes: async (start, end) => bytes.slice(start, end),
    store: async (passages) => {
      stored.push(...passages.map(({ text }) => text));
      return true;
    },
  });
  reader.kill();
  return { outcome, length: stored.join('').length };
}

it('ReaderProcess ends at the limit of characters within a paragraph', async () => {
  const { outcome, length } = await readParagraph('x'.repeat(100_000));
  expect(outcome).toMatchObject({ type: 'done', isComplete: false });
  expect(length).toBe(30_000);
});

it('ReaderProcess reads a paragraph below the limit as a whole', async () => {
  const { outcome, length } = await readParagraph('x'.repeat(29_999));
  expect(outcome).toMatchObject({ type: 'done', isComplete: true });
  expect(length).toBe(29_999);
});

it('ReaderProcess ends at the limit of bytes, with whole characters', async () => {
  const { outcome, length } = await readParagraph('語'.repeat(20_000), { maxTextBytes: 10_000 });
  expect(outcome).toMatchObject({ type: 'done', isComplete: false });
  expect(length).toBe(3_333);
  const { outcome: full } = await readParagraph('語', { maxTextBytes: -1 });
  expect(full).toMatchObject({ type: 'failed', error: expect.stringContaining('no room') });
});

it('ReaderProcess reads no files but its own code, so not the key of the oracle', async () => {
  const dataDir = await mkdtemp(join(tmpdir(), 'sibyl-key-'));
  onTestFinished(() => rm(dataDir, { recursive: true }));
  const key = join(dataDir, 'oracle.key');
  await writeFile(key, 'secret');
  const program = fileURLToPath(new URL('../../test/support/file-thief.ts', import.meta.url));
  const steal = async (path: string) => {
    const reader = new ReaderProcess(program);
    const job = { kind: path, size: 1, maxCharacters: 1, maxTextBytes: 1, maxBytes: 1 };
    const outcome = await reader.read({
      job: job as never,
      readBytes: async () => new Uint8Array(),
      store: async () => true,
    });
    return outcome.type === 'failed' ? outcome.error : outcome.type;
  };
  expect(await steal(key)).toBe('ERR_ACCESS_DENIED');
  expect(await steal('/proc/self/environ')).toBe('ERR_ACCESS_DENIED');
  expect(await steal(program)).toContain('In place of');
});
