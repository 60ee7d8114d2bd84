import { quote, ValueFault } from '../bind-fault.js';

/** How forgiving base64 is read: `node` as the node does, else every variant that can be meant. */
export type Base64Reading = 'node' | 'tolerant';

const STANDARD = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;
const URL_SAFE = /^(?:[A-Za-z0-9_-]{4})*(?:[A-Za-z0-9_-]{2}==|[A-Za-z0-9_-]{3}=)?$/;

/** Standard or URL-safe base64; tolerant also of lost padding, and of a plus that a form made a space. */
export function parseBase64(text: string, reading: Base64Reading): Uint8Array {
  const plain = reading === 'node' ? text.replace(/[\r\n]/g, '') : repair(text);
  if (!STANDARD.test(plain) && !URL_SAFE.test(plain))
    throw new ValueFault(`${quote(text)} is not base64`);
  return Buffer.from(plain, 'base64');
}

function repair(text: string): string {
  const plain = text
    .replaceAll(' ', '+')
    .replaceAll('-', '+')
    .replaceAll('_', '/')
    .replace(/=+$/, '');
  return plain.padEnd(Math.ceil(plain.length / 4) * 4, '=');
}

export function parseHex(text: string): Uint8Array {
  if (!/^(?:[0-9a-f]{2})*$/i.test(text)) throw new ValueFault(`${quote(text)} is not hex`);
  return Buffer.from(text, 'hex');
}
