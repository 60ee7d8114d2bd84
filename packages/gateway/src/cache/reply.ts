import { hash } from 'node:crypto';
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';

/** Up to here copying a body costs less than sending it by itself. */
const SMALL_BYTES = 4096;

export type Encoding = 'gzip' | 'br';

const compress: Readonly<Record<Encoding, (body: Buffer) => Promise<Buffer>>> = {
  gzip: (body) => promisify(gzip)(body, { level: 6 }),
  br: (body) =>
    promisify(brotliCompress)(body, { params: { [constants.BROTLI_PARAM_QUALITY]: 4 } }),
};

interface ReplyParts {
  /** The reply's JSON. */
  readonly body: Buffer;
  /** Equal for equal bodies. */
  readonly etag: string;
  /** The block it speaks of, if known. */
  readonly height: number | undefined;
  /** Whether the same question at that height has this answer for ever. */
  readonly isFinal: boolean;
}

/** A finished answer, in the forms it was asked for so far. */
export class Reply {
  readonly body: Buffer;
  readonly etag: string;
  readonly height: number | undefined;
  readonly isFinal: boolean;
  /** A small body as one byte a character: it goes out together with the head that way. */
  readonly text: string | undefined;
  /** Told when the reply takes more memory. */
  onGrown: ((bytes: number) => void) | undefined;
  private encoded: Map<Encoding, Promise<Buffer>> | undefined;

  constructor({ body, etag, height, isFinal }: ReplyParts) {
    this.body = body;
    this.etag = etag;
    this.height = height;
    this.isFinal = isFinal;
    this.text = body.length <= SMALL_BYTES ? body.toString('latin1') : undefined;
  }

  /** The body compressed; done once for all who ask. */
  as(encoding: Encoding): Promise<Buffer> {
    return this.encoded?.get(encoding) ?? this.encode(encoding);
  }

  private encode(encoding: Encoding): Promise<Buffer> {
    const encoded = compress[encoding](this.body).then((bytes) => {
      this.onGrown?.(bytes.length);
      return bytes;
    });
    this.encoded ??= new Map();
    this.encoded.set(encoding, encoded);
    return encoded;
  }
}

/** A tag for the reply made from this message: weak, since compressed forms share it. */
export function etagOf(message: Uint8Array, fingerprint: string): string {
  return `W/"${fingerprint.slice(0, 8)}${hash('sha1', message, 'base64url')}"`;
}
