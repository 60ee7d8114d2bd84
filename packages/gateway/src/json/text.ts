import type { JsonSink } from './json-sink.js';
import { WireError } from './wire-reader.js';

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const LETTER_U = 0x75;
/** The replacement for invalid UTF-8. */
const REPLACEMENT = 0xfffd;
const LOWER_HEX = new TextEncoder().encode('0123456789abcdef');

/** An escape may take six bytes for one. */
const MOST_PER_BYTE = 6;

/** For each byte: 0 to copy it, 1 to escape or validate it. */
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

/** The bytes that were read last, most often those of one whole message. */
let source: Uint8Array = new Uint8Array();
let sourceView = new DataView(source.buffer);

function view(bytes: Uint8Array): DataView {
  if (bytes === source) return sourceView;
  source = bytes;
  sourceView = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return sourceView;
}

/** Copies four bytes at a time until one needs care; returns where it stopped. */
function copyPlain(out: JsonSink, bytes: Uint8Array, start: number, end: number): number {
  const { view: target } = out;
  let { at } = out;
  let from = start;
  const from4 = view(bytes);
  for (; from <= end - 4; from += 4) {
    const four = from4.getInt32(from, true);
    if (findCare(four) !== 0) break;
    target.setInt32(at, four, true);
    at += 4;
  }
  out.at = at;
  return from;
}

/**
 * Whether one of four bytes needs care, without a loop: each term has the high bit of a byte set if that byte is not
 * ASCII, is below a space, or became zero by the exclusive or. Two pairs of characters differ in a single bit.
 */
function findCare(four: number): number {
  const quoteOrAnd = (four | 0x04040404) ^ 0x26262626;
  const angle = (four | 0x02020202) ^ 0x3e3e3e3e;
  const backslash = four ^ 0x5c5c5c5c;
  const found =
    four |
    (four - 0x20202020) |
    (quoteOrAnd - 0x01010101) |
    (angle - 0x01010101) |
    (backslash - 0x01010101);
  return found & 0x80808080;
}

const needsCare = (byte: number) => NEEDS_CARE[byte] as number;

function writeEscape(buffer: Uint8Array, at: number, character: number): number {
  const letter = SHORT_ESCAPES[character] as number;
  if (letter === 0) return writeUnicodeEscape(buffer, at, character);
  buffer[at] = BACKSLASH;
  buffer[at + 1] = letter;
  return at + 2;
}

/** The character to escape for a sequence of this length; 0 to copy it. */
function escapedUnit(bytes: Uint8Array, at: number, length: number): number {
  return length === 0 ? REPLACEMENT : lineSeparatorAt(bytes, at);
}

/** U+2028 or U+2029 at this position, else 0. JSON allows both, but JavaScript once did not. */
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

/** The length of the UTF-8 sequence that begins at `at`; 0 if none does. ASCII is not expected here. */
export function utf8SequenceLength(bytes: Uint8Array, at: number, end: number): number {
  const first = bytes[at] as number;
  const length = lengthByFirstByte(first);
  if (length === 0 || length > end - at) return 0;
  if (!isSecondByte(first, bytes[at + 1] as number)) return 0;
  for (let i = 2; i < length; i += 1) if (!isContinuation(bytes[at + i] as number)) return 0;
  return length;
}

function lengthByFirstByte(byte: number): number {
  if (byte < 0xc2 || byte > 0xf4) return 0;
  if (byte < 0xe0) return 2;
  return byte < 0xf0 ? 3 : 4;
}

/** Some first bytes limit the second: no overlong forms, no surrogates, nothing over U+10FFFF. */
function isSecondByte(first: number, second: number): boolean {
  if (first === 0xe0) return second >= 0xa0 && second <= 0xbf;
  if (first === 0xed) return second >= 0x80 && second <= 0x9f;
  if (first === 0xf0) return second >= 0x90 && second <= 0xbf;
  if (first === 0xf4) return second >= 0x80 && second <= 0x8f;
  return isContinuation(second);
}

function isContinuation(byte: number): boolean {
  return (byte & 0xc0) === 0x80;
}

/** For each byte: 1 if it is whitespace. */
const IS_SPACE = new Uint8Array(256);
for (const byte of [0x20, 0x09, 0x0a, 0x0d]) IS_SPACE[byte] = 1;
/** For each byte: 1 for HTML characters and for the first byte of a line separator. */
const MAY_ESCAPE = new Uint8Array(256);
for (const byte of [0x3c, 0x3e, 0x26, 0xe2]) MAY_ESCAPE[byte] = 1;

/** Writes JSON bytes without the whitespace between tokens, with Go's HTML escaping. */
export function writeRawJson(out: JsonSink, bytes: Uint8Array, start: number, end: number): void {
  assertJson(bytes.subarray(start, end));
  const buffer = out.reserve(maxRawLength(bytes, start, end));
  for (let from = start; from < end; ) {
    const byte = bytes[from] as number;
    from += 1;
    if (IS_SPACE[byte] === 1) continue;
    buffer[out.at] = byte;
    out.at += 1;
    if (byte === QUOTE) from = writeRawString(out, bytes, from, end);
  }
}

/** Writes the rest of a string after its first quote; returns where it ends. */
function writeRawString(out: JsonSink, bytes: Uint8Array, start: number, end: number): number {
  for (let from = start; from < end; ) {
    from = copyPlain(out, bytes, from, end);
    for (const stop = Math.min(end, from + 4); from < stop; ) {
      const byte = bytes[from] as number;
      from = writeRawCharacter(out, bytes, from);
      if (byte === QUOTE) return from;
    }
  }
  return end;
}

/** Writes a byte, with what a backslash escapes, or a character that must be escaped; returns where it ends. */
function writeRawCharacter(out: JsonSink, bytes: Uint8Array, from: number): number {
  const { buffer, at } = out;
  const byte = bytes[from] as number;
  const unit = escapedRawUnit(bytes, from);
  if (unit !== 0) {
    out.at = writeUnicodeEscape(buffer, at, unit);
    return from + (unit > 0xff ? 3 : 1);
  }
  buffer[at] = byte;
  out.at = at + 1;
  if (byte !== BACKSLASH) return from + 1;
  buffer[at + 1] = bytes[from + 1] as number;
  out.at = at + 2;
  return from + 2;
}

/** The space for a value, which may be long: six bytes for each would take longer to allocate than to write. */
function maxRawLength(bytes: Uint8Array, start: number, end: number): number {
  let length = end - start;
  for (let from = start; from < end; from += 1)
    length += (MOST_PER_BYTE - 1) * (MAY_ESCAPE[bytes[from] as number] as number);
  return length;
}

/** The character to escape at this position; 0 to copy it. */
function escapedRawUnit(bytes: Uint8Array, at: number): number {
  const byte = bytes[at] as number;
  if (MAY_ESCAPE[byte] === 0) return 0;
  return byte === 0xe2 ? lineSeparatorAt(bytes, at) : byte;
}

function assertJson(bytes: Uint8Array): void {
  try {
    JSON.parse(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString());
  } catch (cause) {
    throw new WireError('The reply contains a contract message that is not JSON', { cause });
  }
}

const PADDING = 0x3d;
const encoder = new TextEncoder();
const BASE64 = encoder.encode('ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/');
const UPPER_HEX = encoder.encode('0123456789ABCDEF');

/** Writes padded standard base64 in quotes. */
export function writeBase64(out: JsonSink, bytes: Uint8Array, start: number, end: number): void {
  const buffer = out.reserve(Math.ceil((end - start) / 3) * 4 + 2);
  let { at } = out;
  buffer[at] = QUOTE;
  at += 1;
  for (let from = start; from < end; from += 3) {
    const left = end - from;
    const first = bytes[from] as number;
    const second = left > 1 ? (bytes[from + 1] as number) : 0;
    const third = left > 2 ? (bytes[from + 2] as number) : 0;
    buffer[at] = BASE64[first >> 2] as number;
    buffer[at + 1] = BASE64[((first & 3) << 4) | (second >> 4)] as number;
    buffer[at + 2] = left > 1 ? (BASE64[((second & 15) << 2) | (third >> 6)] as number) : PADDING;
    buffer[at + 3] = left > 2 ? (BASE64[third & 63] as number) : PADDING;
    at += 4;
  }
  buffer[at] = QUOTE;
  out.at = at + 1;
}

/** Writes upper-case hex in quotes. */
export function writeHex(out: JsonSink, bytes: Uint8Array, start: number, end: number): void {
  const buffer = out.reserve((end - start) * 2 + 2);
  let { at } = out;
  buffer[at] = QUOTE;
  at += 1;
  for (let from = start; from < end; from += 1) {
    const byte = bytes[from] as number;
    buffer[at] = UPPER_HEX[byte >> 4] as number;
    buffer[at + 1] = UPPER_HEX[byte & 15] as number;
    at += 2;
  }
  buffer[at] = QUOTE;
  out.at = at + 1;
}
