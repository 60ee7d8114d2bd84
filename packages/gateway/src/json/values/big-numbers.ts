import type { JsonSink } from '../json-sink.js';
import { WireFault } from '../wire-fault.js';

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

/** Where the digits begin, after a sign; faults on anything that is not one canonical integer. */
function firstDigit(bytes: Uint8Array, start: number, end: number): number {
  const digits = bytes[start] === MINUS ? start + 1 : start;
  const hasLeadingZero = end - digits > 1 && bytes[digits] === ZERO;
  let isCanonical = end > digits && !hasLeadingZero;
  for (let i = digits; i < end; i += 1) {
    const byte = bytes[i] as number;
    if (byte < ZERO || byte > NINE) isCanonical = false;
  }
  if (!isCanonical) throw new WireFault('The reply holds a number that is not decimal digits');
  return digits;
}

function isZero(bytes: Uint8Array, digits: number, end: number): boolean {
  return end - digits === 1 && bytes[digits] === ZERO;
}
