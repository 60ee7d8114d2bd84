import {
  createCipheriv,
  createDecipheriv,
  createSecretKey,
  hkdfSync,
  type KeyObject,
  randomBytes,
} from 'node:crypto';

const CIPHER = 'aes-256-gcm';
const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const VERSION = 'v1.';

type Opened = { readonly ok: string } | { readonly error: string };

/** Encrypts secrets at rest; a ciphertext opens only with the key and the context it was sealed with. */
export interface Vault {
  seal(text: string, context: readonly string[]): string;
  open(sealed: string, context: readonly string[]): Opened;
}

/** Derives the encryption key from the oracle's key, so that neither reveals the other. */
export function createVault(secretKey: Uint8Array): Vault {
  if (secretKey.length !== KEY_BYTES) throw new Error(`secretKey must be ${KEY_BYTES} bytes`);
  const bytes = new Uint8Array(hkdfSync('sha256', secretKey, '', 'sibyl vault v1', KEY_BYTES));
  const key = createSecretKey(bytes);
  return {
    seal: (text, context) => VERSION + encrypt(key, text, context).toString('base64'),
    open: (sealed, context) => open(key, sealed, context),
  };
}

function open(key: KeyObject, sealed: string, context: readonly string[]): Opened {
  if (!sealed.startsWith(VERSION)) return { error: 'The secret was sealed in an unknown format' };
  try {
    const bytes = Buffer.from(sealed.slice(VERSION.length), 'base64');
    return { ok: decrypt(key, bytes, context) };
  } catch {
    return {
      error:
        "The secret was sealed under another key or has been changed; is the oracle's key the same?",
    };
  }
}

function encrypt(key: KeyObject, text: string, context: readonly string[]): Buffer {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv(CIPHER, key, nonce).setAAD(toAad(context));
  const body = Buffer.concat([cipher.update(text, 'utf8'), cipher.final()]);
  return Buffer.concat([nonce, cipher.getAuthTag(), body]);
}

function decrypt(key: KeyObject, bytes: Buffer, context: readonly string[]): string {
  const nonce = bytes.subarray(0, NONCE_BYTES);
  const tag = bytes.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES);
  const body = bytes.subarray(NONCE_BYTES + TAG_BYTES);
  const decipher = createDecipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES });
  decipher.setAAD(toAad(context)).setAuthTag(tag);
  return Buffer.concat([decipher.update(body), decipher.final()]).toString('utf8');
}

/** As JSON, so that different contexts never have the same bytes. */
function toAad(context: readonly string[]): Buffer {
  return Buffer.from(JSON.stringify(context));
}
