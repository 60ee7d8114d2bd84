import { expect, it } from 'vitest';
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
