import { describe, expect, it } from 'vitest';
import { tinyPdf } from '../../test/support/tiny-pdf.js';
import { pdfText } from './pdf-text.js';

const patient = new AbortController().signal;

describe('pdfText', () => {
  it('reads the text of a PDF', async () => {
    await expect(pdfText(tinyPdf('Hello there'), patient)).resolves.toContain('Hello there');
  });

  it('says that a broken one cannot be read', async () => {
    await expect(pdfText(Buffer.from('%PDF-1.4 rubbish'), patient)).rejects.toThrow(
      /cannot be read/,
    );
  });

  it('stops when the turn does', async () => {
    await expect(pdfText(tinyPdf('x'), AbortSignal.abort())).rejects.toThrow(/too long/);
  });
});
