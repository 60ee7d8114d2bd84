import { ErrorCode, ProtocolFault } from './protocol.js';

/**
 * The symbols whose codes have so many bits, in hexadecimal (RFC 7541, appendix B). Codes rise with their length, and
 * within a length with the symbol, so that nothing else has to be known of them.
 */
const SYMBOLS: Readonly<Record<number, string>> = {
  5: '30-32 61 63 65 69 6f 73 74',
  6: '20 25 2d-2f 33-39 3d 41 5f 62 64 66-68 6c-6e 70 72 75',
  7: '3a 42-57 59 6a 6b 71 76-7a',
  8: '26 2a 2c 3b 58 5a',
  10: '21 22 28 29 3f',
  11: '27 2b 7c',
  12: '23 3e',
  13: '00 24 40 5b 5d 7e',
  14: '5e 7d',
  15: '3c 60 7b',
  19: '5c c3 d0',
  20: '80 82 83 a2 b8 c2 e0 e2',
  21: '99 a1 a7 ac b0 b1 b3 d1 d8 d9 e3 e5 e6',
  22: '81 84-86 88 92 9a 9c a0 a3 a4 a9 aa ad b2 b5 b9-bb bd be c4 c6 e4 e8 e9',
  23: '01 87 89-8d 8f 93 95-98 9b 9d 9e a5 a6 a8 ae af b4 b6 b7 bc bf c5 e7 ef',
  24: '09 8e 90 91 94 9f ab ce d7 e1 ec ed',
  25: 'c7 cf ea eb',
  26: 'c0 c1 c8-ca cd d2 d5 da db ee f0 f2 f3 ff',
  27: 'cb cc d3 d4 d6 dd-df f1 f4-f8 fa-fe',
  28: '02-08 0b 0c 0e-15 17-1f 7f dc f9',
  30: '0a 0d 16 100',
};

const MAX_BITS = 30;
const END_OF_STRING = 256;

/** The codes of one length. */
interface Codes {
  readonly first: number;
  readonly symbols: readonly number[];
}

const CODES: readonly Codes[] = assignCodes();

function assignCodes(): Codes[] {
  let next = 0;
  return Array.from({ length: MAX_BITS + 1 }, (_, bits) => {
    const symbols = (SYMBOLS[bits] ?? '').split(' ').flatMap(symbolsOf);
    const codes = { first: next, symbols };
    next = (next + symbols.length) * 2;
    return codes;
  });
}

/** `61` or `30-32`. */
function symbolsOf(range: string): number[] {
  if (range === '') return [];
  const [from = 0, to = from] = range.split('-').map((hex) => Number.parseInt(hex, 16));
  return Array.from({ length: to - from + 1 }, (_, i) => from + i);
}

/** Reads a text in which frequent characters take fewer bits. */
export function decodeHuffman(bytes: Uint8Array): string {
  let text = '';
  let code = 0;
  let bits = 0;
  for (const byte of bytes) {
    for (let place = 7; place >= 0; place--) {
      code = (code << 1) | ((byte >> place) & 1);
      bits += 1;
      const symbol = symbolOf(code, bits);
      if (symbol === undefined) continue;
      text += String.fromCharCode(symbol);
      code = 0;
      bits = 0;
    }
  }
  // The last byte is filled with the beginning of the end's code, which is all ones.
  if (bits > 7 || code !== (1 << bits) - 1) throw badText();
  return text;
}

function symbolOf(code: number, bits: number): number | undefined {
  const codes = CODES[bits];
  const symbol = codes?.symbols[code - codes.first];
  if (!codes || symbol === END_OF_STRING) throw badText();
  return symbol;
}

function badText(): ProtocolFault {
  return new ProtocolFault('a header is not encoded as it says', ErrorCode.compression);
}
