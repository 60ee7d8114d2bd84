import { isUtf8 } from 'node:buffer';

/** The parameters of a query; `URLSearchParams` is one. */
export interface QueryValues {
  readonly size: number;
  forEach(visit: (value: string, key: string) => void): void;
  has(key: string): boolean;
  get(key: string): string | null;
  getAll(key: string): string[];
}

/** More than any query or form has; each takes microseconds. */
const MAX_PAIRS = 10_000;
/** Of a form; the query in an address is shorter. */
const MAX_LENGTH = 64 * 1024;

/** The parameters of a query as Go reads them, and the first error in it. */
export class GoQuery implements QueryValues {
  readonly error: string | undefined;
  private readonly values = new Map<string, string[]>();

  /** Earlier texts come first, such as that of a form before that of the address. */
  constructor(...texts: readonly string[]) {
    const pairs = texts.flatMap((text) => text.split('&', MAX_PAIRS + 1));
    this.error = findExcess(texts, pairs);
    if (this.error !== undefined) return;
    for (const pair of pairs) {
      if (pair === '') continue;
      const problem = this.add(pair);
      this.error ??= problem;
    }
  }

  get size(): number {
    return this.values.size;
  }

  forEach(visit: (value: string, key: string) => void): void {
    for (const [key, values] of this.values) for (const value of values) visit(value, key);
  }

  has(key: string): boolean {
    return this.values.has(key);
  }

  get(key: string): string | null {
    return this.values.get(key)?.[0] ?? null;
  }

  getAll(key: string): string[] {
    return this.values.get(key) ?? [];
  }

  private add(pair: string): string | undefined {
    if (pair.includes(';')) return 'invalid semicolon separator in query';
    const [, name = '', text = ''] = /^([^=]*)=?(.*)$/s.exec(pair) ?? [];
    const [key, value] = [decodePercent(name, 'query'), decodePercent(text, 'query')];
    if (key === undefined || value === undefined) return 'invalid URL escape in the query';
    const known = this.values.get(key);
    if (known) known.push(value);
    else this.values.set(key, [value]);
    return undefined;
  }
}

function findExcess(texts: readonly string[], pairs: readonly string[]): string | undefined {
  const length = texts.reduce((sum, text) => sum + text.length, 0);
  if (length > MAX_LENGTH) return `The form has more than ${MAX_LENGTH} bytes`;
  return pairs.length > MAX_PAIRS ? `The form has more than ${MAX_PAIRS} values` : undefined;
}

const SPECIAL = /[%+\x80-\xff]/;
const BAD_ESCAPE = /%(?![0-9a-f]{2})/i;

/**
 * Decodes a part of a URL, given as the bytes of the request in Latin-1; undefined if an escape is invalid. Bytes that
 * are not UTF-8 become unpaired surrogates, and bytes again in `encodeText`: in Go, a string holds any bytes.
 */
export function decodePercent(text: string, part: 'path' | 'query'): string | undefined {
  if (!SPECIAL.test(text)) return text;
  if (BAD_ESCAPE.test(text)) return undefined;
  const spaced = part === 'query' ? text.replaceAll('+', ' ') : text;
  const latin1 = spaced.replace(/%[0-9a-f]{2}/gi, (escaped) =>
    String.fromCharCode(Number.parseInt(escaped.slice(1), 16)),
  );
  const bytes = Buffer.from(latin1, 'latin1');
  return isUtf8(bytes) ? bytes.toString() : decodeInvalid(bytes);
}

const ESCAPED_FROM = 0xdc00;
const MAX_SEQUENCE = 4;

function decodeInvalid(bytes: Buffer): string {
  let text = '';
  for (let at = 0; at < bytes.length; ) {
    const length = findSequence(bytes, at);
    text +=
      length === 0
        ? String.fromCharCode(ESCAPED_FROM + (bytes[at] as number))
        : bytes.toString('utf8', at, at + length);
    at += Math.max(1, length);
  }
  return text;
}

/** The length of the character that begins here; 0 if there is none. */
function findSequence(bytes: Buffer, at: number): number {
  for (let length = 1; length <= MAX_SEQUENCE && at + length <= bytes.length; length += 1) {
    if (isUtf8(bytes.subarray(at, at + length))) return length;
  }
  return 0;
}

/** Encodes text as UTF-8, except for bytes that were not UTF-8 when they were decoded. */
export function encodeText(text: string): Uint8Array {
  if (text.isWellFormed()) return Buffer.from(text);
  const pieces = [...text].map((character) => {
    const code = character.codePointAt(0) as number;
    const isByte = code >= ESCAPED_FROM + 0x80 && code <= ESCAPED_FROM + 0xff;
    return isByte ? Buffer.from([code - ESCAPED_FROM]) : Buffer.from(character);
  });
  return Buffer.concat(pieces);
}

/** Where a node redirects: paths with empty, `.` and `..` segments, whether escaped or not. */
const UNCLEAN = /\/\/|\/\.|%2[ef]/i;

/** The address a node redirects to, since its path is not in canonical form; undefined if it is. */
export function findRedirect(path: string, query: string): string | undefined {
  if (!UNCLEAN.test(path)) return undefined;
  const decoded = decodePercent(path, 'path');
  if (decoded === undefined) return undefined;
  const clean = cleanPath(decoded);
  if (clean === decoded) return undefined;
  return escapePath(clean) + (query === '' ? '' : `?${query}`);
}

function cleanPath(path: string): string {
  const segments: string[] = [];
  for (const segment of path.split('/')) {
    if (segment === '..') segments.pop();
    else if (segment !== '' && segment !== '.') segments.push(segment);
  }
  const isFolder = path.endsWith('/') && segments.length > 0;
  return `/${segments.join('/')}${isFolder ? '/' : ''}`;
}

/** Escapes what Go escapes in a path. */
function escapePath(path: string): string {
  const latin1 = Buffer.from(encodeText(path)).toString('latin1');
  return latin1.replace(/[^A-Za-z0-9\-_.~$&+,/:;=@]/g, (letter) => {
    const hex = letter.charCodeAt(0).toString(16).toUpperCase();
    return `%${hex.padStart(2, '0')}`;
  });
}
