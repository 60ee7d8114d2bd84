import { createWebSigner } from '@sibyl/ucan/browser';
import { OracleClientError } from '../errors.js';
import { createSigner, type OracleSigner } from './signer.js';

/** A signer whose key is stored in this browser's IndexedDB. */
export interface BrowserSigner extends OracleSigner {
  /** Whether `exportKey` works: the key was generated here and never exported. */
  canExport(): Promise<boolean>;
  /** Returns the private key as text. Works once: after that, no script on this page can read the key. */
  exportKey(): Promise<string>;
}

export interface BrowserSignerOptions {
  /** Distinguishes several keys of one origin. */
  readonly name?: string;
}

const DEFAULT_NAME = 'user';
/** Precedes the seed in PKCS #8. */
const PKCS8_PREFIX = [
  0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/** Opens this browser's key; generates one on the first visit. */
export async function openBrowserSigner(
  options: BrowserSignerOptions = {},
): Promise<BrowserSigner> {
  const { name = DEFAULT_NAME } = options;
  const key = (await findKey(name)) ?? (await storeKeyIfAbsent(name, await generateKey()));
  return createBrowserSigner(name, key);
}

/** Replaces this browser's key with one that was exported elsewhere. */
export async function importBrowserKey(
  text: string,
  options: BrowserSignerOptions = {},
): Promise<BrowserSigner> {
  const { name = DEFAULT_NAME } = options;
  const { seed, publicKey } = parseKey(text);
  const extractable = await importSeed(seed, 'extractable');
  const raw = await exportPublicKey(extractable);
  if (publicKey?.some((byte, i) => byte !== raw[i])) {
    throw new OracleClientError(
      'key_invalid',
      'Invalid private key: the public key does not match',
    );
  }
  // The user has this key elsewhere, so it is stored without an exportable copy.
  const key = {
    privateKey: await importSeed(seed, 'sealed'),
    publicKey: await importPublicKey(raw),
  };
  await storeKey(name, key);
  return createBrowserSigner(name, key);
}

async function createBrowserSigner(name: string, key: StoredKey): Promise<BrowserSigner> {
  return {
    ...createSigner(await createWebSigner(key)),
    canExport: async () => (await findKey(name))?.backup !== undefined,
    exportKey: async () => {
      const { backup, ...withoutBackup } = (await findKey(name)) ?? key;
      if (!backup) {
        throw new OracleClientError(
          'key_not_exportable',
          'This key was already exported or imported and cannot be exported again',
        );
      }
      const text = formatKey({
        seed: await exportSeed(backup),
        publicKey: await exportPublicKey(backup),
      });
      await storeKey(name, withoutBackup);
      return text;
    },
  };
}

async function generateKey(): Promise<StoredKey> {
  const { privateKey, publicKey } = (await requireSubtleCrypto().generateKey('Ed25519', true, [
    'sign',
    'verify',
  ])) as CryptoKeyPair;
  const sealed = await importSeed(await exportSeed(privateKey), 'sealed');
  return { privateKey: sealed, publicKey, backup: privateKey };
}

async function importSeed(seed: Uint8Array, as: 'extractable' | 'sealed'): Promise<CryptoKey> {
  const pkcs8 = Uint8Array.from([...PKCS8_PREFIX, ...seed]);
  return requireSubtleCrypto().importKey('pkcs8', pkcs8, 'Ed25519', as === 'extractable', ['sign']);
}

async function importPublicKey(raw: Uint8Array): Promise<CryptoKey> {
  return requireSubtleCrypto().importKey('raw', Uint8Array.from(raw), 'Ed25519', true, ['verify']);
}

async function exportSeed(privateKey: CryptoKey): Promise<Uint8Array> {
  return new Uint8Array(await requireSubtleCrypto().exportKey('pkcs8', privateKey)).slice(
    PKCS8_PREFIX.length,
  );
}

/** Reads the public key from the private key's JWK, the only way WebCrypto offers. */
async function exportPublicKey(privateKey: CryptoKey): Promise<Uint8Array> {
  const { x = '' } = await requireSubtleCrypto().exportKey('jwk', privateKey);
  const base64 = x.replaceAll('-', '+').replaceAll('_', '/');
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

function requireSubtleCrypto(): SubtleCrypto {
  // Undefined on pages without TLS, except on localhost.
  if (globalThis.crypto?.subtle) return crypto.subtle;
  throw new OracleClientError(
    'unsupported_platform',
    'WebCrypto is not available. Open this page over https:// or on localhost.',
  );
}

/** Multicodec prefixes of an Ed25519 private key and its public key, in ucanto's format. */
const PRIVATE_KEY_PREFIX = [0x80, 0x26];
const PUBLIC_KEY_PREFIX = [0xed, 0x01];
const HEX_SEED = /^[0-9a-f]{64}$/i;

/** The 32-byte seed and, if the text contains it, the public key. */
interface KeyBytes {
  readonly seed: Uint8Array;
  readonly publicKey?: Uint8Array;
}

/** Formats a private key like ucanto and the command line: `M` and base64. */
function formatKey({ seed, publicKey }: Required<KeyBytes>): string {
  const bytes = [...PRIVATE_KEY_PREFIX, ...seed, ...PUBLIC_KEY_PREFIX, ...publicKey];
  return `M${btoa(String.fromCharCode(...bytes))}`;
}

/** Parses the output of `formatKey`, or a seed of 64 hex digits. */
function parseKey(text: string): KeyBytes {
  const trimmed = text.trim();
  if (HEX_SEED.test(trimmed)) return { seed: parseHex(trimmed) };
  const bytes = trimmed.startsWith('M') ? parseBase64(trimmed.slice(1)) : [];
  if (
    !startsWithAt(bytes, 0, PRIVATE_KEY_PREFIX) ||
    !startsWithAt(bytes, 34, PUBLIC_KEY_PREFIX) ||
    bytes.length !== 68
  ) {
    throw new OracleClientError('key_invalid', 'This is not a valid private key');
  }
  return { seed: Uint8Array.from(bytes.slice(2, 34)), publicKey: Uint8Array.from(bytes.slice(36)) };
}

const startsWithAt = (bytes: readonly number[], at: number, head: readonly number[]): boolean =>
  head.every((byte, i) => bytes[at + i] === byte);

const parseHex = (text: string): Uint8Array =>
  Uint8Array.from(text.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));

function parseBase64(text: string): number[] {
  try {
    return Array.from(atob(text), (character) => character.charCodeAt(0));
  } catch {
    return [];
  }
}

const DATABASE = 'sibyl';
const STORE = 'keys';

/** A key in IndexedDB. */
interface StoredKey {
  /** Not extractable. */
  readonly privateKey: CryptoKey;
  readonly publicKey: CryptoKey;
  /** An extractable copy of the private key, deleted by the export. */
  readonly backup?: CryptoKey;
}

async function findKey(name: string): Promise<StoredKey | undefined> {
  return runTransaction('readonly', (keys) => keys.get(name));
}

/** Stores a key and replaces one of the same name. */
async function storeKey(name: string, key: StoredKey): Promise<void> {
  await runTransaction('readwrite', (keys) => keys.put(key, name));
}

/** Stores a key unless another tab was faster; returns the stored one. */
async function storeKeyIfAbsent(name: string, key: StoredKey): Promise<StoredKey> {
  return runTransaction('readwrite', (keys) => {
    const found: IDBRequest<StoredKey | undefined> = keys.get(name);
    found.onsuccess = () => found.result ?? keys.put(key, name);
    return found;
  }).then((found) => found ?? key);
}

/** Runs one request in a transaction and waits until it is on disk. */
async function runTransaction<T>(
  mode: IDBTransactionMode,
  request: (keys: IDBObjectStore) => IDBRequest<T>,
): Promise<T> {
  const database = await openDatabase();
  try {
    return await new Promise((resolve, reject) => {
      const transaction = database.transaction(STORE, mode, { durability: 'strict' });
      const pending = request(transaction.objectStore(STORE));
      transaction.oncomplete = () => resolve(pending.result);
      transaction.onabort = () => reject(transaction.error);
    });
  } finally {
    database.close();
  }
}

function openDatabase(): Promise<IDBDatabase> {
  if (typeof indexedDB === 'undefined') {
    throw new OracleClientError(
      'unsupported_platform',
      'IndexedDB is not available, so this browser cannot store a key',
    );
  }
  return new Promise((resolve, reject) => {
    const opening = indexedDB.open(DATABASE, 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore(STORE);
    opening.onsuccess = () => resolve(opening.result);
    opening.onerror = () => reject(opening.error);
  });
}
