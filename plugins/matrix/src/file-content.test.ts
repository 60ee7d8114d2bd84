import { describe, expect, it } from 'vitest';
import { tinyPdf } from '../test/support/tiny-pdf.js';
import { readPdf } from './file-content.js';

const signal = new AbortController().signal;

describe('readPdf', () => {
  it('reads the text of a PDF', async () => {
    await expect(readPdf(tinyPdf('Hello there'), 1000, signal)).resolves.toMatchObject({
      text: expect.stringContaining('Hello there'),
    });
  });

  it('says that a broken one cannot be read', async () => {
    await expect(readPdf(Buffer.from('%PDF-1.4 rubbish'), 1000, signal)).rejects.toThrow(
      /cannot be read/,
    );
  });

  it('stops when the turn does', async () => {
    await expect(readPdf(tinyPdf('x'), 1000, AbortSignal.abort())).rejects.toThrow(/too long/);
  });
});
