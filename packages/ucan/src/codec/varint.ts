/** Unsigned LEB128 of a non-negative integer. */
export function varint(value: number): number[] {
  const out: number[] = [];
  let rest = value;
  while (rest > 127) {
    out.push((rest & 127) | 128);
    rest = Math.floor(rest / 128);
  }
  out.push(rest);
  return out;
}

export interface Varint {
  readonly value: number;
  readonly next: number;
}

// Four bytes hold 2^28: more than any length or code a token may carry.
const MAX_BYTES = 4;

/** Reads a varint in its shortest form only, since a longer one would give one token two encodings. */
export function readVarint(bytes: Uint8Array, offset: number): Varint | undefined {
  let value = 0;
  for (let i = 0; i < MAX_BYTES; i += 1) {
    const byte = bytes[offset + i];
    if (byte === undefined) return undefined;
    value |= (byte & 127) << (7 * i);
    if (byte < 128) {
      return byte === 0 && i > 0 ? undefined : { value, next: offset + i + 1 };
    }
  }
  return undefined;
}
