import { quote, ValueFault } from '../bind-fault.js';

/** How forgiving base64 is read: `node` as the node does, else every variant that can be meant. */
export type Base64Reading = 'node' | 'tolerant';

const STANDARD = /^[A-Za-z0-9+/]*={0,2}$/;
const URL_SAFE = /^[A-Za-z0-9_-]*={0,2}$/;
const TOLERANT = /^[A-Za-z0-9+/_ -]*$/;

/** Standard or URL-safe base64; tolerant also of lost padding, and of a plus that a form made a space. */
export function parseBase64(text: string, reading: Base64Reading): Uint8Array {
  const bytes = reading === 'node' ? parsePadded(text) : parseTolerant(text);
  if (!bytes) throw new ValueFault(`${quote(text)} is not base64`);
  return bytes;
}

function parsePadded(text: string): Uint8Array | undefined {
  const plain = text.replace(/[\r\n]/g, '');
  const isWhole = plain.length % 4 === 0 && (STANDARD.test(plain) || URL_SAFE.test(plain));
  return isWhole ? Buffer.from(plain, 'base64') : undefined;
}

function parseTolerant(text: string): Uint8Array | undefined {
  const plain = withoutPadding(text);
  if (plain.length % 4 === 1 || !TOLERANT.test(plain)) return undefined;
  // Both alphabets are decoded alike, but a space is skipped.
  const symbols = Buffer.from(plain, 'latin1');
  for (let at = symbols.indexOf(SPACE); at >= 0; at = symbols.indexOf(SPACE, at))
    symbols[at] = PLUS;
  return Buffer.from(symbols.toString('latin1'), 'base64');
}

const [SPACE = 0, PLUS = 0] = Buffer.from(' +');

/** Not a regular expression: one that looks for the end from every place takes minutes for a long text. */
function withoutPadding(text: string): string {
  let end = text.length;
  while (end > 0 && text[end - 1] === '=') end -= 1;
  return text.slice(0, end);
}

export function parseHex(text: string): Uint8Array {
  if (!/^(?:[0-9a-f]{2})*$/i.test(text)) throw new ValueFault(`${quote(text)} is not hex`);
  return Buffer.from(text, 'hex');
}
