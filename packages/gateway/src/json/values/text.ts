import type { JsonSink } from '../json-sink.js';
import { utf8SequenceLength } from './utf8.js';

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const LETTER_U = 0x75;
/** What is written for a byte that is not UTF-8. */
const REPLACEMENT = 0xfffd;
const LOWER_HEX = new TextEncoder().encode('0123456789abcdef');

/** An escape may take six bytes for one. */
const MOST_PER_BYTE = 6;

/** For each byte: 0 to copy it, 1 to look closer. */
const NEEDS_CARE = new Uint8Array(256).map((_, byte) =>
  byte < 0x20 || byte > 0x7f || '"\\<>&'.includes(String.fromCharCode(byte)) ? 1 : 0,
);

/** The letter after the backslash, for characters that have one. */
const SHORT_ESCAPES = new Uint8Array(0x80);
for (const [character, letter] of ['\bb', '\ff', '\nn', '\rr', '\tt', '""', '\\\\'])
  SHORT_ESCAPES[(character as string).charCodeAt(0)] = (letter as string).charCodeAt(0);

/** Writes UTF-8 as a JSON string with Go's escaping, which is also safe inside HTML. */
export function writeText(out: JsonSink, bytes: Uint8Array, start: number, end: number): void {
  const buffer = out.reserve((end - start) * MOST_PER_BYTE + 2);
  buffer[out.at] = QUOTE;
  out.at += 1;
  let from = copyPlain(out, bytes, start, end);
  let { at } = out;
  let checkedTo = from;
  while (from < end) {
    const byte = bytes[from] as number;
    if (needsCare(byte) === 0 || from < checkedTo) {
      buffer[at] = byte;
      at += 1;
      from += 1;
    } else if (byte < 0x80) {
      at = writeEscape(buffer, at, byte);
      from += 1;
    } else {
      const length = utf8SequenceLength(bytes, from, end);
      const unit = escapedUnit(bytes, from, length);
      checkedTo = from + length;
      if (unit === 0) continue;
      at = writeUnicodeEscape(buffer, at, unit);
      from += length || 1;
    }
  }
  buffer[at] = QUOTE;
  out.at = at + 1;
}

/** Copies four at a time, up to where one of four needs care; says where that is. */
function copyPlain(out: JsonSink, bytes: Uint8Array, start: number, end: number): number {
  const { buffer } = out;
  let { at } = out;
  let from = start;
  for (; from <= end - 4; from += 4) {
    const a = bytes[from] as number;
    const b = bytes[from + 1] as number;
    const c = bytes[from + 2] as number;
    const d = bytes[from + 3] as number;
    if (needsCare(a) | needsCare(b) | needsCare(c) | needsCare(d)) break;
    buffer[at] = a;
    buffer[at + 1] = b;
    buffer[at + 2] = c;
    buffer[at + 3] = d;
    at += 4;
  }
  out.at = at;
  return from;
}

const needsCare = (byte: number) => NEEDS_CARE[byte] as number;

function writeEscape(buffer: Uint8Array, at: number, character: number): number {
  const letter = SHORT_ESCAPES[character] as number;
  if (letter === 0) return writeUnicodeEscape(buffer, at, character);
  buffer[at] = BACKSLASH;
  buffer[at + 1] = letter;
  return at + 2;
}

/** What is escaped of a sequence of this length; 0 if it is copied. */
function escapedUnit(bytes: Uint8Array, at: number, length: number): number {
  return length === 0 ? REPLACEMENT : lineSeparatorAt(bytes, at);
}

/** U+2028 or U+2029 if it stands there, else 0. JSON allows both, but JavaScript once did not. */
export function lineSeparatorAt(bytes: Uint8Array, at: number): number {
  if (bytes[at] !== 0xe2 || bytes[at + 1] !== 0x80) return 0;
  const last = bytes[at + 2] as number;
  return last === 0xa8 || last === 0xa9 ? 0x2000 + (last & 0x3f) : 0;
}

export function writeUnicodeEscape(buffer: Uint8Array, at: number, unit: number): number {
  buffer[at] = BACKSLASH;
  buffer[at + 1] = LETTER_U;
  for (let i = 0; i < 4; i += 1)
    buffer[at + 2 + i] = LOWER_HEX[(unit >> (12 - 4 * i)) & 0xf] as number;
  return at + 6;
}
