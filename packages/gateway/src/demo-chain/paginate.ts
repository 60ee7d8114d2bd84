import type { JsonObject, JsonValue } from '@bufbuild/protobuf';
import { GrpcCode, GrpcError } from '../upstream/grpc-error.js';

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

/** A page of records as nodes cut it: by key or by offset; who gives no limit gets the total too. */
export function paginate(stored: readonly Stored[], request: JsonValue | undefined): Page {
  const { key, offset, limit, countTotal, isReverse } = readRequest(request);
  if (offset > 0 && key.length > 0) {
    const text = 'invalid request, either offset or key is expected, got both';
    throw new GrpcError(GrpcCode.invalidArgument, text);
  }
  const rising = stored.toSorted((a, b) => Buffer.compare(bytesOf(a), bytesOf(b)));
  const ordered = isReverse ? rising.reverse() : rising;
  const isPast = (one: Stored) => {
    const order = Buffer.compare(bytesOf(one), key);
    return isReverse ? order <= 0 : order >= 0;
  };
  const from = key.length > 0 ? ordered.findIndex(isPast) : offset;
  const start = from < 0 ? ordered.length : from;
  const page = ordered.slice(start, start + limit);
  const next = ordered[start + limit];
  return {
    records: page.map(({ record }) => record),
    pagination: {
      ...(next && { next_key: bytesOf(next).toString('base64') }),
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

const bytesOf = ({ key }: Stored) => Buffer.from(key);
