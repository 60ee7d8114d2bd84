import type { JsonObject, JsonValue } from '@bufbuild/protobuf';
import { GrpcCode, GrpcError } from '@sibyl/grpc-client';

/** The state of the chain at one block. */
export interface BlockContext {
  readonly height: number;
  readonly blocks: Blocks;
}

/** Answers one method: request and reply are JSON with proto names. */
export type MethodHandler = (request: JsonObject, moment: BlockContext) => JsonObject;

/** The methods of one service by name. */
export type ServiceHandlers = Readonly<Record<string, MethodHandler>>;

/** Reads a required field of the request. */
export function required(request: JsonObject, field: string): string {
  const value = request[field];
  if (typeof value === 'string' && value !== '') return value;
  throw new GrpcError(GrpcCode.invalidArgument, `${field} must not be empty`);
}

/** Finds the first matching record; throws if there is none. */
export function found<T>(records: readonly T[], fits: (record: T) => boolean, what: string): T {
  const record = records.find(fits);
  if (record !== undefined) return record;
  throw new GrpcError(GrpcCode.notFound, `${what} not found`);
}

const DEFAULT_LIMIT = 100;

/** A record and the key it is stored under. */
export interface Stored {
  readonly key: string;
  readonly record: JsonObject;
}

export interface Page {
  readonly records: JsonObject[];
  /** A `cosmos.base.query.v1beta1.PageResponse`. */
  readonly pagination: JsonObject;
}

/** Paginates records like a node, by key or offset; without a limit, counts the total too. */
export function paginate(stored: readonly Stored[], request: JsonValue | undefined): Page {
  const { key, offset, limit, countTotal, isReverse } = readRequest(request);
  if (offset > 0 && key.length > 0) {
    const text = 'invalid request, either offset or key is expected, got both';
    throw new GrpcError(GrpcCode.invalidArgument, text);
  }
  const rising = stored.toSorted((a, b) => Buffer.compare(toBytes(a), toBytes(b)));
  const ordered = isReverse ? rising.reverse() : rising;
  const isPast = (one: Stored) => {
    const order = Buffer.compare(toBytes(one), key);
    return isReverse ? order <= 0 : order >= 0;
  };
  const from = key.length > 0 ? ordered.findIndex(isPast) : offset;
  const start = from < 0 ? ordered.length : from;
  const page = ordered.slice(start, start + limit);
  const next = ordered[start + limit];
  return {
    records: page.map(({ record }) => record),
    pagination: {
      ...(next && { next_key: toBytes(next).toString('base64') }),
      ...(countTotal && key.length === 0 && { total: String(ordered.length) }),
    },
  };
}

function readRequest(request: JsonValue | undefined) {
  const asked = (request ?? {}) as JsonObject;
  const limit = Number(asked.limit ?? 0);
  return {
    key: Buffer.from(String(asked.key ?? ''), 'base64'),
    offset: Number(asked.offset ?? 0),
    limit: limit || DEFAULT_LIMIT,
    countTotal: asked.count_total === true || limit === 0,
    isReverse: asked.reverse === true,
  };
}

const toBytes = ({ key }: Stored) => Buffer.from(key);

/** The blocks of a chain: the latest, the oldest that is kept, and the time of each. */
export interface Blocks {
  readonly latest: number;
  readonly earliest: number;
  getTime(height: number): Date;
}

export interface BlockPace {
  readonly everyMs: number;
  /** How many blocks there are when the chain starts. */
  readonly past: number;
  /** Older blocks than this many are pruned. */
  readonly kept: number;
}

/** Produces blocks at a steady pace, including the past ones. */
export function startBlocks({ everyMs, past, kept }: BlockPace): Blocks {
  const genesis = Date.now() - past * everyMs;
  // Heights never decrease, even when the wall clock changes.
  const startedAt = performance.now();
  const latest = () => past + Math.floor((performance.now() - startedAt) / everyMs);
  return {
    get latest() {
      return latest();
    },
    get earliest() {
      return Math.max(1, latest() - kept + 1);
    },
    getTime: (height) => new Date(genesis + height * everyMs),
  };
}
