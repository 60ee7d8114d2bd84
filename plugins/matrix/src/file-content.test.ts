import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { tinyPdf } from '../test/support/tiny-pdf.js';
import { DECODED_BYTES, detectContent, readPdf } from './file-content.js';

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

describe('detectContent', () => {
  const readText = (bytes: Buffer, type = 'application/octet-stream') => {
    const content = detectContent(type, bytes);
    return content.kind === 'text' ? content.text : content.kind;
  };
  const german = 'Größe;Straße\r\nÄpfel für 5 €;über';

  it.each([
    ['UTF-8', Buffer.from(german)],
    ['UTF-8 with a mark', Buffer.from(`\uFEFF${german}`)],
    ['UTF-16 with a mark', Buffer.from(`\uFEFF${german}`, 'utf16le')],
    ['UTF-16 without a mark', Buffer.from(german, 'utf16le')],
    ['UTF-16, big endian', Buffer.from(`\uFEFF${german}`, 'utf16le').swap16()],
  ])('reads %s', (_, bytes) => {
    expect(readText(bytes)).toBe(german);
    expect(readText(bytes, 'text/csv')).toBe(german);
  });

  it.each([
    ['windows-1252', 'Gr\xf6\xdfe;Stra\xdfe;\x80 5', 'Größe;Straße;€ 5'],
    ['windows-1251', '\xcf\xf0\xe8\xe2\xe5\xf2', 'Привет'],
    ['shift_jis', '\x82\xb1\x82\xf1\x82\xc9\x82\xbf\x82\xcd', 'こんにちは'],
  ])('reads text in the charset that its type names: %s', (charset, bytes, expected) => {
    expect(readText(Buffer.from(bytes, 'latin1'), `text/plain; charset="${charset}"`)).toBe(
      expected,
    );
  });

  it('recognizes a charset that is not named', () => {
    const words = 'Съешь же ещё этих мягких французских булок, да выпей чаю. '.repeat(5);
    const table = new Map(
      Array.from({ length: 128 }, (_, i) => [
        new TextDecoder('windows-1251').decode(new Uint8Array([i + 128])),
        i + 128,
      ]),
    );
    const bytes = Buffer.from([...words].map((c) => table.get(c) ?? c.charCodeAt(0)));
    expect(readText(bytes)).toBe(words);
  });

  it('decodes only the beginning of a long file, even within a character', () => {
    const decode = vi.spyOn(TextDecoder.prototype, 'decode');
    onTestFinished(() => decode.mockRestore());
    const latin = Buffer.alloc(5_000_000, 'Gr\xf6\xdfe; ', 'latin1');
    const content = detectContent('text/csv', latin);
    expect(content).toMatchObject({ kind: 'text', decodedBytes: DECODED_BYTES });
    expect(readText(Buffer.from(`x${'ö'.repeat(200_000)}`))).toMatch(/^xö+$/);
    const lengths = decode.mock.calls.map(([bytes]) => bytes?.byteLength ?? 0);
    expect(Math.max(...lengths)).toBe(DECODED_BYTES);
  });

  it('does not trust a charset that does not fit', () => {
    expect(readText(Buffer.from(german), 'text/plain; charset=shift_jis')).toContain('5');
    expect(readText(Buffer.from(german), 'text/plain; charset=nonsense')).toBe(german);
  });

  it.each([
    ['image/jpg', '\xff\xd8\xff', 'image'],
    ['application/octet-stream', '%PDF-1.4', 'pdf'],
    ['text/plain', 'GIF89a', 'image'],
  ])('finds the type by the bytes, not by %s', (type, bytes, kind) => {
    expect(detectContent(type, Buffer.from(bytes, 'latin1')).kind).toBe(kind);
  });

  it.each([
    ['text/plain', '\x01\x00\x02\x00'],
    ['application/x-msdownload', 'MZ\0\x03'],
    ['application/zip', 'PK\x03\x04\x14\x00\x06\x00'],
    ['image/png', 'not an image'],
    ['application/pdf', 'not a PDF'],
  ])('refuses other types: %s', (type, bytes) => {
    expect(() => detectContent(type, Buffer.from(bytes, 'latin1'))).toThrow();
  });

  it('reads an empty file', () => {
    expect(readText(Buffer.alloc(0), 'text/plain')).toBe('');
  });
});
