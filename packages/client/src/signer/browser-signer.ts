import { createWebSigner } from '@sibyl/ucan/browser';
import { OracleClientError } from '../oracle-client-error.js';
import { createSigner } from './create-signer.js';
import { findKey, type KeptKey, keepFirstKey, keepKey } from './key-store.js';
import { readKeyText, writeKeyText } from './key-text.js';
import type { OracleSigner } from './oracle-signer.js';

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
