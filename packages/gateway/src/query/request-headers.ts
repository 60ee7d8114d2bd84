import type { IncomingHttpHeaders } from 'node:http';
import { HEIGHT_METADATA, parseHeight } from '../upstream/height.js';
import { badRequest } from './query-fault.js';

const METADATA_PREFIX = 'grpc-metadata-';
const HEIGHT_HEADER = METADATA_PREFIX + HEIGHT_METADATA;

/** The longest value of one forwarded header. */
const MAX_VALUE_CHARACTERS = 1024;

/**
 * The metadata of `Grpc-Metadata-*` headers that the operator wants forwarded; undefined if there is none.
 * Others are ignored: a node has no use for them, and each would make a question of its own.
 */
export function readMetadata(
  headers: IncomingHttpHeaders,
  forwarded: readonly string[],
): Record<string, string> | undefined {
  let metadata: Record<string, string> | undefined;
  for (const name of forwarded) {
    const value = headers[METADATA_PREFIX + name];
    if (typeof value !== 'string') continue;
    if (value.length > MAX_VALUE_CHARACTERS) {
      throw badRequest(`Grpc-Metadata-${name} has more than ${MAX_VALUE_CHARACTERS} characters`);
    }
    metadata = { ...metadata, [name]: value };
  }
  return metadata;
}

const TIMEOUT = /^(\d{1,8})([HMSmun])$/;
const UNIT_MS = { H: 3_600_000, M: 60_000, S: 1000, m: 1, u: 0.001, n: 0.000_001 } as const;

/** The client's `Grpc-Timeout`, as far as it is shorter than the gateway's own. */
export function timeoutOf(headers: IncomingHttpHeaders, longestMs: number): number {
  const header = headers['grpc-timeout'];
  if (header === undefined) return longestMs;
  const [, digits, unit] = TIMEOUT.exec(String(header)) ?? [];
  if (!digits || !unit) throw badRequest('Grpc-Timeout must be a number and a unit, such as 500m');
  return Math.min(longestMs, Number(digits) * UNIT_MS[unit as keyof typeof UNIT_MS]);
}

/** The heights a client names in headers and, where those count, in the query. */
export function heightOf(
  headers: IncomingHttpHeaders,
  inQuery: readonly string[],
): number | undefined {
  if (!(HEIGHT_METADATA in headers || HEIGHT_HEADER in headers || inQuery.length > 0)) {
    return undefined;
  }
  const named = [headers[HEIGHT_METADATA], headers[HEIGHT_HEADER], ...inQuery];
  const given = named.filter((text) => text !== undefined);
  const [height, ...others] = given.map(readHeight);
  if (others.some((other) => other !== height)) {
    throw badRequest(`two heights are asked for: ${given.join(' and ')}`);
  }
  // The chain's own way to say "the latest".
  return height === 0 ? undefined : height;
}

function readHeight(text: string | string[]): number {
  const height = parseHeight(text);
  if (height === undefined) throw badRequest(`${String(text).slice(0, 40)} is not a block height`);
  return height;
}
