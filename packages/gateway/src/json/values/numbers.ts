import type { JsonSink } from '../json-sink.js';

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

/** Writes the shortest text that still names this 32-bit float. */
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
