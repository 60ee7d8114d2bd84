import { extname } from 'node:path';

const BINARY = 'application/octet-stream';
const WORD = 'application/vnd.openxmlformats-officedocument.wordprocessingml.document';
const EXCEL = 'application/vnd.openxmlformats-officedocument.spreadsheetml.sheet';

/** Types of text, which has no magic bytes, by the extension of its file. */
const TEXT_TYPES: Readonly<Record<string, string>> = {
  '.csv': 'text/csv',
  '.htm': 'text/html',
  '.html': 'text/html',
  '.json': 'application/json',
  '.md': 'text/markdown',
  '.svg': 'image/svg+xml',
  '.xml': 'application/xml',
};

/** Types that are recognized by their name only: to anything else, they are zip files. */
const ZIP_TYPES: Readonly<Record<string, string>> = { '.docx': WORD, '.xlsx': EXCEL };

/** The media type of a file by its first bytes; the name decides only between kinds of text, or of zip files. */
export async function detectType(start: Uint8Array, name: string): Promise<string> {
  const extension = extname(name).toLowerCase();
  const found = await findMagic(start);
  if (found === 'application/zip') return ZIP_TYPES[extension] ?? found;
  if (found !== undefined) return found;
  if (!isText(start)) return BINARY;
  const text = TEXT_TYPES[extension] ?? 'text/plain';
  return text === 'text/plain' && beginsWithHtml(start) ? 'text/html' : text;
}

/** Beyond them, a malicious zip file would only keep the host busy. */
const MAGIC_BYTES = 16 * 1024;

const GZIP = [0x1f, 0x8b, 8];

async function findMagic(start: Uint8Array): Promise<string | undefined> {
  // Otherwise it would be unpacked, and what it contains be identified, which changes nothing.
  if (GZIP.every((byte, i) => start[i] === byte)) return 'application/gzip';
  // Loaded with the first file.
  const { fileTypeFromBuffer } = await import('file-type');
  try {
    return (await fileTypeFromBuffer(start.subarray(0, MAGIC_BYTES)))?.mime;
  } catch {
    // Truncated or malformed: the bytes do not say.
    return undefined;
  }
}

/** Whether bytes are UTF-8, UTF-16 with a mark, or an older encoding of one byte per character. */
function isText(bytes: Uint8Array): boolean {
  const [first, second] = bytes;
  if ((first === 0xff && second === 0xfe) || (first === 0xfe && second === 0xff)) return true;
  let controls = 0;
  for (const byte of bytes) {
    if (byte === 0) return false;
    if (byte < 0x20 && byte !== 0x09 && byte !== 0x0a && byte !== 0x0c && byte !== 0x0d)
      controls += 1;
  }
  return controls <= bytes.length / 100;
}

const beginsWithHtml = (bytes: Uint8Array) =>
  /^\s*<(!doctype\s+html|html)[\s>]/i.test(Buffer.from(bytes.subarray(0, 512)).toString('latin1'));

/** How the text of a file is read; undefined for files without text. */
export type DocumentKind = 'pdf' | 'docx' | 'xlsx' | 'html' | 'text';

export function findDocumentKind(mediaType: string): DocumentKind | undefined {
  switch (mediaType) {
    case 'application/pdf':
      return 'pdf';
    case WORD:
      return 'docx';
    case EXCEL:
      return 'xlsx';
    case 'text/html':
      return 'html';
    case 'application/json':
    case 'application/xml':
    case 'image/svg+xml':
    case 'application/rtf':
      return 'text';
    default:
      return mediaType.startsWith('text/') ? 'text' : undefined;
  }
}

/** Images that models and browsers show. */
export const isImage = (mediaType: string): boolean =>
  /^image\/(png|jpeg|gif|webp)$/.test(mediaType);

/** The type to send a file with: none that a browser would execute. */
export function toSafeType(mediaType: string): string {
  if (isImage(mediaType) || mediaType === 'application/pdf') return mediaType;
  return mediaType === 'text/plain' ? 'text/plain; charset=utf-8' : BINARY;
}

const MAX_NAME_LENGTH = 200;

/** A name without folders, control characters and characters that reverse the direction of text. */
export function cleanName(name: string | undefined): string {
  const base = name?.toWellFormed().split(/[/\\]/).at(-1) ?? '';
  const shown = base.replaceAll(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, '').trim();
  const extension = extname(shown).slice(0, 20);
  const fitting =
    shown.length <= MAX_NAME_LENGTH
      ? shown
      : shown.slice(0, MAX_NAME_LENGTH - extension.length).toWellFormed() + extension;
  return /^\.*$/.test(fitting) ? 'file' : fitting;
}
