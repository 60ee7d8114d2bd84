import { bytesOf, type HeaderField, HeaderTable } from './header-table.js';
import { decodeHuffman } from './huffman.js';
import { ErrorCode, ProtocolFault } from './protocol.js';

export type HeaderFields = ReadonlyMap<string, string>;

/** What the other side may refer back to unless it is told otherwise. */
const TABLE_BYTES = 4096;
/** A few bytes can refer to much text, again and again. */
const MAX_FIELD_BYTES = 64 * 1024;
/** A number takes at most this many bytes beside its first. */
const MAX_MORE_BYTES = 4;

/** Reads the header blocks of one connection, in their order, each by what came before (RFC 7541). */
export class HeaderReader {
  private readonly table = new HeaderTable(TABLE_BYTES);
  private block: Buffer = Buffer.alloc(0);
  private at = 0;

  read(block: Buffer): HeaderFields {
    this.block = block;
    this.at = 0;
    const fields = new Map<string, string>();
    let bytes = 0;
    while (this.at < block.length) {
      const field = this.next();
      if (!field) continue;
      bytes += bytesOf(field);
      if (bytes > MAX_FIELD_BYTES) throw tooMuch();
      const known = fields.get(field.name);
      fields.set(field.name, known === undefined ? field.value : `${known}, ${field.value}`);
    }
    return fields;
  }

  /** The next field, or nothing where the table is told its size. */
  private next(): HeaderField | undefined {
    const first = this.block[this.at] ?? 0;
    if (first >= 0x80) return this.table.at(this.number(7));
    if (first >= 0x40) {
      const field = this.literal(6);
      this.table.add(field);
      return field;
    }
    if (first < 0x20) return this.literal(4);
    this.table.resize(this.number(5));
    return undefined;
  }

  private literal(bits: number): HeaderField {
    const index = this.number(bits);
    const name = index === 0 ? this.text() : this.table.at(index).name;
    return { name, value: this.text() };
  }

  /** A number that begins in the last bits of a byte. */
  private number(bits: number): number {
    const most = (1 << bits) - 1;
    let value = this.byte() & most;
    if (value < most) return value;
    for (let more = 0; more < MAX_MORE_BYTES; more++) {
      const byte = this.byte();
      value += (byte & 0x7f) * 2 ** (7 * more);
      if (byte < 0x80) return value;
    }
    throw new ProtocolFault('a number in a header is too large', ErrorCode.compression);
  }

  private text(): string {
    const isCoded = (this.block[this.at] ?? 0) >= 0x80;
    const end = this.number(7) + this.at;
    if (end > this.block.length) throw cutShort();
    const bytes = this.block.subarray(this.at, end);
    this.at = end;
    return isCoded ? decodeHuffman(bytes) : bytes.toString('latin1');
  }

  private byte(): number {
    const byte = this.block[this.at];
    if (byte === undefined) throw cutShort();
    this.at += 1;
    return byte;
  }
}

function cutShort(): ProtocolFault {
  return new ProtocolFault('a header is cut short', ErrorCode.compression);
}

function tooMuch(): ProtocolFault {
  const text = `the headers have more than ${MAX_FIELD_BYTES} bytes`;
  return new ProtocolFault(text, ErrorCode.enhanceYourCalm);
}
