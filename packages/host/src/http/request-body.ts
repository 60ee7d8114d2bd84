import {
  type CallHandler,
  type ExecutionContext,
  Injectable,
  type NestInterceptor,
} from '@nestjs/common';
import { ROUTE_ARGS_METADATA } from '@nestjs/common/constants.js';
import { RouteParamtypes } from '@nestjs/common/enums/route-paramtypes.enum.js';
import { OracleError } from '@sibyl/protocol';
import { addressKey } from '@sibyl/server-kit';
import type { Request, Response } from 'express';
import type { Observable } from 'rxjs';

/** The part of the budget that one address may use: identities cost nothing, addresses do. */
const ADDRESS_SHARE = 1 / 4;

/** Bounds the bytes of all request bodies that the host is reading at the same time. */
export class BodyBudget {
  private used = 0;
  /** Only addresses that are sending a body: one entry takes at least one connection. */
  private readonly usedBy = new Map<string, number>();

  constructor(private readonly maxBytes: number) {}

  /** Counts the bytes of one body as they arrive; `release` gives them back. */
  open(address: string | undefined) {
    const key = addressKey(address);
    let taken = 0;
    return {
      take: (bytes: number): void => {
        const usedByAddress = (this.usedBy.get(key) ?? 0) + bytes;
        if (this.used + bytes > this.maxBytes)
          throw new OracleError('bodies_too_large', { retryAfterSeconds: 1 });
        if (usedByAddress > this.maxBytes * ADDRESS_SHARE)
          throw new OracleError('too_many_bodies', { retryAfterSeconds: 1 });
        taken += bytes;
        this.used += bytes;
        this.usedBy.set(key, usedByAddress);
      },
      release: (): void => {
        const left = (this.usedBy.get(key) ?? 0) - taken;
        if (left > 0) this.usedBy.set(key, left);
        else this.usedBy.delete(key);
        this.used -= taken;
        taken = 0;
      },
    };
  }
}

/** Reads a JSON body once the guard has let the request in: nobody else's is worth the work. */
@Injectable()
export class BodyInterceptor implements NestInterceptor {
  constructor(
    private readonly limit: number,
    private readonly budget: BodyBudget,
  ) {}

  async intercept(context: ExecutionContext, next: CallHandler): Promise<Observable<unknown>> {
    if (context.getType() !== 'http') return next.handle();
    const http = context.switchToHttp();
    const request = http.getRequest<Request>();
    try {
      if (isJson(request)) await this.read(request);
    } catch (error) {
      // The rest of the body is not read, so nothing can follow on this connection.
      http.getResponse<Response>().setHeader('Connection', 'close');
      throw error;
    }
    if (request.body === undefined && hasBody(request) && takesBody(context))
      throw new OracleError('unsupported_media_type');
    return next.handle();
  }

  private async read(request: Request): Promise<void> {
    const share = this.budget.open(request.ip);
    try {
      const rawBody = await readBytes(request, this.limit, share.take);
      // The bytes are for plugins that check a signature over them.
      if (rawBody.length > 0) Object.assign(request, { rawBody, body: parseJson(rawBody) });
    } finally {
      share.release();
    }
  }
}

/** GET and HEAD have no body that means anything. */
function isJson(request: Request): boolean {
  if (request.method === 'GET' || request.method === 'HEAD') return false;
  return hasBody(request) && request.is('application/json') !== false;
}

function hasBody({ headers }: Request): boolean {
  const { 'content-length': length = '0', 'transfer-encoding': encoding } = headers;
  return encoding !== undefined || Number(length) > 0;
}

function takesBody(context: ExecutionContext): boolean {
  const handler = context.getHandler().name;
  const taken = Reflect.getMetadata(ROUTE_ARGS_METADATA, context.getClass(), handler) ?? {};
  return Object.keys(taken).some((key) => key.startsWith(`${RouteParamtypes.BODY}:`));
}

async function readBytes(
  request: Request,
  limit: number,
  take: (bytes: number) => void,
): Promise<Buffer> {
  const { 'content-encoding': encoding = 'identity', 'content-length': declared = '0' } =
    request.headers;
  // A small compressed body can become a large one, and no client of ours sends any.
  if (encoding.toLowerCase() !== 'identity' || !isUtf8(request))
    throw new OracleError('unsupported_media_type');
  if (Number(declared) > limit) throw new OracleError('body_too_large');
  const chunks: Buffer[] = [];
  let length = 0;
  // The connection stays open, for the answer to a body that is refused.
  for await (const chunk of request.iterator({ destroyOnReturn: false })) {
    length += chunk.length;
    if (length > limit) throw new OracleError('body_too_large');
    take(chunk.length);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks, length);
}

function isUtf8({ headers }: Request): boolean {
  const [, charset = 'utf-8'] =
    /;\s*charset="?([^";\s]*)/i.exec(headers['content-type'] ?? '') ?? [];
  return /^utf-?8$/i.test(charset);
}

function parseJson(bytes: Buffer): unknown {
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    // Every body is an object; a bare value is more likely a client's mistake.
    if (/^\s*[{[]/.test(text)) return JSON.parse(text);
  } catch (error) {
    const { message } = error as Error;
    throw new OracleError('invalid_json', { message: `The body is not valid JSON: ${message}` });
  }
  throw new OracleError('invalid_json', { message: 'The body must be a JSON object' });
}
