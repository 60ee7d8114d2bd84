import { setImmediate as nextTurn } from 'node:timers/promises';
import {
  type CallHandler,
  type ExecutionContext,
  Injectable,
  type NestInterceptor,
  SetMetadata,
} from '@nestjs/common';
import { ROUTE_ARGS_METADATA } from '@nestjs/common/constants.js';
import { RouteParamtypes } from '@nestjs/common/enums/route-paramtypes.enum.js';
import { ROUTE_DESCRIPTION, type RouteDescription } from '@sibyl/plugin-kit/host';
import { OracleError } from '@sibyl/protocol';
import {
  type ByteBudget,
  type ByteReservation,
  ChunkCounter,
  readChunks,
  scanJson,
  toAddressKey,
  toShareKey,
} from '@sibyl/server-kit';
import type { Request, Response } from 'express';
import type { Observable } from 'rxjs';
import type { RateLimits } from '../auth/rate-limits.js';
import type { Config } from '../config/config.js';
import type { OracleRequest } from './ucan-guard.js';

/** What JSON of a caller may hold where it has history, tools or metadata; two lists of tools may have 40,000 members. */
export const MANY_VALUES = { values: 100_000, members: 20_000, deepMembers: 25_000 } as const;
/** The same everywhere else. */
export const FEW_VALUES = { values: 20_000, members: 5_000 } as const;

/** Reads JSON bodies after the guard, so that only bodies of authenticated callers cost work. */
@Injectable()
export class BodyInterceptor implements NestInterceptor {
  /** Settles when the last of the large bodies may be read. */
  private turn: Promise<unknown> = Promise.resolve();

  constructor(
    /** In bytes. */
    private readonly maxBytes: Pick<Config, 'bodyLimit' | 'filesBodyLimit'>,
    /** By address: identities cost nothing, addresses do. */
    private readonly budget: ByteBudget,
    private readonly limits: Pick<RateLimits, 'takeBody'>,
  ) {}

  async intercept(context: ExecutionContext, next: CallHandler): Promise<Observable<unknown>> {
    const handler = context.getHandler();
    if (context.getType() !== 'http' || Reflect.getMetadata(STREAMED_BODY, handler) === true)
      return next.handle();
    const http = context.switchToHttp();
    const request = http.getRequest<OracleRequest>();
    const response = http.getResponse<Response>();
    try {
      const described: Partial<RouteDescription> =
        Reflect.getMetadata(ROUTE_DESCRIPTION, handler) ?? {};
      if (isJson(request)) await this.read(request, response, described, parseJson);
      else if (described.acceptsForms && isForm(request))
        await this.read(request, response, described);
      else if (hasBody(request) && acceptsBody(context)) await assertEmpty(request);
    } catch (error) {
      // The rest of the body is not read, so this connection cannot be used again.
      response.setHeader('Connection', 'close');
      throw error;
    }
    return next.handle();
  }

  /** Only what is parsed is counted. */
  private async read(
    request: OracleRequest,
    response: Response,
    { acceptsFiles, acceptsManyValues }: Partial<RouteDescription>,
    parse?: (bytes: Buffer) => unknown,
  ): Promise<void> {
    const limit = acceptsFiles ? this.maxBytes.filesBodyLimit : this.maxBytes.bodyLimit;
    const { caller, ip } = request;
    const reservation = this.budget.open(caller ? toShareKey(caller.holder) : toAddressKey(ip));
    try {
      const rawBody = await readBytes(request, limit, reservation);
      const { length: bytes } = rawBody;
      if (bytes === 0) return;
      if (bytes > SMALL_BYTES) await this.waitForTurn();
      const limits = acceptsManyValues ? MANY_VALUES : FEW_VALUES;
      const { excess, ...counts } = parse ? scanJson(rawBody, limits) : NO_JSON;
      this.limits.takeBody({ bytes, ...counts }, request, response);
      if (excess)
        throw new OracleError('validation_failed', { message: [`body: has ${excess}; send less`] });
      // Plugins check signatures over the raw bytes.
      Object.assign(request, { rawBody, body: parse?.(rawBody) });
    } finally {
      reservation.release();
    }
  }

  /** One large body is counted and parsed in each turn of the event loop, so that other requests are answered in between. */
  private waitForTurn(): Promise<unknown> {
    this.turn = this.turn.then(() => nextTurn());
    return this.turn;
  }
}

/** Bodies up to this size take a millisecond at most. */
const SMALL_BYTES = 8 * 1024;
const NO_JSON = { values: 0, members: 0, excess: undefined };

const STREAMED_BODY = Symbol('streamed body');

/** Leaves the body of a handler unread: the handler streams it. */
export const StreamedBody = () => SetMetadata(STREAMED_BODY, true);

/** A body of GET or HEAD has no meaning. */
function isJson(request: Request): boolean {
  if (request.method === 'GET' || request.method === 'HEAD') return false;
  return hasBody(request) && request.is(['application/json', 'application/a2a+json']) !== false;
}

const isForm = (request: Request) =>
  hasBody(request) && request.is('application/x-www-form-urlencoded') !== false;

function hasBody({ headers }: Request): boolean {
  const { 'content-length': length = '0', 'transfer-encoding': encoding } = headers;
  return encoding !== undefined || Number(length) > 0;
}

function acceptsBody(context: ExecutionContext): boolean {
  const handler = context.getHandler().name;
  const args = Reflect.getMetadata(ROUTE_ARGS_METADATA, context.getClass(), handler) ?? {};
  return Object.keys(args).some((key) => key.startsWith(`${RouteParamtypes.BODY}:`));
}

/** A body that comes in chunks is empty if there are none. */
async function assertEmpty(request: Request): Promise<void> {
  if (request.headers['transfer-encoding'] === undefined)
    throw new OracleError('unsupported_media_type');
  await readChunks(request, () => {
    throw new OracleError('unsupported_media_type');
  });
}

async function readBytes(
  request: Request,
  limit: number,
  reservation: ByteReservation,
): Promise<Buffer> {
  const { 'content-encoding': encoding = 'identity', 'content-length': declared = '0' } =
    request.headers;
  // A small compressed body can expand to a large one, and no client of ours compresses.
  if (encoding.toLowerCase() !== 'identity')
    throw new OracleError('unsupported_media_type', { message: ENCODED });
  if (!isUtf8(request)) throw new OracleError('unsupported_media_type');
  if (Number(declared) > limit) throw new OracleError('body_too_large');
  const counter = new ChunkCounter();
  return readChunks(request, (chunk, length) => {
    if (length > limit) throw new OracleError('body_too_large');
    if (counter.add(chunk)) throw new OracleError('body_too_large', { message: SMALL_CHUNKS });
    const exceeded = reservation.resize(length);
    if (exceeded === undefined) return;
    const code = exceeded === 'key' ? 'too_many_bodies' : 'bodies_too_large';
    throw new OracleError(code, { retryAfterSeconds: 1 });
  });
}

const ENCODED = 'Send the body as it is, without a Content-Encoding';
const SMALL_CHUNKS = 'The body arrives in too many small chunks; send larger ones';

function isUtf8({ headers }: Request): boolean {
  const [, charset = 'utf-8'] =
    /;\s*charset="?([^";\s]*)/i.exec(headers['content-type'] ?? '') ?? [];
  return /^utf-?8$/i.test(charset);
}

function parseJson(bytes: Buffer): unknown {
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    // Every body is an object; a bare value is probably a mistake of the client.
    if (/^\s*[{[]/.test(text)) return JSON.parse(text);
  } catch (error) {
    const { message } = error as Error;
    throw new OracleError('invalid_json', { message: `The body is not valid JSON: ${message}` });
  }
  throw new OracleError('invalid_json', { message: 'The body must be a JSON object' });
}
