import {
  type CallHandler,
  type ExecutionContext,
  Injectable,
  type NestInterceptor,
  SetMetadata,
} from '@nestjs/common';
import { ROUTE_ARGS_METADATA } from '@nestjs/common/constants.js';
import { RouteParamtypes } from '@nestjs/common/enums/route-paramtypes.enum.js';
import { ROUTE_DESCRIPTION, type RouteDescription } from '@sibyl/plugin-kit';
import { OracleError } from '@sibyl/protocol';
import {
  type ByteBudget,
  type ByteReservation,
  ChunkCounter,
  readChunks,
  toAddressKey,
} from '@sibyl/server-kit';
import type { Request, Response } from 'express';
import type { Observable } from 'rxjs';
import type { RateLimits } from '../auth/rate-limits.js';
import type { Config } from '../config/config.js';
import type { OracleRequest } from './ucan-guard.js';

/** Reads JSON bodies after the guard, so that only bodies of authenticated callers cost work. */
@Injectable()
export class BodyInterceptor implements NestInterceptor {
  constructor(
    /** In bytes. */
    private readonly maxBytes: Pick<Config, 'bodyLimit' | 'filesBodyLimit'>,
    /** By address: identities cost nothing, addresses do. */
    private readonly budget: ByteBudget,
    private readonly limits: Pick<RateLimits, 'takeBody'>,
  ) {}

  async intercept(context: ExecutionContext, next: CallHandler): Promise<Observable<unknown>> {
    if (context.getType() !== 'http' || streamsBody(context)) return next.handle();
    const http = context.switchToHttp();
    const request = http.getRequest<OracleRequest>();
    const response = http.getResponse<Response>();
    try {
      const { acceptsFiles = false } = describe(context);
      if (isJson(request)) await this.read(request, response, { acceptsFiles, parse: parseJson });
      else if (isAcceptedForm(request, context))
        await this.read(request, response, { acceptsFiles, parse: () => undefined });
    } catch (error) {
      // The rest of the body is not read, so this connection cannot be used again.
      response.setHeader('Connection', 'close');
      throw error;
    }
    if (request.body === undefined && hasBody(request) && acceptsBody(context))
      throw new OracleError('unsupported_media_type');
    return next.handle();
  }

  private async read(
    request: OracleRequest,
    response: Response,
    { acceptsFiles, parse }: BodyOptions,
  ): Promise<void> {
    const limit = acceptsFiles ? this.maxBytes.filesBodyLimit : this.maxBytes.bodyLimit;
    const reservation = this.budget.open(toAddressKey(request.ip));
    try {
      const rawBody = await readBytes(request, limit, reservation);
      this.limits.takeBody(rawBody.length, request, response);
      // Plugins check signatures over the raw bytes.
      if (rawBody.length > 0) Object.assign(request, { rawBody, body: parse(rawBody) });
    } finally {
      reservation.release();
    }
  }
}

interface BodyOptions {
  readonly acceptsFiles: boolean;
  readonly parse: (bytes: Buffer) => unknown;
}

const STREAMED_BODY = Symbol('streamed body');

/** Leaves the body of a handler unread: the handler streams it. */
export const StreamedBody = () => SetMetadata(STREAMED_BODY, true);

const streamsBody = (context: ExecutionContext) =>
  Reflect.getMetadata(STREAMED_BODY, context.getHandler()) === true;

/** A body of GET or HEAD has no meaning. */
function isJson(request: Request): boolean {
  if (request.method === 'GET' || request.method === 'HEAD') return false;
  return hasBody(request) && request.is(['application/json', 'application/a2a+json']) !== false;
}

/** Routes that accept forms read their bytes. */
function isAcceptedForm(request: Request, context: ExecutionContext): boolean {
  const isForm = request.is('application/x-www-form-urlencoded') !== false;
  return describe(context).acceptsForms === true && isForm && hasBody(request);
}

const describe = (context: ExecutionContext): Partial<RouteDescription> =>
  Reflect.getMetadata(ROUTE_DESCRIPTION, context.getHandler()) ?? {};

function hasBody({ headers }: Request): boolean {
  const { 'content-length': length = '0', 'transfer-encoding': encoding } = headers;
  return encoding !== undefined || Number(length) > 0;
}

function acceptsBody(context: ExecutionContext): boolean {
  const handler = context.getHandler().name;
  const args = Reflect.getMetadata(ROUTE_ARGS_METADATA, context.getClass(), handler) ?? {};
  return Object.keys(args).some((key) => key.startsWith(`${RouteParamtypes.BODY}:`));
}

async function readBytes(
  request: Request,
  limit: number,
  reservation: ByteReservation,
): Promise<Buffer> {
  const { 'content-encoding': encoding = 'identity', 'content-length': declared = '0' } =
    request.headers;
  // A small compressed body can expand to a large one, and no client of ours compresses.
  if (encoding.toLowerCase() !== 'identity' || !isUtf8(request))
    throw new OracleError('unsupported_media_type');
  if (Number(declared) > limit) throw new OracleError('body_too_large');
  const counter = new ChunkCounter();
  return readChunks(request, (chunk, length) => {
    if (length > limit) throw new OracleError('body_too_large');
    if (counter.add(chunk)) throw new OracleError('body_too_large', { message: SMALL_CHUNKS });
    reserve(reservation, length);
  });
}

const SMALL_CHUNKS = 'The body arrives in too many small chunks; send larger ones';

function reserve(reservation: ByteReservation, bytes: number): void {
  const exceeded = reservation.resize(bytes);
  if (exceeded === undefined) return;
  const code = exceeded === 'key' ? 'too_many_bodies' : 'bodies_too_large';
  throw new OracleError(code, { retryAfterSeconds: 1 });
}

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
