import { EmbeddedWriter, type JsonSink, jsonBytes, type ValueWriter } from './json-sink.js';
import { WIRE_TYPE, WireError } from './wire-reader.js';

/** Prints a Timestamp's or Duration's two fields. */
type PrintTime = (out: JsonSink, seconds: number, nanos: number) => void;

const SECONDS_TAG = (1 << 3) | WIRE_TYPE.varint;
const NANOS_TAG = (2 << 3) | WIRE_TYPE.varint;
const YEAR_1 = '"0001-01-01T00:00:00Z"';

export const TIMESTAMP: ValueWriter = timeWriter(writeTimestamp);
export const DURATION: ValueWriter = timeWriter(writeDuration);

/** Go's own types, whose zero is in the year 1 and which are not merged. */
export const STD_TIME: ValueWriter = stdWriter(writeTimestamp, YEAR_1);
export const STD_DURATION: ValueWriter = stdWriter(writeStdDuration, '"0s"');

/** The same as `encoding/json` prints them. */
export const GO_TIME: ValueWriter = stdWriter(writeGoTime, YEAR_1);
export const GO_DURATION: ValueWriter = stdWriter(writeGoDuration, '0');

function timeWriter(print: PrintTime): EmbeddedWriter {
  return new EmbeddedWriter((wire, out) => {
    let seconds = 0;
    let nanos = 0;
    while (wire.at < wire.end) {
      const tag = wire.tag();
      wire.skip(tag);
      if (tag === SECONDS_TAG) seconds = wire.high * 2 ** 32 + (wire.low >>> 0);
      if (tag === NANOS_TAG) nanos = wire.low;
    }
    print(out, seconds, nanos);
  });
}

function stdWriter(print: PrintTime, zero: string): ValueWriter {
  const value = timeWriter(print);
  const zeroBytes = jsonBytes(zero);
  return {
    wireType: value.wireType,
    write: (wire, out) => value.write(wire, out),
    zero: () => zeroBytes,
  };
}

const YEAR_1_SECONDS = -62_135_596_800;
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
/** Divisors of nanoseconds by the number of digits to keep. */
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
  if (isMixed || isTooLong) throw new WireError('The reply contains a duration out of range');
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
    throw new WireError('The reply contains a duration out of range');
  return total;
}

/** How many digits a fraction of a second takes in groups of three. */
function groupedDigits(nanos: number): number {
  if (nanos === 0) return 0;
  if (nanos % 1_000_000 === 0) return 3;
  return nanos % 1000 === 0 ? 6 : 9;
}

function writeMoment(out: JsonSink, seconds: number, nanos: number, fractionDigits: number): void {
  if (seconds < YEAR_1_SECONDS || seconds > YEAR_9999_END || nanos < 0 || nanos >= NANOS_PER_SECOND)
    throw new WireError('The reply contains a time out of range');
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

const DAYS_PER_ERA = 146_097;
const YEARS_PER_ERA = 400;
/** From 1 March of the year 0 to 1 January 1970. */
const DAYS_BEFORE_1970 = 719_468;

/** Converts days since 1 January 1970 to a date. Years start in March, so that the leap day is last. */
export function civilDate(days: number) {
  const shifted = days + DAYS_BEFORE_1970;
  const era = quotient(shifted, DAYS_PER_ERA);
  const dayOfEra = shifted - era * DAYS_PER_ERA;
  const leapDays =
    quotient(dayOfEra, 1460) - quotient(dayOfEra, 36_524) + quotient(dayOfEra, 146_096);
  const yearOfEra = quotient(dayOfEra - leapDays, 365);
  const dayOfYear = dayOfEra - 365 * yearOfEra - quotient(yearOfEra, 4) + quotient(yearOfEra, 100);
  const monthFromMarch = quotient(5 * dayOfYear + 2, 153);
  const month = monthFromMarch < 10 ? monthFromMarch + 3 : monthFromMarch - 9;
  return {
    year: era * YEARS_PER_ERA + yearOfEra + (month < 3 ? 1 : 0),
    month,
    day: dayOfYear - quotient(153 * monthFromMarch + 2, 5) + 1,
  };
}

/** The whole part of a quotient of small positive numbers, which the compiler keeps an integer. */
export function quotient(dividend: number, divisor: number): number {
  return (dividend / divisor) | 0;
}
