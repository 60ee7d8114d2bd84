const TEXT_TYPES = new Set([
  'application/json',
  'application/ld+json',
  'application/xml',
  'application/yaml',
  'application/x-yaml',
  'application/toml',
  'application/csv',
  'application/javascript',
  'application/x-ndjson',
]);

const ascii = (text: string) => Buffer.from(text, 'latin1');

/** How files of these types begin; each entry is one way, bytes at an offset. */
const MAGIC: Readonly<Record<string, readonly (readonly [number, Buffer])[][]>> = {
  'application/pdf': [[[0, ascii('%PDF-')]]],
  'image/png': [[[0, ascii('\x89PNG\r\n\x1a\n')]]],
  'image/jpeg': [[[0, ascii('\xff\xd8\xff')]]],
  'image/gif': [[[0, ascii('GIF87a')]], [[0, ascii('GIF89a')]]],
  'image/webp': [
    [
      [0, ascii('RIFF')],
      [8, ascii('WEBP')],
    ],
  ],
};

export type FileKind = 'text' | 'pdf' | 'image';

/** What can be done with a file of the claimed type; throws if its bytes are of another, or of none we read. */
export function fileKind(mimetype: string, bytes: Uint8Array): FileKind {
  const type = mimetype.toLowerCase().split(';', 1)[0]?.trim() ?? '';
  const magic = MAGIC[type];
  if (magic) {
    if (!magic.some((way) => way.every(([at, start]) => startsAt(bytes, at, start)))) {
      throw new Error(`it is not what it claims to be (${type})`);
    }
    return type === 'application/pdf' ? 'pdf' : 'image';
  }
  if (!type.startsWith('text/') && !TEXT_TYPES.has(type)) {
    throw new Error(`files of type ${type} cannot be read`);
  }
  if (bytes.subarray(0, 8192).includes(0))
    throw new Error('it is not text, though it claims to be');
  return 'text';
}

function startsAt(bytes: Uint8Array, at: number, start: Buffer): boolean {
  return Buffer.from(bytes.subarray(at, at + start.length)).equals(start);
}
