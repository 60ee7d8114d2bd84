import { OracleClientError } from '../errors.js';
import type { PasskeyLock } from './key-database.js';
import { requireSubtleCrypto } from './key-format.js';

const INFO = new TextEncoder().encode('sibyl key protected by a passkey');
const TIMEOUT_MS = 120_000;

/** Why keys of this page cannot be protected by a passkey; undefined if they can. */
export function checkPasskeySupport(): 'browser' | 'address' | undefined {
  if (typeof PublicKeyCredential === 'undefined' || !navigator.credentials) return 'browser';
  // A passkey belongs to a domain.
  return /^[\d.]+$|:/.test(location.hostname) ? 'address' : undefined;
}

/** Creates a passkey and encrypts a seed so that only this passkey can decrypt it. */
export async function createLock(seed: Uint8Array, user: PasskeyUser): Promise<PasskeyLock> {
  const salt = crypto.getRandomValues(new Uint8Array(32));
  const credentialId = await createPasskey(user, salt);
  const iv = crypto.getRandomValues(new Uint8Array(12));
  const key = await deriveKey(await evaluate(credentialId, salt));
  const encrypted = await requireSubtleCrypto().encrypt(
    { name: 'AES-GCM', iv },
    key,
    Uint8Array.from(seed),
  );
  return { credentialId, salt, iv, ciphertext: new Uint8Array(encrypted) };
}

/** Asks for the passkey and decrypts the seed. */
export async function openLock({
  credentialId,
  salt,
  iv,
  ciphertext,
}: PasskeyLock): Promise<Uint8Array> {
  const key = await deriveKey(await evaluate(credentialId, salt));
  const seed = await requireSubtleCrypto().decrypt({ name: 'AES-GCM', iv }, key, ciphertext);
  return new Uint8Array(seed);
}

export interface PasskeyUser {
  readonly did: string;
  /** What the browser shows in its list of passkeys. */
  readonly name: string;
}

async function createPasskey(
  { did, name }: PasskeyUser,
  salt: Uint8Array<ArrayBuffer>,
): Promise<Uint8Array<ArrayBuffer>> {
  const id = await requireSubtleCrypto().digest('SHA-256', new TextEncoder().encode(did));
  const created = await ask(
    navigator.credentials.create({
      publicKey: {
        challenge: crypto.getRandomValues(new Uint8Array(32)),
        rp: { name: document.title || location.hostname },
        user: { id, name, displayName: name },
        pubKeyCredParams: [
          { type: 'public-key', alg: -7 },
          { type: 'public-key', alg: -257 },
        ],
        authenticatorSelection: { residentKey: 'preferred', userVerification: 'required' },
        timeout: TIMEOUT_MS,
        extensions: { prf: { eval: { first: salt } } },
      },
    }),
  );
  if (!created.getClientExtensionResults().prf?.enabled) throw unsupported();
  return new Uint8Array(created.rawId);
}

/** The output of the passkey's pseudo-random function. */
async function evaluate(
  id: Uint8Array<ArrayBuffer>,
  salt: Uint8Array<ArrayBuffer>,
): Promise<ArrayBuffer> {
  const credential = await ask(
    navigator.credentials.get({
      publicKey: {
        challenge: crypto.getRandomValues(new Uint8Array(32)),
        allowCredentials: [{ type: 'public-key', id }],
        userVerification: 'required',
        timeout: TIMEOUT_MS,
        extensions: { prf: { eval: { first: salt } } },
      },
    }),
  );
  const first = credential.getClientExtensionResults().prf?.results?.first;
  if (!first) throw unsupported();
  return first as ArrayBuffer;
}

async function ask(question: Promise<Credential | null>): Promise<PublicKeyCredential> {
  const credential = await question.catch((cause) => {
    throw new OracleClientError('key_locked', 'The passkey was not confirmed', { cause });
  });
  if (credential) return credential as PublicKeyCredential;
  throw new OracleClientError('key_locked', 'The passkey was not confirmed');
}

const unsupported = () =>
  new OracleClientError(
    'unsupported_platform',
    'This passkey cannot protect keys. Use another device or password manager.',
  );

async function deriveKey(secret: ArrayBuffer): Promise<CryptoKey> {
  const subtle = requireSubtleCrypto();
  const base = await subtle.importKey('raw', secret, 'HKDF', false, ['deriveKey']);
  return subtle.deriveKey(
    { name: 'HKDF', hash: 'SHA-256', salt: new Uint8Array(), info: INFO },
    base,
    { name: 'AES-GCM', length: 256 },
    false,
    ['encrypt', 'decrypt'],
  );
}
