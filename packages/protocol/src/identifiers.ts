import { z } from 'zod';

/** A DID as it appears in tokens and records. */
export const Did = z
  .string()
  .max(512)
  .regex(/^did:[a-z0-9]+:[A-Za-z0-9._:%/#?=&-]+$/, { error: 'must be a DID' });

/** An id this host made: URL-safe. Clients drop the segments `.` and `..` of a path, so no route could find those. */
export const Id = z
  .string()
  .min(1)
  .max(128)
  .regex(/^\.*[A-Za-z0-9_:-][A-Za-z0-9._:-]*$/, { error: 'must be an id' });

/** A correlation id that a caller may send. */
export const RequestId = z
  .string()
  .regex(/^[\x20-\x7e]{1,256}$/, { error: 'must be 1 to 256 characters of printable ASCII' });

/** A point in time, ISO 8601 in UTC. */
export const Timestamp = z.iso.datetime();

/** The CID of a UCAN. */
export const Cid = z.string().regex(/^b[a-z2-7]{1,127}$/, { error: 'must be a CID' });

/** A time up to the end of the year 9999, in seconds since 1970. */
export const UnixSeconds = z
  .int()
  .min(0)
  .max(253_402_300_799, { error: 'must be Unix seconds, not milliseconds' })
  .describe('Unix seconds');

/** Longer than any name in DNS. */
const MAX_HOST_LENGTH = 512;

/** The host of a web address; parsers ignore spaces and control characters before it. */
const WEB_HOST = /^[^a-z]*(?:https?|wss?|ftp|file):[\\/]*([^\\/?#]*)/i;

/**
 * Whether the host of a URL is short enough to parse it: names of other letters than ASCII take a parser time that grows with
 * the square of their length, up to a tenth of a second.
 */
export function hasShortHost(url: string): boolean {
  const host = WEB_HOST.exec(url.replaceAll(/[\t\n\r]/g, ''))?.[1] ?? '';
  return host.length <= MAX_HOST_LENGTH;
}

/** The address of a website, which another user may have chosen. */
export const HttpUrl = z
  .string()
  .max(2048, { abort: true })
  .refine(hasShortHost, {
    abort: true,
    error: `must have a host of at most ${MAX_HOST_LENGTH} characters`,
  })
  .check(z.url({ protocol: /^https?$/, error: 'must be an http(s) URL' }));

/** A base64 CAR of at most 8192 characters. */
export const UcanToken = z.string().min(1).max(8192);

/** A whole number as a query writes it: decimal digits and nothing else, so `1e1`, `0x5`, `+5` and an empty value are errors. */
export function wholeNumber({
  min,
  max = Number.MAX_SAFE_INTEGER,
}: {
  readonly min: number;
  readonly max?: number;
}) {
  const range = max === Number.MAX_SAFE_INTEGER ? `, ${min} or more` : ` from ${min} to ${max}`;
  const isInRange = (value: unknown) =>
    Number.isSafeInteger(value) && min <= (value as number) && (value as number) <= max;
  // Not a transform: zod leaves defaults of those out of the JSON schema.
  const schema: z.ZodType = z
    .unknown()
    .overwrite((value) =>
      typeof value === 'string' && /^\d{1,16}$/.test(value) ? Number(value) : value,
    )
    .refine(isInRange, { error: `must be a whole number${range}` })
    .meta({ type: 'integer', minimum: min, maximum: max });
  return schema as z.ZodType<number>;
}

/** The `Idempotency-Key` header: visible ASCII characters. */
export const IdempotencyKey = z
  .string()
  .regex(/^[!-~]{1,255}$/, { error: 'must be 1 to 255 visible ASCII characters' });

/** The `Last-Event-ID` header: the number of a frame; browsers send an empty one before the first. */
export const LastEventId = z.string().regex(/^\d{0,15}$/, { error: 'must be a frame id' });

/** What a user calls their time zone; one that is not known costs no more than itself. */
export const TimezoneName = z
  .string()
  .max(255)
  .describe('IANA name, such as Africa/Nairobi; an unknown one is ignored with a warning');

/** An IANA time zone name that this runtime knows. */
export const TimeZone = z
  .string()
  .max(64)
  .refine(isTimeZone, { error: 'must be an IANA time zone, such as Africa/Nairobi' });

function isTimeZone(name: string): boolean {
  try {
    new Intl.DateTimeFormat('en', { timeZone: name });
    return true;
  } catch {
    return false;
  }
}

/** Request headers of the interface and what they mean. */
export const requestHeaders = {
  authorization: 'Bearer <invocation>: who is calling. Read only beside X-Auth-Type: ucan',
  'x-auth-type': 'ucan: read the Authorization header',
  'x-ucan-delegation': 'The user-to-oracle delegation, base64 CAR',
  'x-api-key':
    'An access key, on the routes that accept one; `Authorization: Bearer <key>` without X-Auth-Type is the same',
  'x-did': 'Informational, never used for authentication',
  'x-matrix-access-token': "Access token of the user's Matrix session",
  'x-matrix-homeserver': "Homeserver of the user's Matrix session",
  'x-timezone': "The user's IANA time zone",
  'x-request-id': 'Correlation id, echoed as X-Request-Id',
} as const;

/** Request headers a browser of another origin may send. */
export const corsRequestHeaders = [
  'Content-Type',
  'Authorization',
  'x-ucan-delegation',
  'x-matrix-access-token',
  'x-matrix-homeserver',
  'x-did',
  'x-request-id',
  'x-auth-type',
  'x-timezone',
  'Idempotency-Key',
  'Last-Event-ID',
] as const;

/** Methods a browser of another origin may use. */
export const corsMethods = ['GET', 'POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS'] as const;

/** Response headers a browser of another origin may read. */
export const corsExposedHeaders = ['X-Request-Id'] as const;
