import { OracleClientError } from '../errors.js';

const DATABASE = 'sibyl';
const STORE = 'keys';

/** The seed of a key, encrypted under a key that only a passkey can compute. */
export interface PasskeyLock {
  readonly credentialId: Uint8Array<ArrayBuffer>;
  /** The input of the passkey's pseudo-random function. */
  readonly salt: Uint8Array<ArrayBuffer>;
  readonly iv: Uint8Array<ArrayBuffer>;
  readonly ciphertext: Uint8Array<ArrayBuffer>;
}

/** A `CryptoKey`: programs of Node without the types of browsers do not know that name. */
type WebKey = Awaited<ReturnType<typeof crypto.subtle.importKey>>;

/** A key in IndexedDB. */
export interface StoredKey {
  /** Not extractable; absent while a passkey protects the key. */
  readonly privateKey?: WebKey;
  readonly publicKey: WebKey;
  /** An extractable copy of the private key, for backups; absent while a passkey protects the key. */
  readonly backup?: WebKey;
  readonly lock?: PasskeyLock;
  /** What the user calls the identity. */
  readonly name?: string;
  /** Milliseconds, as the other times. */
  readonly createdAt?: number;
  /** When the user made a backup, or imported the key from one. */
  readonly backedUpAt?: number;
  /** When the identity was last chosen; the one with the highest value is in use. */
  readonly activeAt?: number;
}

export interface StoredEntry {
  readonly id: string;
  readonly key: StoredKey;
}

/** All keys of this browser, the one in use first. */
export async function listKeys(): Promise<readonly StoredEntry[]> {
  return runTransaction('readonly', (keys) => readEntries(keys));
}

/** Adds a key unless the browser has it; `ifEmpty` adds it only to an empty list. Returns all keys. */
export async function addKey(
  entry: StoredEntry,
  { ifEmpty = false }: { readonly ifEmpty?: boolean } = {},
): Promise<readonly StoredEntry[]> {
  return runTransaction('readwrite', async (keys) => {
    const entries = await readEntries(keys);
    const isPresent = ifEmpty ? entries.length > 0 : entries.some(({ id }) => id === entry.id);
    if (isPresent) return entries;
    await settle(keys.put(entry.key, entry.id));
    return readEntries(keys);
  });
}

/** Changes a key if it is still there; the change sees its newest state and all other keys. */
export async function changeKey(
  id: string,
  change: (key: StoredKey, all: readonly StoredEntry[]) => StoredKey,
): Promise<void> {
  await runTransaction('readwrite', async (keys) => {
    const entries = await readEntries(keys);
    const found = entries.find((entry) => entry.id === id);
    if (!found) throw new OracleClientError('key_not_found', 'This browser no longer has that key');
    await settle(keys.put(change(found.key, entries), id));
  });
}

/** Deletes a key, unless `assertRemovable` throws. */
export async function removeKey(
  id: string,
  assertRemovable: (key: StoredKey, all: readonly StoredEntry[]) => void,
): Promise<void> {
  await runTransaction('readwrite', async (keys) => {
    const entries = await readEntries(keys);
    const found = entries.find((entry) => entry.id === id);
    if (!found) return;
    assertRemovable(found.key, entries);
    await settle(keys.delete(id));
  });
}

async function readEntries(keys: IDBObjectStore): Promise<readonly StoredEntry[]> {
  const ids = settle(keys.getAllKeys());
  const values = settle<StoredKey[]>(keys.getAll());
  const stored = await values;
  const entries = (await ids).map((id, i) => ({ id: String(id), key: stored[i] as StoredKey }));
  // Until the user has chosen one, the oldest is in use.
  return entries.toSorted(
    ({ key: a }, { key: b }) =>
      (b.activeAt ?? 0) - (a.activeAt ?? 0) || (a.createdAt ?? 0) - (b.createdAt ?? 0),
  );
}

const settle = <T>(request: IDBRequest<T>): Promise<T> =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

/**
 * Runs one transaction and waits until it is on disk. `work` awaits only requests of the transaction: it ends when there are
 * none.
 */
async function runTransaction<T>(
  mode: IDBTransactionMode,
  work: (keys: IDBObjectStore) => Promise<T>,
): Promise<T> {
  const database = await openDatabase().catch(rejectStorage);
  try {
    const transaction = database.transaction(STORE, mode, { durability: 'strict' });
    const written = new Promise<void>((resolve, reject) => {
      transaction.oncomplete = () => resolve();
      transaction.onabort = () => reject(transaction.error);
    });
    const [result] = await Promise.all([
      work(transaction.objectStore(STORE)).catch((error) => {
        transaction.abort();
        throw error;
      }),
      written,
    ]);
    return result;
  } catch (cause) {
    return rejectStorage(cause);
  } finally {
    database.close();
  }
}

/** Without IndexedDB, or with one that is blocked, full, or in a private window that does not store keys. */
function rejectStorage(cause: unknown): never {
  if (cause instanceof OracleClientError) throw cause;
  throw new OracleClientError('unsupported_platform', `This browser cannot store keys: ${cause}`, {
    cause,
  });
}

function openDatabase(): Promise<IDBDatabase> {
  return new Promise((resolve, reject) => {
    const opening = indexedDB.open(DATABASE, 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore(STORE);
    opening.onsuccess = () => resolve(opening.result);
    opening.onerror = () => reject(opening.error);
  });
}
