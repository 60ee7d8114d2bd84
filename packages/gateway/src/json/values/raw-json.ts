import type { JsonSink } from '../json-sink.js';
import { WireFault } from '../wire-fault.js';
import { lineSeparatorAt, writeUnicodeEscape } from './text.js';

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const MOST_PER_BYTE = 6;
const SPACES = new Set([0x20, 0x09, 0x0a, 0x0d]);
const HTML_CHARACTERS = new Set([0x3c, 0x3e, 0x26]);

/** Writes bytes that hold JSON as they are, less the space between tokens, with Go's HTML escaping. */
export function writeRawJson(out: JsonSink, bytes: Uint8Array, start: number, end: number): void {
  assertJson(bytes.subarray(start, end));
  const buffer = out.reserve((end - start) * MOST_PER_BYTE);
  let { at } = out;
  let from = start;
  let isInString = false;
  let isEscaped = false;
  while (from < end) {
    const byte = bytes[from] as number;
    if (byte === QUOTE && !isEscaped) isInString = !isInString;
    isEscaped = byte === BACKSLASH && !isEscaped;
    const unit = escapedUnit(bytes, from);
    if (unit !== 0) at = writeUnicodeEscape(buffer, at, unit);
    else if (isInString || !SPACES.has(byte)) {
      buffer[at] = byte;
      at += 1;
    }
    from += unit > 0xff ? 3 : 1;
  }
  out.at = at;
}

/** The character that is escaped there; 0 if it is copied. */
function escapedUnit(bytes: Uint8Array, at: number): number {
  const byte = bytes[at] as number;
  return HTML_CHARACTERS.has(byte) ? byte : lineSeparatorAt(bytes, at);
}

function assertJson(bytes: Uint8Array): void {
  try {
    JSON.parse(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString());
  } catch (cause) {
    throw new WireFault('The reply holds a contract message that is not JSON', { cause });
  }
}
