import { z } from 'zod';

/** A DID as it appears in tokens and records. */
export const Did = z
  .string()
  .max(512)
  .regex(/^did:[a-z0-9]+:[A-Za-z0-9._:%/#?=&-]+$/, { error: 'must be a DID' });

/** An id this host made: URL-safe. */
export const Id = z
  .string()
  .min(1)
  .max(128)
  .regex(/^[A-Za-z0-9._:-]+$/, { error: 'must be an id' });

/** A correlation id a caller may bring (contract B1). */
export const RequestId = z
  .string()
  .regex(/^[A-Za-z0-9._:-]{1,128}$/, { error: 'must match [A-Za-z0-9._:-]{1,128}' });

/** A point in time, ISO 8601 in UTC. */
export const Timestamp = z.iso.datetime();

/** A base64 CAR of at most 8192 characters (contract B8). */
export const UcanToken = z.string().min(1).max(8192);

/** A whole number as a query writes it. */
export const WholeNumber = z.coerce
  .number({ error: 'must be a whole number' })
  .int({ error: 'must be a whole number' });

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
