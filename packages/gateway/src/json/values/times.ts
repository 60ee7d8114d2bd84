import { WireFault } from '../wire-fault.js';

const YEAR_1 = -62_135_596_800;
const YEAR_9999_END = 253_402_300_799;
const MAX_SECONDS = 315_576_000_000;
const NANOS_PER_SECOND = 1_000_000_000;
/** What Go's own duration holds: 64 bits of nanoseconds. */
const MAX_STD_NANOS = 2n ** 63n;

/** A moment as RFC 3339 in quotes, with 0, 3, 6 or 9 digits of a second. */
export function timestampText(seconds: number, nanos: number): string {
  return `"${dateAndTime(seconds, nanos)}${fraction(nanos)}Z"`;
}

/** A moment as `encoding/json` writes it: with as few digits of a second as needed. */
export function goTimeText(seconds: number, nanos: number): string {
  return `"${dateAndTime(seconds, nanos)}${fraction(nanos).replace(/0+$/, '')}Z"`;
}

/** A duration in quotes, such as `"1.500s"`. */
export function durationText(seconds: number, nanos: number): string {
  const isNegative = seconds < 0 || nanos < 0;
  const isMixed = (seconds > 0 && nanos < 0) || (seconds < 0 && nanos > 0);
  const isTooLong = Math.abs(seconds) > MAX_SECONDS || Math.abs(nanos) >= NANOS_PER_SECOND;
  if (isMixed || isTooLong) throw new WireFault('The reply holds a duration out of range');
  return `"${isNegative ? '-' : ''}${Math.abs(seconds)}${fraction(Math.abs(nanos))}s"`;
}

/** The nanoseconds of a duration that Go can hold in its own type. */
export function goDuration(seconds: number, nanos: number): bigint {
  const total = BigInt(seconds) * BigInt(NANOS_PER_SECOND) + BigInt(nanos);
  if (total >= MAX_STD_NANOS || total < -MAX_STD_NANOS)
    throw new WireFault('The reply holds a duration out of range');
  return total;
}

function dateAndTime(seconds: number, nanos: number): string {
  if (seconds < YEAR_1 || seconds > YEAR_9999_END || nanos < 0 || nanos >= NANOS_PER_SECOND)
    throw new WireFault('The reply holds a time out of range');
  return new Date(seconds * 1000).toISOString().slice(0, 19);
}

function fraction(nanos: number): string {
  if (nanos === 0) return '';
  const digits = String(nanos).padStart(9, '0');
  return `.${digits.replace(/(000){1,2}$/, '')}`;
}
