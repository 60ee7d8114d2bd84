import { expect, it } from 'vitest';
import { createDocx } from '../../test/support/documents.js';
import { ReaderProcess } from './reader-process.js';

/** Reads a document with one paragraph. */
async function readParagraph(paragraph: string, maxCharacters: number) {
  const bytes = new Uint8Array(createDocx([paragraph]));
  const stored: string[] = [];
  const reader = new ReaderProcess();
  const outcome = await reader.read({
    job: { kind: 'docx', size: bytes.length, maxCharacters, maxBytes: 1024 ** 2 },
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
  const { outcome, length } = await readParagraph('x'.repeat(100_000), 30_000);
  expect(outcome).toMatchObject({ type: 'done', isComplete: false });
  expect(length).toBe(30_000);
});

it('ReaderProcess reads a paragraph below the limit as a whole', async () => {
  const { outcome, length } = await readParagraph('x'.repeat(29_999), 30_000);
  expect(outcome).toMatchObject({ type: 'done', isComplete: true });
  expect(length).toBe(29_999);
});
