import type { OutgoingHttpHeaders } from 'node:http';
import type { Reply } from '../cache/reply.js';
import type { Config } from '../config/config.js';
import { acceptedEncoding } from './accepted-encoding.js';
import type { Exchange } from './exchange.js';

/** Below this, compression costs more than it saves. */
const COMPRESSED_FROM_BYTES = 1024;
/** A year: caches need no longer promise than that. */
const FINAL = 'max-age=31536000, immutable';
const VARY = 'Accept-Encoding, X-Cosmos-Block-Height, Grpc-Metadata-X-Cosmos-Block-Height';

/** Sends replies, each in the form its client takes. */
export class ReplySender {
  private readonly lasting: string;
  private readonly passing: string;
  private readonly isPlain: boolean;

  constructor({ compat, gating }: Pick<Config, 'compat' | 'gating'>) {
    // What was given to one who may ask must not be handed on to one who may not.
    const sharing = gating.auth === 'none' ? 'public' : 'private';
    this.lasting = `${sharing}, ${FINAL}`;
    this.passing = `${sharing}, no-cache`;
    this.isPlain = compat === 'node';
  }

  /** `successor` is the path to use instead, if the one asked is a legacy one. */
  send(exchange: Exchange, reply: Reply, successor: string | undefined): void | Promise<void> {
    const { headers, request } = exchange;
    if (successor !== undefined) {
      headers.Deprecation = 'true';
      headers.Link = `<${successor}>; rel="successor-version"`;
    }
    if (reply.height !== undefined) {
      headers['Grpc-Metadata-X-Cosmos-Block-Height'] = reply.height;
    }
    if (this.isPlain) return sendBody(exchange, reply);
    this.describe(headers, reply);
    if (isKnown(request.headers['if-none-match'], reply.etag)) return exchange.send(304, {});
    const isLarge = reply.body.length >= COMPRESSED_FROM_BYTES;
    const encoding = isLarge ? acceptedEncoding(request.headers['accept-encoding']) : undefined;
    if (!encoding) return sendBody(exchange, reply);
    headers['Content-Encoding'] = encoding;
    return reply.as(encoding).then((body) => exchange.send(200, contentOf(body.length), body));
  }

  private describe(headers: OutgoingHttpHeaders, { etag, height, isFinal }: Reply): void {
    headers.Vary = headers.Vary === undefined ? VARY : `${headers.Vary}, ${VARY}`;
    headers.ETag = etag;
    headers['Cache-Control'] = isFinal ? this.lasting : this.passing;
    if (height !== undefined) headers['X-Block-Height'] = height;
  }
}

function sendBody(exchange: Exchange, { body, text }: Reply): void {
  exchange.send(200, contentOf(body.length), text ?? body);
}

function contentOf(length: number): OutgoingHttpHeaders {
  return { 'Content-Type': 'application/json', 'Content-Length': length };
}

/** Whether a client already has this: tags are compared without their weakness. */
function isKnown(header: string | undefined, etag: string): boolean {
  if (header === undefined) return false;
  const plain = (tag: string) => tag.trim().replace(/^W\//, '');
  return header.trim() === '*' || header.split(',').some((tag) => plain(tag) === plain(etag));
}
