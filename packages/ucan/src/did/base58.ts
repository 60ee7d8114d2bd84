const ALPHABET = '123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz';
const DIGITS = new Map([...ALPHABET].map((character, digit) => [character, digit]));

/** The conversion is quadratic, so longer text is refused; a key is at most 48 characters. */
const MAX_TEXT = 64;

/** Writes bytes in the Bitcoin alphabet. */
export function encodeBase58(bytes: Uint8Array): string {
  const zeros = leadingZeros(bytes);
  const digits = convert(bytes.subarray(zeros), 256, 58);
  return '1'.repeat(zeros) + digits.map((digit) => ALPHABET[digit]).join('');
}

/** Reads base58btc; undefined for a foreign character or for more than a key could need. */
export function decodeBase58(text: string): Uint8Array | undefined {
  if (text.length > MAX_TEXT) return undefined;
  const digits: number[] = [];
  for (const character of text) {
    const digit = DIGITS.get(character);
    if (digit === undefined) return undefined;
    digits.push(digit);
  }
  const zeros = leadingZeros(digits);
  return Uint8Array.from([...new Array(zeros).fill(0), ...convert(digits.slice(zeros), 58, 256)]);
}

function leadingZeros(digits: ArrayLike<number>): number {
  let count = 0;
  while (count < digits.length && digits[count] === 0) count++;
  return count;
}

/** Changes the base of a big-endian number by repeated multiplication. */
function convert(digits: Iterable<number>, from: number, to: number): number[] {
  const result: number[] = [];
  for (const digit of digits) {
    let carry = digit;
    for (let i = 0; i < result.length; i++) {
      carry += (result[i] ?? 0) * from;
      result[i] = carry % to;
      carry = Math.floor(carry / to);
    }
    for (; carry > 0; carry = Math.floor(carry / to)) result.push(carry % to);
  }
  return result.reverse();
}
