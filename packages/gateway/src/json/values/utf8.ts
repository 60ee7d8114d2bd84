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

/** Some first bytes narrow the second: no overlong forms, no surrogates, nothing over U+10FFFF. */
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
