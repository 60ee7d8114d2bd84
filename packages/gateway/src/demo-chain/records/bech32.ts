import { fiveBitDigits } from './five-bit-digits.js';

const ALPHABET = 'qpzry9x8gf2tvdw0s3jn54khce6mua7l';
const GENERATOR = [0x3b6a57b2, 0x26508e6d, 0x1ea119fa, 0x3d4233dd, 0x2a1462b3];
const CHECKSUM_DIGITS = 6;

/** Bytes as chains print addresses: a prefix, five bits a character, and a checksum. */
export function bech32(prefix: string, bytes: Uint8Array): string {
  const data = fiveBitDigits(bytes);
  const digits = [...data, ...checksumOf(prefix, data)];
  return `${prefix}1${digits.map((digit) => ALPHABET[digit]).join('')}`;
}

function checksumOf(prefix: string, data: readonly number[]): number[] {
  const codes = [...prefix].map((letter) => letter.charCodeAt(0));
  const high = codes.map((code) => code >> 5);
  const low = codes.map((code) => code & 31);
  const sum = polymod([...high, 0, ...low, ...data, ...Array(CHECKSUM_DIGITS).fill(0)]) ^ 1;
  return Array.from({ length: CHECKSUM_DIGITS }, (_, i) => (sum >> (5 * (5 - i))) & 31);
}

function polymod(values: readonly number[]): number {
  return values.reduce((sum, value) => {
    const shifted = ((sum & 0x1ffffff) << 5) ^ value;
    return GENERATOR.reduce((at, term, i) => (((sum >> 25) >> i) & 1 ? at ^ term : at), shifted);
  }, 1);
}
