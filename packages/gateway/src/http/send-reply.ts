import type { OutgoingHttpHeaders } from 'node:http';
import type { Reply } from '../cache/reply.js';
import type { Config } from '../config/config.js';
import type { ByteBudget } from '../limits/byte-budget.js';
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

  constructor(
    { compat, gating }: Pick<Config, 'compat' | 'gating'>,
    private readonly outgoing: ByteBudget,
  ) {
    // What was given to one who may ask must not be handed on to one who may not.
    const sharing = gating.auth === 'none' ? 'public' : 'private';
    this.lasting = `${sharing}, ${FINAL}`;
    this.passing = `${sharing}, no-cache`;
    this.isPlain = compat === 'node';
  }

  /** `successor` is the path to use instead, if the one asked is a legacy one. */
  send(exchange: Exchange, reply: Reply, successor: string | undefined): void | Promise<void> {
    const { headers, request } = exchange;
    const head = this.describe(headers, reply, successor);
    if (this.isPlain) return this.sendBody(exchange, reply, head);
    if (isKnown(request.headers['if-none-match'], reply.etag)) return exchange.send(304, head);
    const isLarge = reply.length >= COMPRESSED_FROM_BYTES;
    const encoding = isLarge ? acceptedEncoding(request.headers['accept-encoding']) : undefined;
    if (!encoding) return this.sendBody(exchange, reply, head);
    return reply.as(encoding).then((body) => {
      exchange.holdMemory(body, this.outgoing);
      head['Content-Encoding'] = encoding;
      exchange.send(200, Object.assign(head, contentOf(body.length)), body);
    });
  }

  /** The headers beside those of the content. */
  private describe(
    { Vary }: OutgoingHttpHeaders,
    { etag, height, isFinal }: Reply,
    successor: string | undefined,
  ): OutgoingHttpHeaders {
    const head: OutgoingHttpHeaders = {};
    if (successor !== undefined) {
      head.Deprecation = 'true';
      head.Link = `<${successor}>; rel="successor-version"`;
    }
    if (height !== undefined) head['Grpc-Metadata-X-Cosmos-Block-Height'] = height;
    if (this.isPlain) return head;
    head.Vary = Vary === undefined ? VARY : `${Vary}, ${VARY}`;
    head.ETag = etag;
    head['Cache-Control'] = isFinal ? this.lasting : this.passing;
    if (height !== undefined) head['X-Block-Height'] = height;
    return head;
  }

  private sendBody(exchange: Exchange, reply: Reply, head: OutgoingHttpHeaders): void {
    const body = reply.text ?? reply.body;
    if (typeof body !== 'string') exchange.holdMemory(body, this.outgoing);
    exchange.send(200, Object.assign(head, contentOf(reply.length)), body);
  }
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
