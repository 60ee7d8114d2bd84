import { applyDecorators, type HttpStatus } from '@nestjs/common';
import { ApiExtension, ApiResponse } from '@nestjs/swagger';
import { ErrorBody, type ErrorCode, errorCatalog } from '@sibyl/protocol';
import type { z } from 'zod';

interface ApiReplyOptions {
  readonly status?: HttpStatus;
  readonly description?: string;
  /** Failures of this route beside those every route of its kind has. */
  readonly errors?: readonly ErrorCode[];
}

/** Documents what a handler answers, and how it fails. */
export function ApiReply(schema: z.ZodType, options: ApiReplyOptions = {}): MethodDecorator {
  const { status = 200, description = 'Success', errors = [] } = options;
  return applyDecorators(
    ApiResponse({ status, description, standardSchema: schema }),
    ...errorResponses(errors).map((response) => ApiResponse(response)),
  );
}

/** One documented response per status, naming each code that comes with it. */
function errorResponses(codes: readonly ErrorCode[]) {
  const byStatus = Map.groupBy(codes, (code) => errorCatalog[code][0]);
  return [...byStatus].map(([status, sameStatus]) => ({
    status,
    description: sameStatus.map((code) => `\`${code}\`: ${errorCatalog[code][1]}`).join('\n\n'),
    standardSchema: ErrorBody,
  }));
}

/** Marks an operation that answers with server-sent events in the API document. */
export const STREAM_EXTENSION = 'x-stream';

/** Documents a handler that streams. */
export function ApiStream({ errors = [] }: Pick<ApiReplyOptions, 'errors'> = {}): MethodDecorator {
  return applyDecorators(
    ApiExtension(STREAM_EXTENSION, true),
    ...errorResponses(errors).map((response) => ApiResponse(response)),
  );
}
