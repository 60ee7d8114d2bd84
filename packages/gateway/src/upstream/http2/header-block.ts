/** A field that nobody is to remember: each request says all it has to say (RFC 7541, 6.2.2). */
const NOT_REMEMBERED = 0;
/** From here on a length takes more than the seven bits of its first byte. */
const LONG_TEXT = 127;
/** What a text may take beside its characters. */
const MOST_PREFIX_BYTES = 6;

/** Encodes header fields, given as names and values by turns. */
export function headerBlockOf(fields: readonly string[]): Buffer {
  const room = fields.reduce((sum, text) => sum + text.length + MOST_PREFIX_BYTES, 0);
  const block = Buffer.allocUnsafe(room);
  let at = 0;
  fields.forEach((text, i) => {
    if (i % 2 === 0) block[at++] = NOT_REMEMBERED;
    at = writeLength(block, at, text.length);
    at += block.write(text, at, 'latin1');
  });
  return block.subarray(0, at);
}

function writeLength(block: Buffer, at: number, length: number): number {
  if (length < LONG_TEXT) {
    block[at] = length;
    return at + 1;
  }
  block[at++] = LONG_TEXT;
  let rest = length - LONG_TEXT;
  for (; rest > 0x7f; rest >>>= 7) block[at++] = (rest & 0x7f) | 0x80;
  block[at++] = rest;
  return at;
}
