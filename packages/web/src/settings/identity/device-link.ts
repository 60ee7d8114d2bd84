/** Where a link has the key. */
export const PARAMETER = 'key';

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

function parseBase64Url(text: string): Uint8Array | undefined {
  try {
    const base64 = text.replaceAll('-', '+').replaceAll('_', '/');
    return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  } catch {
    return undefined;
  }
}
