import type { IncomingMessage } from 'node:http';
import {
  type CallHandler,
  type ExecutionContext,
  Injectable,
  type NestInterceptor,
} from '@nestjs/common';
import { ROUTE_ARGS_METADATA } from '@nestjs/common/constants.js';
import { RouteParamtypes } from '@nestjs/common/enums/route-paramtypes.enum.js';
import { OracleError } from '@sibyl/protocol';
import { json, type Request, type Response } from 'express';
import type { Observable } from 'rxjs';

/** Reads a JSON body once the guard has let the request in: nobody else's is worth the work. */
@Injectable()
export class BodyInterceptor implements NestInterceptor {
  private readonly parse: ReturnType<typeof json>;

  constructor(limit: number) {
    // A small compressed body can become a large one, and no client of ours sends any.
    this.parse = json({ limit, inflate: false, verify: keepBytes });
  }

  async intercept(context: ExecutionContext, next: CallHandler): Promise<Observable<unknown>> {
    if (context.getType() !== 'http') return next.handle();
    const http = context.switchToHttp();
    const request = http.getRequest<Request>();
    await this.read(request, http.getResponse());
    if (request.body === undefined && hasBody(request) && takesBody(context))
      throw new OracleError('unsupported_media_type');
    return next.handle();
  }

  private read(request: Request, response: Response): Promise<void> {
    return new Promise((resolve, reject) => {
      this.parse(request, response, (fault?: unknown) => {
        if (fault) reject(oracleErrorOf(fault));
        else resolve();
      });
    });
  }
}

/** For those who check a signature over them. */
function keepBytes(request: IncomingMessage, _: unknown, rawBody: Buffer): void {
  Object.assign(request, { rawBody });
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

/** Body-parser tells its faults apart by `type`. */
function oracleErrorOf(fault: unknown): OracleError {
  const { type, message } = fault as { type?: string; message?: string };
  switch (type) {
    case 'entity.too.large':
      return new OracleError('body_too_large');
    case 'entity.parse.failed':
      return new OracleError('invalid_json', { message: `The body is not valid JSON: ${message}` });
    case 'charset.unsupported':
    case 'encoding.unsupported':
      return new OracleError('unsupported_media_type');
    default:
      return new OracleError('bad_request', { cause: fault });
  }
}
