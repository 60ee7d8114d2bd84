import type { OutgoingHttpHeaders } from 'node:http';
import type { Reply } from '../cache/reply.js';
import type { Config } from '../config/config.js';
import type { AskedQuestion } from '../query/question.js';
import { acceptedEncoding } from './accepted-encoding.js';
import type { Exchange } from './exchange.js';

/** Below this, compression costs more than it saves. */
const COMPRESSED_FROM_BYTES = 1024;
/** A year: caches need no longer promise than that. */
const FINAL = 'max-age=31536000, immutable';
const VARY = 'Accept-Encoding, X-Cosmos-Block-Height, Grpc-Metadata-X-Cosmos-Block-Height';

/** Sends the reply to a question, in the form the client takes. */
export class ReplySender {
  private readonly sharing: string;
  private readonly isPlain: boolean;

  constructor({ compat, gating }: Pick<Config, 'compat' | 'gating'>) {
    // What was given to one who may ask must not be handed on to one who may not.
    this.sharing = gating.auth === 'none' ? 'public' : 'private';
    this.isPlain = compat === 'node';
  }

  async send(exchange: Exchange, question: AskedQuestion, reply: Reply): Promise<void> {
    if (this.isPlain) return this.sendPlain(exchange, reply);
    const { request, response } = exchange;
    const headers = this.headersOf(question, reply);
    response.appendHeader('Vary', VARY);
    if (isKnown(request.headers['if-none-match'], reply.etag)) {
      return void response.writeHead(304, headers).end();
    }
    const encoding = encodingFor(request.headers['accept-encoding'], reply);
    const body = encoding ? await reply.as(encoding) : reply.body;
    if (encoding) headers['Content-Encoding'] = encoding;
    headers['Content-Type'] = 'application/json';
    headers['Content-Length'] = body.length;
    response.writeHead(200, headers).end(body);
  }

  /** As a node does it: nothing but the body and its height. */
  private sendPlain({ response }: Exchange, { body, height }: Reply): void {
    const headers = { 'Content-Type': 'application/json', 'Content-Length': body.length };
    response.writeHead(200, { ...headers, ...metadataOf(height) }).end(body);
  }

  private headersOf({ successor }: AskedQuestion, reply: Reply): OutgoingHttpHeaders {
    const { etag, height, isFinal } = reply;
    const headers: OutgoingHttpHeaders = {
      ...metadataOf(height),
      ETag: etag,
      'Cache-Control': isFinal ? `${this.sharing}, ${FINAL}` : `${this.sharing}, no-cache`,
    };
    if (height !== undefined) headers['X-Block-Height'] = height;
    if (successor === undefined) return headers;
    return { ...headers, Deprecation: 'true', Link: `<${successor}>; rel="successor-version"` };
  }
}

function metadataOf(height: number | undefined): OutgoingHttpHeaders {
  return height === undefined ? {} : { 'Grpc-Metadata-X-Cosmos-Block-Height': height };
}

function encodingFor(header: string | string[] | undefined, { body }: Reply) {
  return body.length < COMPRESSED_FROM_BYTES ? undefined : acceptedEncoding(header);
}

/** Whether a client already has this: tags are compared without their weakness. */
function isKnown(header: string | undefined, etag: string): boolean {
  if (header === undefined) return false;
  const plain = (tag: string) => tag.trim().replace(/^W\//, '');
  return header.trim() === '*' || header.split(',').some((tag) => plain(tag) === plain(etag));
}
