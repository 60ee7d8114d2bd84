import { createWebSigner } from '@sibyl/ucan/browser';
import { addKey, listKeys, type StoredEntry, type StoredKey } from './key-database.js';
import { exportSeed, importSeed, requireSubtleCrypto } from './key-format.js';
import { createSigner, type OracleSigner } from './signer.js';

/** A signer whose key is stored in this browser. */
export interface BrowserSigner extends OracleSigner {
  /** Whether the first signature asks for the user's passkey. */
  readonly isLocked: boolean;
  /** Asks for the passkey that protects the key, if any, so that signatures need no further question. */
  unlock(): Promise<void>;
}

/** The first key of a browser; others are stored under their DIDs. */
const FIRST = 'user';

/** Opens the identity that is in use in this browser; generates one on the first visit. */
export async function openBrowserSigner(): Promise<BrowserSigner> {
  const [active] = await listKeys();
  const { key } = active ?? (await generateFirst());
  return createBrowserSigner(key);
}

/** Several tabs may do this at once: one of them wins. */
async function generateFirst(): Promise<StoredEntry> {
  const [first] = await addKey({ id: FIRST, key: await generateKey() }, { ifEmpty: true });
  return first as StoredEntry;
}

export async function generateKey(): Promise<StoredKey> {
  const { privateKey, publicKey } = (await requireSubtleCrypto().generateKey('Ed25519', true, [
    'sign',
    'verify',
  ])) as CryptoKeyPair;
  const sealed = await importSeed(await exportSeed(privateKey), 'sealed');
  return { privateKey: sealed, publicKey, backup: privateKey, createdAt: Date.now() };
}

async function createBrowserSigner({
  privateKey,
  publicKey,
  lock,
}: StoredKey): Promise<BrowserSigner> {
  let opening = privateKey && Promise.resolve(privateKey);
  // One question for all signatures; a user who declines is asked again by the next.
  const open = () => {
    opening ??= unlock(lock).catch((error) => {
      opening = undefined;
      throw error;
    });
    return opening;
  };
  const { did } = await createWebSigner({ privateKey: publicKey, publicKey });
  const sign = async (bytes: Uint8Array) =>
    (await createWebSigner({ privateKey: await open(), publicKey })).sign(bytes);
  return {
    ...createSigner({ did, sign }),
    isLocked: privateKey === undefined,
    unlock: async () => {
      await open();
    },
  };
}

async function unlock(lock: StoredKey['lock']): Promise<CryptoKey> {
  if (!lock) throw new Error('the key in this browser is damaged');
  const { openLock } = await import('./passkey.js');
  return importSeed(await openLock(lock), 'sealed');
}
