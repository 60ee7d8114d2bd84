import type { JsonSink } from '../json-sink.js';
import { WireFault } from '../wire-fault.js';
import { civilDate } from './civil-date.js';
import { quotient } from './quotient.js';

const YEAR_1 = -62_135_596_800;
const YEAR_9999_END = 253_402_300_799;
const SECONDS_PER_DAY = 86_400;
const MAX_SECONDS = 315_576_000_000;
const NANOS_PER_SECOND = 1_000_000_000;
/** What Go's own duration holds: 64 bits of nanoseconds. */
const MAX_GO_NANOS = 2n ** 63n;

const ZERO = 0x30;
const QUOTE = '"'.charCodeAt(0);
const DASH = '-'.charCodeAt(0);
const COLON = ':'.charCodeAt(0);
const POINT = '.'.charCodeAt(0);
const LETTER_T = 'T'.charCodeAt(0);
const LETTER_Z = 'Z'.charCodeAt(0);
/** What nanoseconds are divided by to leave so many digits. */
const TRIMMED = Array.from({ length: 10 }, (_, digits) => 10 ** (9 - digits));
/** The longest time, with its quotes. */
const MOST = 32;

/** Writes a moment as RFC 3339 in quotes, with 0, 3, 6 or 9 digits of a second. */
export function writeTimestamp(out: JsonSink, seconds: number, nanos: number): void {
  writeMoment(out, seconds, nanos, groupedDigits(nanos));
}

/** Writes a moment as `encoding/json` does, with as few digits of a second as needed. */
export function writeGoTime(out: JsonSink, seconds: number, nanos: number): void {
  let digits = groupedDigits(nanos);
  while (digits > 0 && nanos % (TRIMMED[digits - 1] as number) === 0) digits -= 1;
  writeMoment(out, seconds, nanos, digits);
}

/** Writes a duration in quotes, such as `"1.500s"`. */
export function writeDuration(out: JsonSink, seconds: number, nanos: number): void {
  const isMixed = (seconds > 0 && nanos < 0) || (seconds < 0 && nanos > 0);
  const isTooLong = Math.abs(seconds) > MAX_SECONDS || Math.abs(nanos) >= NANOS_PER_SECOND;
  if (isMixed || isTooLong) throw new WireFault('The reply holds a duration out of range');
  const sign = seconds < 0 || nanos < 0 ? '-' : '';
  const digits = groupedDigits(nanos);
  const fraction = String(Math.abs(nanos)).padStart(9, '0').slice(0, digits);
  out.ascii(`"${sign}${Math.abs(seconds)}${digits > 0 ? '.' : ''}${fraction}s"`);
}

/** Writes a duration that Go can hold in its own type. */
export function writeStdDuration(out: JsonSink, seconds: number, nanos: number): void {
  goNanos(seconds, nanos);
  writeDuration(out, seconds, nanos);
}

/** Writes a duration as `encoding/json` does, in nanoseconds. */
export function writeGoDuration(out: JsonSink, seconds: number, nanos: number): void {
  out.ascii(String(goNanos(seconds, nanos)));
}

function goNanos(seconds: number, nanos: number): bigint {
  const total = BigInt(seconds) * BigInt(NANOS_PER_SECOND) + BigInt(nanos);
  if (total >= MAX_GO_NANOS || total < -MAX_GO_NANOS)
    throw new WireFault('The reply holds a duration out of range');
  return total;
}

/** How many digits a fraction of a second takes in groups of three. */
function groupedDigits(nanos: number): number {
  if (nanos === 0) return 0;
  if (nanos % 1_000_000 === 0) return 3;
  return nanos % 1000 === 0 ? 6 : 9;
}

function writeMoment(out: JsonSink, seconds: number, nanos: number, fractionDigits: number): void {
  if (seconds < YEAR_1 || seconds > YEAR_9999_END || nanos < 0 || nanos >= NANOS_PER_SECOND)
    throw new WireFault('The reply holds a time out of range');
  const days = Math.floor(seconds / SECONDS_PER_DAY);
  const ofDay = (seconds - days * SECONDS_PER_DAY) | 0;
  const { year, month, day } = civilDate(days);
  const buffer = out.reserve(MOST);
  const { at } = out;
  buffer[at] = QUOTE;
  writeDigits(buffer, at + 5, year, 4);
  buffer[at + 5] = DASH;
  writeDigits(buffer, at + 8, month, 2);
  buffer[at + 8] = DASH;
  writeDigits(buffer, at + 11, day, 2);
  buffer[at + 11] = LETTER_T;
  writeDigits(buffer, at + 14, quotient(ofDay, 3600), 2);
  buffer[at + 14] = COLON;
  writeDigits(buffer, at + 17, quotient(ofDay, 60) % 60, 2);
  buffer[at + 17] = COLON;
  writeDigits(buffer, at + 20, ofDay % 60, 2);
  let end = at + 20;
  if (fractionDigits > 0) {
    buffer[end] = POINT;
    end += 1 + fractionDigits;
    writeDigits(buffer, end, quotient(nanos, TRIMMED[fractionDigits] as number), fractionDigits);
  }
  buffer[end] = LETTER_Z;
  buffer[end + 1] = QUOTE;
  out.at = end + 2;
}

/** Writes the last digits of a number so that they end before `end`. */
function writeDigits(buffer: Uint8Array, end: number, value: number, count: number): void {
  let rest = value;
  for (let at = end - 1; at >= end - count; at -= 1) {
    buffer[at] = ZERO + (rest % 10);
    rest = quotient(rest, 10);
  }
}
