import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { extname, join, relative, sep } from 'node:path';
import { promisify } from 'node:util';
import { brotliCompress, constants } from 'node:zlib';

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
};

/** A tenth more to send than at the highest, which would have the first reader wait for a second. */
const QUALITY = 5;
const compress = promisify(brotliCompress);

/** A file of the page, ready to send. */
export interface PageFile {
  readonly type: string;
  readonly bytes: Buffer;
  /** Compressed for the first who asks, and kept: a start need not wait for it. */
  brotli(): Promise<Buffer>;
  readonly etag: string;
  /** Its name changes with its content, so that a browser may keep it for good. */
  readonly isImmutable: boolean;
}

/** Every file of a folder by its path, read once: no path a caller sends reaches the disk. */
export function readPageFiles(folder: string): ReadonlyMap<string, PageFile> {
  const files = new Map<string, PageFile>();
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const path = join(entry.parentPath, entry.name);
    const name = relative(folder, path).split(sep).join('/');
    files.set(name, pageFile(name, readFileSync(path)));
  }
  return files;
}

function pageFile(name: string, bytes: Buffer): PageFile {
  let compressed: Promise<Buffer> | undefined;
  return {
    type: TYPES[extname(name)] ?? 'application/octet-stream',
    bytes,
    brotli: () => {
      compressed ??= compress(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: QUALITY } });
      return compressed;
    },
    etag: `"${createHash('sha256').update(bytes).digest('base64url').slice(0, 22)}"`,
    isImmutable: name.startsWith('assets/'),
  };
}
