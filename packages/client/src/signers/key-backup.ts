import { OracleClientError } from '../errors.js';
import { formatBase64, parseBase64, requireSubtleCrypto, SEED_BYTES } from './key-format.js';

/** About half a second on a phone; three times what OWASP recommends for PBKDF2 with SHA-512. */
const ITERATIONS = 600_000;
/** A file that asks for more would freeze the page. */
const MAX_ITERATIONS = 10_000_000;
const FORMAT = 'sibyl-key-backup';

/** A seed, encrypted under a passphrase. */
interface KeyBackup {
  readonly format: typeof FORMAT;
  readonly version: 1;
  readonly did: string;
  readonly name?: string;
  readonly createdAt: string;
  readonly kdf: 'PBKDF2-SHA-512';
  readonly iterations: number;
  /** Base64, as `iv` and `ciphertext`. */
  readonly salt: string;
  readonly cipher: 'AES-256-GCM';
  readonly iv: string;
  readonly ciphertext: string;
}

export interface BackupSubject {
  readonly did: string;
  readonly name?: string | undefined;
}

/** A key read from a backup. */
export interface RestoredKey {
  readonly seed: Uint8Array;
  readonly name: string | undefined;
}

/** Encrypts a key with a passphrase; returns the text of a file. */
export async function encryptKeyBackup(
  seed: Uint8Array,
  passphrase: string,
  { did, name }: BackupSubject,
): Promise<string> {
  const head = {
    format: FORMAT,
    version: 1,
    did,
    ...(name !== undefined && { name }),
    createdAt: new Date().toISOString(),
  } as const;
  const sealed = await sealSeed(seed, passphrase);
  const backup: KeyBackup = {
    ...head,
    kdf: 'PBKDF2-SHA-512',
    iterations: ITERATIONS,
    salt: formatBase64(sealed.salt),
    cipher: 'AES-256-GCM',
    iv: formatBase64(sealed.iv),
    ciphertext: formatBase64(sealed.ciphertext),
  };
  return `${JSON.stringify(backup, null, 2)}\n`;
}

/** Decrypts the text of a backup file. */
export async function decryptKeyBackup(text: string, passphrase: string): Promise<RestoredKey> {
  const backup = parseBackup(text);
  const { iterations, name } = backup;
  const parts = readParts(backup);
  return { seed: await openSeed({ ...parts, iterations }, passphrase), name };
}

/** The DID in a backup file, which needs no passphrase. */
export const readBackupDid = (text: string): string => parseBackup(text).did;

/** The bytes of a sealed seed, for places with little room, such as a QR code: salt, iv, ciphertext. */
export async function packSeed(seed: Uint8Array, passphrase: string): Promise<Uint8Array> {
  const { salt, iv, ciphertext } = await sealSeed(seed, passphrase);
  return Uint8Array.from([...salt, ...iv, ...ciphertext]);
}

export async function unpackSeed(packed: Uint8Array, passphrase: string): Promise<Uint8Array> {
  const salt = packed.slice(0, SALT_BYTES);
  const iv = packed.slice(SALT_BYTES, SALT_BYTES + IV_BYTES);
  const ciphertext = packed.slice(SALT_BYTES + IV_BYTES);
  return openSeed({ salt, iv, ciphertext, iterations: ITERATIONS }, passphrase);
}

const SALT_BYTES = 16;
const IV_BYTES = 12;

interface SealedSeed {
  readonly salt: Uint8Array<ArrayBuffer>;
  readonly iv: Uint8Array<ArrayBuffer>;
  readonly ciphertext: Uint8Array<ArrayBuffer>;
}

async function sealSeed(seed: Uint8Array, passphrase: string): Promise<SealedSeed> {
  const salt = crypto.getRandomValues(new Uint8Array(SALT_BYTES));
  const iv = crypto.getRandomValues(new Uint8Array(IV_BYTES));
  const key = await deriveKey(passphrase, salt, ITERATIONS);
  const encrypted = await requireSubtleCrypto().encrypt(
    { name: 'AES-GCM', iv },
    key,
    Uint8Array.from(seed),
  );
  return { salt, iv, ciphertext: new Uint8Array(encrypted) };
}

async function openSeed(
  { salt, iv, ciphertext, iterations }: SealedSeed & { readonly iterations: number },
  passphrase: string,
): Promise<Uint8Array> {
  const key = await deriveKey(passphrase, salt, iterations);
  try {
    const seed = await requireSubtleCrypto().decrypt({ name: 'AES-GCM', iv }, key, ciphertext);
    if (seed.byteLength === SEED_BYTES) return new Uint8Array(seed);
  } catch {
    throw new OracleClientError('key_passphrase_wrong', 'Wrong passphrase, or a damaged backup');
  }
  throw damaged();
}

async function deriveKey(
  passphrase: string,
  salt: Uint8Array<ArrayBuffer>,
  iterations: number,
): Promise<CryptoKey> {
  const subtle = requireSubtleCrypto();
  // The same text may be typed in several Unicode forms.
  const secret = new TextEncoder().encode(passphrase.normalize('NFKC'));
  const base = await subtle.importKey('raw', secret, 'PBKDF2', false, ['deriveKey']);
  return subtle.deriveKey(
    { name: 'PBKDF2', hash: 'SHA-512', salt, iterations },
    base,
    { name: 'AES-GCM', length: 256 },
    false,
    ['encrypt', 'decrypt'],
  );
}

function parseBackup(text: string): KeyBackup {
  const backup = parseJson(text) as Partial<KeyBackup> | undefined;
  if (backup?.format !== FORMAT)
    throw new OracleClientError('key_invalid', 'This file is not a backup of a key');
  if (backup.version !== 1)
    throw new OracleClientError('key_invalid', 'This backup was made by a newer version');
  const { iterations, did, name, kdf, cipher } = backup;
  const isValid =
    kdf === 'PBKDF2-SHA-512' &&
    cipher === 'AES-256-GCM' &&
    typeof did === 'string' &&
    (name === undefined || typeof name === 'string') &&
    Number.isInteger(iterations) &&
    Number(iterations) >= 1 &&
    Number(iterations) <= MAX_ITERATIONS;
  if (!isValid) throw damaged();
  return backup as KeyBackup;
}

function readParts({ salt, iv, ciphertext }: KeyBackup): SealedSeed {
  try {
    return { salt: parseBase64(salt), iv: parseBase64(iv), ciphertext: parseBase64(ciphertext) };
  } catch {
    throw damaged();
  }
}

function parseJson(text: string): unknown {
  try {
    const value = JSON.parse(text);
    return typeof value === 'object' && value !== null ? value : undefined;
  } catch {
    return undefined;
  }
}

const damaged = () => new OracleClientError('key_invalid', 'This backup is damaged');
