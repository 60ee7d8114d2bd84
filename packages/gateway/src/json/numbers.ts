import type { JsonSink } from './json-sink.js';
import { WireError } from './wire-reader.js';

const TWO_TO_32 = 2 ** 32;
/** Halves with a smaller high part make a number that a double holds exactly. */
const EXACT_HIGH = 2 ** 21;

/** Writes a 64-bit number given as two halves. */
export function writeUint64(out: JsonSink, low: number, high: number): void {
  out.ascii(String(join(low, high >>> 0)));
}

export function writeInt64(out: JsonSink, low: number, high: number): void {
  out.ascii(String(join(low, high)));
}

function join(low: number, high: number): number | bigint {
  if (high >= 0 && high < EXACT_HIGH) return high * TWO_TO_32 + (low >>> 0);
  return (BigInt(high) << 32n) | BigInt(low >>> 0);
}

export function writeInteger(out: JsonSink, value: number): void {
  out.ascii(String(value));
}

/** Writes a number as Go does, without quotes unless it is not finite. */
export function writeDouble(out: JsonSink, value: number): void {
  out.ascii(Number.isFinite(value) ? numberText(value) : `"${value}"`);
}

/** Writes the shortest text that identifies this 32-bit float. */
export function writeFloat(out: JsonSink, value: number): void {
  let shortest = value;
  for (let digits = 9; digits > 0; digits -= 1) {
    const shorter = Number(value.toPrecision(digits));
    if (!Object.is(Math.fround(shorter), value)) break;
    shortest = shorter;
  }
  writeDouble(out, shortest);
}

function numberText(value: number): string {
  return Object.is(value, -0) ? '-0' : String(value);
}

const QUOTE = 0x22;
const MINUS = 0x2d;
const POINT = 0x2e;
const ZERO = 0x30;
const NINE = 0x39;
const DECIMALS = 18;

/** Writes decimal digits, a number of any size, in quotes. */
export function writeIntegerText(out: JsonSink, bytes: Uint8Array, start: number, end: number) {
  if (start === end) return out.ascii('"0"');
  const digits = firstDigit(bytes, start, end);
  const buffer = out.reserve(end - start + 2);
  let { at } = out;
  buffer[at] = QUOTE;
  at += 1;
  for (let from = isZero(bytes, digits, end) ? digits : start; from < end; from += 1) {
    buffer[at] = bytes[from] as number;
    at += 1;
  }
  buffer[at] = QUOTE;
  out.at = at + 1;
}

/** Writes decimal digits that count 10^-18, with all 18 decimals, in quotes. */
export function writeDecimalText(out: JsonSink, bytes: Uint8Array, start: number, end: number) {
  if (start === end) return out.ascii('null');
  const digits = firstDigit(bytes, start, end);
  const buffer = out.reserve(end - start + DECIMALS + 5);
  let { at } = out;
  buffer[at] = QUOTE;
  at += 1;
  if (digits > start && !isZero(bytes, digits, end)) {
    buffer[at] = MINUS;
    at += 1;
  }
  const point = end - DECIMALS;
  if (point <= digits) {
    buffer[at] = ZERO;
    at += 1;
  }
  for (let from = Math.min(digits, point); from < end; from += 1) {
    if (from === point) {
      buffer[at] = POINT;
      at += 1;
    }
    buffer[at] = from < digits ? ZERO : (bytes[from] as number);
    at += 1;
  }
  buffer[at] = QUOTE;
  out.at = at + 1;
}

/** Where the digits begin, after a sign; throws unless the text is a canonical integer. */
function firstDigit(bytes: Uint8Array, start: number, end: number): number {
  const digits = bytes[start] === MINUS ? start + 1 : start;
  const hasLeadingZero = end - digits > 1 && bytes[digits] === ZERO;
  let isCanonical = end > digits && !hasLeadingZero;
  for (let i = digits; i < end; i += 1) {
    const byte = bytes[i] as number;
    if (byte < ZERO || byte > NINE) isCanonical = false;
  }
  if (!isCanonical) throw new WireError('The reply contains a number that is not decimal digits');
  return digits;
}

function isZero(bytes: Uint8Array, digits: number, end: number): boolean {
  return end - digits === 1 && bytes[digits] === ZERO;
}
