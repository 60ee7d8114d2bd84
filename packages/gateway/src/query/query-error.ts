import { GrpcCode, GrpcError, toHttpStatus } from '@sibyl/grpc-client';
import { parseHeightError } from '../nodes/chain-node.js';
import type { NodePool } from '../nodes/node-pool.js';
import { BindError, LongJsonError, WireError } from '../schema/schema.js';

interface QueryErrorOptions {
  /** Overrides the status that the code maps to. */
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
}

/** The error of a query as the client receives it, with gRPC code and HTTP status. */
export class QueryError extends Error {
  override readonly name = 'QueryError';
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;

  constructor(
    readonly code: GrpcCode,
    message: string,
    { status = toHttpStatus(code), headers = {} }: QueryErrorOptions = {},
  ) {
    super(message);
    this.status = status;
    this.headers = headers;
  }
}

/** An invalid request. */
export const badRequest = (message: string) => new QueryError(GrpcCode.invalidArgument, message);

interface ErrorContext {
  readonly pool: NodePool;
  readonly height: number | undefined;
  readonly compat: 'node' | undefined;
}

/** Converts an error for the client; undefined for internal errors. */
export function toQueryError(error: unknown, context: ErrorContext): QueryError | undefined {
  if (error instanceof QueryError) return error;
  if (error instanceof BindError) return badRequest(error.message);
  if (error instanceof WireError) return new QueryError(GrpcCode.internal, error.message);
  if (error instanceof LongJsonError)
    return toNodeError(new GrpcError(GrpcCode.resourceExhausted, error.message));
  if (!(error instanceof GrpcError)) return undefined;
  return toHeightError(error, context) ?? toNodeError(error);
}

function toHeightError(error: GrpcError, { pool, height, compat }: ErrorContext) {
  const { latest, earliest } = pool;
  const kind = parseHeightError(error, height, latest)?.kind;
  if (!kind || compat) return undefined;
  if (kind === 'future') {
    return badRequest(`height ${height} is in the future: the latest is ${latest}`);
  }
  return new QueryError(GrpcCode.notFound, prunedText(height ?? 0, earliest, latest));
}

/** Includes the available heights, as far as known. */
export function prunedText(height: number, earliest: number | undefined, latest: number): string {
  const isKnown = earliest !== undefined && earliest > height && earliest <= latest;
  const from = isKnown ? `${earliest}` : `a height above ${height}`;
  return `height ${height} is no longer kept: available are ${from} to ${latest}`;
}

const RETRY_SECONDS = '1';

function toNodeError({ code, message }: GrpcError): QueryError {
  const isPassing = code === GrpcCode.unavailable || code === GrpcCode.resourceExhausted;
  return new QueryError(
    code,
    message,
    isPassing ? { headers: { 'Retry-After': RETRY_SECONDS } } : {},
  );
}
