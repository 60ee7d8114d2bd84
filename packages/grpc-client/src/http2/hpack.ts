import { ErrorCode, ProtocolError } from './protocol.js';
import type { HeaderFields } from './transport.js';

/** Default size of the dynamic table. */
const TABLE_BYTES = 4096;
/** Limit on decoded headers: a few bytes can reference a lot of text repeatedly. */
const MAX_FIELD_BYTES = 64 * 1024;
/** Limit on the continuation bytes of an integer. */
const MAX_INTEGER_BYTES = 4;

/** A decoded block, valid until the table changes. */
interface KnownBlock {
  readonly block: Buffer;
  readonly fields: HeaderFields;
}

const MAX_KNOWN = 4;
const MAX_KNOWN_BYTES = 64;

function isEqual(a: Buffer, b: Buffer): boolean {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i += 1) if (a[i] !== b[i]) return false;
  return true;
}

/** Decodes the header blocks of one connection, in order, since each depends on the previous ones (RFC 7541). */
export class HpackDecoder {
  private readonly table = new HeaderTable(TABLE_BYTES);
  private block: Buffer = Buffer.alloc(0);
  private at = 0;
  /** Recent blocks that only reference the table; most replies of a server have the same ones. */
  private known: KnownBlock[] = [];

  decode(block: Buffer): HeaderFields {
    for (const one of this.known) if (isEqual(one.block, block)) return one.fields;
    const before = this.table.changes;
    const fields = this.decodeFields(block);
    if (this.table.changes !== before) this.known = [];
    else if (block.length <= MAX_KNOWN_BYTES) {
      this.known = [{ block: Buffer.from(block), fields }, ...this.known.slice(0, MAX_KNOWN - 1)];
    }
    return fields;
  }

  private decodeFields(block: Buffer): HeaderFields {
    this.block = block;
    this.at = 0;
    const fields = new Map<string, string>();
    let bytes = 0;
    while (this.at < block.length) {
      const field = this.readField();
      if (!field) continue;
      bytes += countBytes(field);
      if (bytes > MAX_FIELD_BYTES) throw tooLarge();
      const known = fields.get(field.name);
      fields.set(field.name, known === undefined ? field.value : `${known}, ${field.value}`);
    }
    return fields;
  }

  /** Reads the next field; undefined for a change of the table size. */
  private readField(): HeaderField | undefined {
    const first = this.block[this.at] ?? 0;
    if (first >= 0x80) return this.table.at(this.readInteger(7));
    if (first >= 0x40) {
      const field = this.readLiteral(6);
      this.table.add(field);
      return field;
    }
    if (first < 0x20) return this.readLiteral(4);
    this.table.resize(this.readInteger(5));
    return undefined;
  }

  private readLiteral(bits: number): HeaderField {
    const index = this.readInteger(bits);
    const name = index === 0 ? this.readString() : this.table.at(index).name;
    return { name, value: this.readString() };
  }

  /** Reads an integer that starts in the low bits of a byte. */
  private readInteger(bits: number): number {
    const max = (1 << bits) - 1;
    let value = this.readByte() & max;
    if (value < max) return value;
    for (let i = 0; i < MAX_INTEGER_BYTES; i++) {
      const byte = this.readByte();
      value += (byte & 0x7f) * 2 ** (7 * i);
      if (byte < 0x80) return value;
    }
    throw new ProtocolError('an integer in a header is too large', ErrorCode.compression);
  }

  private readString(): string {
    const isHuffman = (this.block[this.at] ?? 0) >= 0x80;
    const end = this.readInteger(7) + this.at;
    if (end > this.block.length) throw truncated();
    const bytes = this.block.subarray(this.at, end);
    this.at = end;
    return isHuffman ? decodeHuffman(bytes) : bytes.toString('latin1');
  }

  private readByte(): number {
    const byte = this.block[this.at];
    if (byte === undefined) throw truncated();
    this.at += 1;
    return byte;
  }
}

function truncated(): ProtocolError {
  return new ProtocolError('a header is truncated', ErrorCode.compression);
}

function tooLarge(): ProtocolError {
  const text = `the headers have more than ${MAX_FIELD_BYTES} bytes`;
  return new ProtocolError(text, ErrorCode.enhanceYourCalm);
}

interface HeaderField {
  readonly name: string;
  readonly value: string;
}

/** Overhead of an entry in the table size. */
const ENTRY_BYTES = 32;

/** The static table, in order (RFC 7541, appendix A). */
const STATIC_FIELDS: readonly HeaderField[] = [
  [':authority'],
  [':method', 'GET', 'POST'],
  [':path', '/', '/index.html'],
  [':scheme', 'http', 'https'],
  [':status', '200', '204', '206', '304', '400', '404', '500'],
  ['accept-charset'],
  ['accept-encoding', 'gzip, deflate'],
  ['accept-language'],
  ['accept-ranges'],
  ['accept'],
  ['access-control-allow-origin'],
  ['age'],
  ['allow'],
  ['authorization'],
  ['cache-control'],
  ['content-disposition'],
  ['content-encoding'],
  ['content-language'],
  ['content-length'],
  ['content-location'],
  ['content-range'],
  ['content-type'],
  ['cookie'],
  ['date'],
  ['etag'],
  ['expect'],
  ['expires'],
  ['from'],
  ['host'],
  ['if-match'],
  ['if-modified-since'],
  ['if-none-match'],
  ['if-range'],
  ['if-unmodified-since'],
  ['last-modified'],
  ['link'],
  ['location'],
  ['max-forwards'],
  ['proxy-authenticate'],
  ['proxy-authorization'],
  ['range'],
  ['referer'],
  ['refresh'],
  ['retry-after'],
  ['server'],
  ['set-cookie'],
  ['strict-transport-security'],
  ['transfer-encoding'],
  ['user-agent'],
  ['vary'],
  ['via'],
  ['www-authenticate'],
].flatMap(([name = '', ...values]) =>
  (values.length > 0 ? values : ['']).map((value) => ({ name, value })),
);

/** The fields that header blocks reference by index: the static table, then the dynamic one, newest first. */
class HeaderTable {
  private readonly recent: HeaderField[] = [];
  /** How often the table was changed. */
  changes = 0;
  private bytes = 0;
  private limit: number;

  constructor(private readonly maxBytes: number) {
    this.limit = maxBytes;
  }

  at(index: number): HeaderField {
    const field =
      STATIC_FIELDS[index - 1] ?? this.recent[this.recent.length + STATIC_FIELDS.length - index];
    if (!field)
      throw new ProtocolError('a header references an unknown index', ErrorCode.compression);
    return field;
  }

  add(field: HeaderField): void {
    this.changes += 1;
    this.recent.push(field);
    this.bytes += countBytes(field);
    this.evict();
  }

  resize(limit: number): void {
    if (limit > this.maxBytes) {
      throw new ProtocolError('the header table would exceed its limit', ErrorCode.compression);
    }
    this.changes += 1;
    this.limit = limit;
    this.evict();
  }

  private evict(): void {
    while (this.bytes > this.limit) {
      const oldest = this.recent.shift();
      if (oldest) this.bytes -= countBytes(oldest);
    }
  }
}

function countBytes({ name, value }: HeaderField): number {
  return name.length + value.length + ENTRY_BYTES;
}

/**
 * Symbols by the length of their code in bits, in hexadecimal (RFC 7541, appendix B). The code is canonical: codes ascend
 * with their length, and within a length with the symbol, so lengths alone define it.
 */
const SYMBOLS: Readonly<Record<number, string>> = {
  5: '30-32 61 63 65 69 6f 73 74',
  6: '20 25 2d-2f 33-39 3d 41 5f 62 64 66-68 6c-6e 70 72 75',
  7: '3a 42-57 59 6a 6b 71 76-7a',
  8: '26 2a 2c 3b 58 5a',
  10: '21 22 28 29 3f',
  11: '27 2b 7c',
  12: '23 3e',
  13: '00 24 40 5b 5d 7e',
  14: '5e 7d',
  15: '3c 60 7b',
  19: '5c c3 d0',
  20: '80 82 83 a2 b8 c2 e0 e2',
  21: '99 a1 a7 ac b0 b1 b3 d1 d8 d9 e3 e5 e6',
  22: '81 84-86 88 92 9a 9c a0 a3 a4 a9 aa ad b2 b5 b9-bb bd be c4 c6 e4 e8 e9',
  23: '01 87 89-8d 8f 93 95-98 9b 9d 9e a5 a6 a8 ae af b4 b6 b7 bc bf c5 e7 ef',
  24: '09 8e 90 91 94 9f ab ce d7 e1 ec ed',
  25: 'c7 cf ea eb',
  26: 'c0 c1 c8-ca cd d2 d5 da db ee f0 f2 f3 ff',
  27: 'cb cc d3 d4 d6 dd-df f1 f4-f8 fa-fe',
  28: '02-08 0b 0c 0e-15 17-1f 7f dc f9',
  30: '0a 0d 16 100',
};

const MAX_BITS = 30;
const END_OF_STRING = 256;

/** The codes of one length. */
interface Codes {
  readonly first: number;
  readonly symbols: readonly number[];
}

const CODES: readonly Codes[] = assignCodes();

function assignCodes(): Codes[] {
  let next = 0;
  return Array.from({ length: MAX_BITS + 1 }, (_, bits) => {
    const symbols = (SYMBOLS[bits] ?? '').split(' ').flatMap(parseRange);
    const codes = { first: next, symbols };
    next = (next + symbols.length) * 2;
    return codes;
  });
}

/** Parses `61` or `30-32`. */
function parseRange(range: string): number[] {
  if (range === '') return [];
  const [from = 0, to = from] = range.split('-').map((hex) => Number.parseInt(hex, 16));
  return Array.from({ length: to - from + 1 }, (_, i) => from + i);
}

function decodeHuffman(bytes: Uint8Array): string {
  let text = '';
  let code = 0;
  let bits = 0;
  for (const byte of bytes) {
    for (let place = 7; place >= 0; place--) {
      code = (code << 1) | ((byte >> place) & 1);
      bits += 1;
      const symbol = findSymbol(code, bits);
      if (symbol === undefined) continue;
      text += String.fromCharCode(symbol);
      code = 0;
      bits = 0;
    }
  }
  // The last byte is padded with the start of the end-of-string code, which is all ones.
  if (bits > 7 || code !== (1 << bits) - 1) throw invalidHuffman();
  return text;
}

function findSymbol(code: number, bits: number): number | undefined {
  const codes = CODES[bits];
  const symbol = codes?.symbols[code - codes.first];
  if (!codes || symbol === END_OF_STRING) throw invalidHuffman();
  return symbol;
}

function invalidHuffman(): ProtocolError {
  return new ProtocolError('a header has invalid Huffman coding', ErrorCode.compression);
}

/** Literal field without indexing (RFC 7541, 6.2.2): requests do not depend on each other. */
const WITHOUT_INDEXING = 0;
/** Lengths from here on do not fit into the seven bits of the first byte. */
const LONG_TEXT = 127;
/** Maximum overhead per string. */
const MAX_PREFIX_BYTES = 6;

/** Encodes header fields, given as alternating names and values. */
export function encodeHeaders(fields: readonly string[]): Buffer {
  const size = fields.reduce((sum, text) => sum + text.length + MAX_PREFIX_BYTES, 0);
  const block = Buffer.allocUnsafe(size);
  let at = 0;
  fields.forEach((text, i) => {
    if (i % 2 === 0) block[at++] = WITHOUT_INDEXING;
    at = writeLength(block, at, text.length);
    at += block.write(text, at, 'latin1');
  });
  return block.subarray(0, at);
}

function writeLength(block: Buffer, at: number, length: number): number {
  if (length < LONG_TEXT) {
    block[at] = length;
    return at + 1;
  }
  block[at++] = LONG_TEXT;
  let rest = length - LONG_TEXT;
  for (; rest > 0x7f; rest >>>= 7) block[at++] = (rest & 0x7f) | 0x80;
  block[at++] = rest;
  return at;
}
