import { createWebSigner } from '@sibyl/ucan/browser';
import { OracleClientError } from '../errors.js';
import { createSigner, type OracleSigner } from './signer.js';

/** The signer of a key that this browser keeps in IndexedDB. */
export interface BrowserSigner extends OracleSigner {
  /** Whether `exportKey` would work: the key was made here and never exported. */
  canExport(): Promise<boolean>;
  /** The private key as text, once: after that no script on this page can read it again. */
  exportKey(): Promise<string>;
}

export interface BrowserSignerOptions {
  /** Tells keys of one origin apart. */
  readonly name?: string;
}

const DEFAULT_NAME = 'user';
/** What comes before the seed in PKCS #8. */
const PKCS8_HEAD = [
  0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/** Opens this browser's key, or makes one on the first visit. */
export async function openBrowserSigner(
  options: BrowserSignerOptions = {},
): Promise<BrowserSigner> {
  const { name = DEFAULT_NAME } = options;
  const key = (await findKey(name)) ?? (await keepFirstKey(name, await makeKey()));
  return signerOf(name, key);
}

/** Replaces this browser's key by one exported elsewhere. */
export async function importBrowserKey(
  text: string,
  options: BrowserSignerOptions = {},
): Promise<BrowserSigner> {
  const { name = DEFAULT_NAME } = options;
  const { seed, publicKey } = readKeyText(text);
  const extractable = await importSeed(seed, 'extractable');
  const raw = await publicBytes(extractable);
  if (publicKey?.some((byte, i) => byte !== raw[i])) {
    throw new OracleClientError('key_invalid', 'The two halves of this key do not belong together');
  }
  // Whoever brings a key has it elsewhere: here it need not be readable any more.
  const key = { privateKey: await importSeed(seed, 'sealed'), publicKey: await importPublic(raw) };
  await keepKey(name, key);
  return signerOf(name, key);
}

async function signerOf(name: string, key: KeptKey): Promise<BrowserSigner> {
  return {
    ...createSigner(await createWebSigner(key)),
    canExport: async () => (await findKey(name))?.backup !== undefined,
    exportKey: async () => {
      const { backup, ...sealed } = (await findKey(name)) ?? key;
      if (!backup) {
        throw new OracleClientError(
          'key_not_exportable',
          'This key was exported or imported before, and cannot leave the browser again',
        );
      }
      const text = writeKeyText({
        seed: await seedOf(backup),
        publicKey: await publicBytes(backup),
      });
      await keepKey(name, sealed);
      return text;
    },
  };
}

async function makeKey(): Promise<KeptKey> {
  const { privateKey, publicKey } = (await subtle().generateKey('Ed25519', true, [
    'sign',
    'verify',
  ])) as CryptoKeyPair;
  const sealed = await importSeed(await seedOf(privateKey), 'sealed');
  return { privateKey: sealed, publicKey, backup: privateKey };
}

async function importSeed(seed: Uint8Array, as: 'extractable' | 'sealed'): Promise<CryptoKey> {
  const pkcs8 = Uint8Array.from([...PKCS8_HEAD, ...seed]);
  return subtle().importKey('pkcs8', pkcs8, 'Ed25519', as === 'extractable', ['sign']);
}

async function importPublic(raw: Uint8Array): Promise<CryptoKey> {
  return subtle().importKey('raw', Uint8Array.from(raw), 'Ed25519', true, ['verify']);
}

async function seedOf(privateKey: CryptoKey): Promise<Uint8Array> {
  return new Uint8Array(await subtle().exportKey('pkcs8', privateKey)).slice(PKCS8_HEAD.length);
}

/** The public half, which WebCrypto gives away only beside the private one, as a JWK. */
async function publicBytes(privateKey: CryptoKey): Promise<Uint8Array> {
  const { x = '' } = await subtle().exportKey('jwk', privateKey);
  const base64 = x.replaceAll('-', '+').replaceAll('_', '/');
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

function subtle(): SubtleCrypto {
  // Absent on pages served without TLS from anywhere but this machine.
  if (globalThis.crypto?.subtle) return crypto.subtle;
  throw new OracleClientError(
    'unsupported_platform',
    'Keys need WebCrypto, which browsers give only to pages from https:// or localhost',
  );
}

/** Multicodec of an Ed25519 private key, then of its public key, as ucanto lines them up. */
const PRIVATE_HEAD = [0x80, 0x26];
const PUBLIC_HEAD = [0xed, 0x01];
const HEX_SEED = /^[0-9a-f]{64}$/i;

/** The 32 secret bytes of a key and, where the text holds it, the public half. */
interface KeyBytes {
  readonly seed: Uint8Array;
  readonly publicKey?: Uint8Array;
}

/** Writes a private key as ucanto and the command line do: `M` and base64. */
function writeKeyText({ seed, publicKey }: Required<KeyBytes>): string {
  const bytes = [...PRIVATE_HEAD, ...seed, ...PUBLIC_HEAD, ...publicKey];
  return `M${btoa(String.fromCharCode(...bytes))}`;
}

/** Reads what `writeKeyText` writes, or a seed as 64 hex digits. */
function readKeyText(text: string): KeyBytes {
  const trimmed = text.trim();
  if (HEX_SEED.test(trimmed)) return { seed: bytesOfHex(trimmed) };
  const bytes = trimmed.startsWith('M') ? bytesOfBase64(trimmed.slice(1)) : [];
  if (!holds(bytes, 0, PRIVATE_HEAD) || !holds(bytes, 34, PUBLIC_HEAD) || bytes.length !== 68) {
    throw new OracleClientError('key_invalid', 'This is not a private key as it was exported');
  }
  return { seed: Uint8Array.from(bytes.slice(2, 34)), publicKey: Uint8Array.from(bytes.slice(36)) };
}

const holds = (bytes: readonly number[], at: number, head: readonly number[]): boolean =>
  head.every((byte, i) => bytes[at + i] === byte);

const bytesOfHex = (text: string): Uint8Array =>
  Uint8Array.from(text.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));

function bytesOfBase64(text: string): number[] {
  try {
    return Array.from(atob(text), (character) => character.charCodeAt(0));
  } catch {
    return [];
  }
}

const DATABASE = 'sibyl';
const STORE = 'keys';

/** A key as the browser keeps it. */
interface KeptKey {
  /** Not extractable. */
  readonly privateKey: CryptoKey;
  readonly publicKey: CryptoKey;
  /** The same private key, extractable, until it has been exported. */
  readonly backup?: CryptoKey;
}

/** Finds a key by its name. */
async function findKey(name: string): Promise<KeptKey | undefined> {
  return inStore('readonly', (keys) => keys.get(name));
}

/** Keeps a key, in place of one of the same name. */
async function keepKey(name: string, key: KeptKey): Promise<void> {
  await inStore('readwrite', (keys) => keys.put(key, name));
}

/** Keeps a key unless another tab was faster; returns the one that is kept. */
async function keepFirstKey(name: string, key: KeptKey): Promise<KeptKey> {
  return inStore('readwrite', (keys) => {
    const found: IDBRequest<KeptKey | undefined> = keys.get(name);
    found.onsuccess = () => found.result ?? keys.put(key, name);
    return found;
  }).then((found) => found ?? key);
}

/** Runs one request in one transaction, and waits until that is on disk. */
async function inStore<T>(
  mode: IDBTransactionMode,
  request: (keys: IDBObjectStore) => IDBRequest<T>,
): Promise<T> {
  const database = await openDatabase();
  try {
    return await new Promise((resolve, reject) => {
      const transaction = database.transaction(STORE, mode, { durability: 'strict' });
      const asked = request(transaction.objectStore(STORE));
      transaction.oncomplete = () => resolve(asked.result);
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
      'Keys are kept in IndexedDB, which is not there',
    );
  }
  return new Promise((resolve, reject) => {
    const opening = indexedDB.open(DATABASE, 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore(STORE);
    opening.onsuccess = () => resolve(opening.result);
    opening.onerror = () => reject(opening.error);
  });
}
