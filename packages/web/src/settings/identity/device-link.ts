const PARAMETER = 'key';
const DIGITS = 6;

/** A key from another device, by a QR code; its number decrypts it. */
let arrived: Uint8Array | undefined;

/** Takes a key out of the address, before anything else reads it, so that it does not stay in the history. */
export function takeDeviceKey(): void {
  const text = new URLSearchParams(location.hash.slice(1)).get(PARAMETER);
  if (text === null) return;
  arrived = parseBase64Url(text);
  history.replaceState(history.state, '', '#/settings/key');
}

export const findDeviceKey = (): Uint8Array | undefined => arrived;

export function forgetDeviceKey(): void {
  arrived = undefined;
}

/** The address for the QR code. What follows `#` is not sent to any server. */
export function formatDeviceLink(packed: Uint8Array): string {
  const page = location.href.split('#')[0];
  return `${page}#${PARAMETER}=${formatBase64Url(packed)}`;
}

/** A number for the other device, without which the QR code is useless. */
export function chooseNumber(): string {
  const digits = crypto.getRandomValues(new Uint32Array(DIGITS));
  return Array.from(digits, (random) => random % 10).join('');
}

/** In pairs, as people read it out. */
export const formatNumberPairs = (number: string): string =>
  number.match(/../g)?.join(' ') ?? number;

/** A QR code as an SVG path; each module is one unit. */
export async function drawQrCode(
  text: string,
): Promise<{ readonly path: string; readonly size: number }> {
  const { default: encodeQR } = await import('qr');
  const rows = encodeQR(text, 'raw', { border: 1, ecc: 'medium' });
  const path = rows
    .flatMap((row, y) => row.flatMap((isDark, x) => (isDark ? [`M${x} ${y}h1v1h-1z`] : [])))
    .join('');
  return { path, size: rows.length };
}

const formatBase64Url = (bytes: Uint8Array): string =>
  btoa(String.fromCharCode(...bytes))
    .replaceAll('+', '-')
    .replaceAll('/', '_')
    .replaceAll('=', '');

function parseBase64Url(text: string): Uint8Array | undefined {
  try {
    const base64 = text.replaceAll('-', '+').replaceAll('_', '/');
    return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  } catch {
    return undefined;
  }
}
