import type { JsonSink } from '../json-sink.js';

const QUOTE = 0x22;
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
