import { ErrorCode, ProtocolFault } from './protocol.js';

export interface HeaderField {
  readonly name: string;
  readonly value: string;
}

/** What an entry counts beside its text. */
const ENTRY_BYTES = 32;

/** Names and values both sides know from the start, in their order (RFC 7541, appendix A). */
const KNOWN: readonly HeaderField[] = [
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

/** What header blocks refer to by number: first what is always known, then what came before, the newest first. */
export class HeaderTable {
  private readonly recent: HeaderField[] = [];
  private bytes = 0;
  private limit: number;

  constructor(private readonly maxBytes: number) {
    this.limit = maxBytes;
  }

  at(index: number): HeaderField {
    const field = KNOWN[index - 1] ?? this.recent[this.recent.length + KNOWN.length - index];
    if (!field) throw new ProtocolFault('a header refers to nothing', ErrorCode.compression);
    return field;
  }

  add(field: HeaderField): void {
    this.recent.push(field);
    this.bytes += bytesOf(field);
    this.evict();
  }

  resize(limit: number): void {
    if (limit > this.maxBytes) {
      throw new ProtocolFault('the table of headers is to grow too large', ErrorCode.compression);
    }
    this.limit = limit;
    this.evict();
  }

  private evict(): void {
    while (this.bytes > this.limit) {
      const oldest = this.recent.shift();
      if (oldest) this.bytes -= bytesOf(oldest);
    }
  }
}

export function bytesOf({ name, value }: HeaderField): number {
  return name.length + value.length + ENTRY_BYTES;
}
